"""Counts the tokens (padding included) and forward passes that a loaded model computes, by wrapping its functions."""

from dataclasses import dataclass
from typing import Any

from evaluator_serving.engine import Engine


@dataclass(slots=True)
class Counter:
    """Tokens and passes since the last `reset`; `counts` is False for a backend that cannot be counted."""

    tokens: int = 0
    passes: int = 0
    counts: bool = False

    def reset(self) -> None:
        """Set the totals to zero."""
        self.tokens = self.passes = 0

    def record(self) -> dict[str, float]:
        """The totals for an answer: tokens `computed` and `passes`; empty if they are unknown."""
        return {"computed": self.tokens, "passes": self.passes} if self.counts else {}

    def add(self, tokens: int) -> None:
        """Add one forward pass."""
        self.tokens += tokens
        self.passes += 1

    def of_engine(self, engine: Engine, vocabulary: int) -> None:
        """Count in a built-in engine; plug-in engines are not counted."""
        if engine.name == "vllm":
            self.of_scheduler(engine._llm)  # type: ignore[attr-defined]
        elif engine.name == "onnx":
            self.of_graphs(engine)
        elif engine.name == "transformers":
            self.of_embeddings(vocabulary)

    def of_graphs(self, engine: Any) -> None:
        """Count the inputs of the onnx engine's graphs."""
        self.counts = True
        runner = engine._runner
        submit = runner.submit

        def counting(inputs: Any, wanted: Any) -> None:
            self.add(inputs["input_ids"].size)
            submit(inputs, wanted)

        runner.submit = counting

    def of_embeddings(self, vocabulary: int) -> None:
        """Count the inputs of a transformers model's word embedding: each computed token passes it once."""
        import torch

        self.counts = True
        plain = torch.nn.Embedding.forward

        def counting(module: torch.nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
            if module.num_embeddings >= vocabulary:
                self.add(ids.numel())
            return plain(module, ids)

        torch.nn.Embedding.forward = counting  # type: ignore[method-assign,assignment]

    def of_scheduler(self, llm: Any) -> None:
        """Count the tokens that vLLM's scheduler schedules."""
        self.counts = True
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        plain = scheduler.schedule

        def counting(*args: Any, **named: Any) -> Any:
            output = plain(*args, **named)
            if output.total_num_scheduled_tokens:
                self.add(output.total_num_scheduled_tokens)
            return output

        scheduler.schedule = counting
