"""Counts what a loaded model really computes, from outside: tokens (padding included) and forward passes."""

from dataclasses import dataclass
from typing import Any

from evaluator_serving.engine import Engine


@dataclass(slots=True)
class Counter:
    """Tokens and passes since the last `reset`; `counts` says whether this backend's are known at all."""

    tokens: int = 0
    passes: int = 0
    counts: bool = False

    def reset(self) -> None:
        """Forget what was counted."""
        self.tokens = self.passes = 0

    def told(self) -> dict[str, float]:
        """What was counted, for an answer: tokens `computed` and `passes`, where they are known."""
        return {"computed": self.tokens, "passes": self.passes} if self.counts else {}

    def add(self, tokens: int) -> None:
        """One forward pass over so many tokens."""
        self.tokens += tokens
        self.passes += 1

    def of_engine(self, engine: Engine, vocabulary: int) -> None:
        """Count in an engine of this program; another package's counts nothing."""
        if engine.name == "vllm":
            self.of_scheduler(engine._llm)  # type: ignore[attr-defined]
        elif engine.name == "onnx":
            self.of_graphs(engine)
        elif engine.name == "transformers":
            self.of_embeddings(vocabulary)

    def of_graphs(self, engine: Any) -> None:
        """Count what goes through the onnx engine's graphs."""
        self.counts = True
        runner = engine._runner
        submit = runner.submit

        def counting(inputs: Any, wanted: Any) -> None:
            self.add(inputs["input_ids"].size)
            submit(inputs, wanted)

        runner.submit = counting

    def of_embeddings(self, vocabulary: int) -> None:
        """Count what goes through a transformers model's word embedding: every computed token does once."""
        import torch

        self.counts = True
        plain = torch.nn.Embedding.forward

        def counting(module: torch.nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
            if module.num_embeddings >= vocabulary:
                self.add(ids.numel())
            return plain(module, ids)

        torch.nn.Embedding.forward = counting  # type: ignore[method-assign,assignment]

    def of_scheduler(self, llm: Any) -> None:
        """Count what vLLM's scheduler hands to the model."""
        self.counts = True
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        plain = scheduler.schedule

        def counting(*args: Any, **named: Any) -> Any:
            output = plain(*args, **named)
            if output.total_num_scheduled_tokens:
                self.add(output.total_num_scheduled_tokens)
            return output

        scheduler.schedule = counting
