"""A program of its own, which may crash: `python -m evaluator.doctor.trial engine NAME` or `… ray [ADDRESS]`.

Its last line on standard output is JSON. An engine is loaded with tiny models of random weights, made on the spot, and asked
about made-up rows; its numbers are compared with transformers' own logits in float64.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VOCABULARY, CONTEXT = 211, 64
WIDE = 0.3
"""Deviation of the weights: with the usual one all log-probabilities would be alike, and a wrong one would not show."""


def tiny_models() -> dict[str, Any]:
    """Head → a model of random weights, a few thousand numbers large."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

    shape: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 192}
    places: dict[str, Any] = {"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "initializer_range": WIDE}
    torch.manual_seed(0)
    masked = BertForMaskedLM(BertConfig(**shape, **places, pad_token_id=0))
    causal = LlamaForCausalLM(LlamaConfig(**shape, **places, num_key_value_heads=2, bos_token_id=1, eos_token_id=2))
    return {"masked": masked.eval(), "causal": causal.eval()}


def tiny_rows(head: Any) -> list[Any]:
    """Rows of several lengths that read their last two positions."""
    from evaluator_serving.rows import Row

    made = []
    for length in (5, 9, 14, 23):
        ids = tuple(3 + (7 * i + length) % (VOCABULARY - 3) for i in range(length))
        made.append(Row(head, ids, ((length - 2, ids[-1]), (length - 2, 17), (length - 1, 40))))
    return made


def expected(model: Any, rows: list[Any]) -> list[float]:
    """The rows' answers by the definition: log-softmax of transformers' logits in float64."""
    import torch

    exact, found = model.double(), []
    for row in rows:
        with torch.no_grad():
            logits = exact(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
        found += [float(logits[position, token]) for position, token in row.lookups]
    return found


def try_engine(name: str) -> dict[str, Any]:
    """Load, score, compare: what worked, on which device, how far from float64, and what it took."""
    import numpy as np

    from evaluator_serving.checks.verify import TOLERANCE
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.models.config import quiet
    from evaluator_serving.models.source import ModelSource
    from evaluator_serving.opening import open_engine
    from evaluator_serving.registry import engine_class

    quiet()
    made = engine_class(name)
    begun, worst, device = time.monotonic(), 0.0, ""
    answered: list[str] = []
    for head, model in tiny_models().items():
        if head not in made.heads:
            continue
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            source = ModelSource(f"tiny {head}", Path(folder), "doctor", frozenset({head}), model.config, CONTEXT)
            rows = tiny_rows(head)
            try:
                engine = open_engine(name, source, EngineOptions(), rows)
            except Exception as error:
                if answered and name == "onnx" and "on CPUs only" in str(error):
                    continue  # generative models on a GPU are other engines' work
                raise
            device = engine.device_kind
            numbers = np.concatenate(engine.score(rows))
            engine.close()
            worst = max(worst, float(np.abs(numbers - np.array(expected(model, rows))).max()))
            answered.append(head)
    right = worst <= TOLERANCE["float32"]
    return {"right": right, "worst": worst, "heads": answered, "device": device, "seconds": time.monotonic() - begun}


def try_ray(address: str) -> dict[str, Any]:
    """Start or join a cluster, run a task there, and say which machines it has."""
    import ray

    from evaluator.sweep.on_ray import cluster

    begun = time.monotonic()
    cluster.connect(address, 1 if address == "local" else None)
    task = ray.remote(_versions).options(num_cpus=0)
    there = ray.get(task.remote(), timeout=120)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    totals = {name: sum(node["Resources"].get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    ray.shutdown()
    return {"there": there, "here": _versions(), "nodes": len(nodes), **totals, "seconds": time.monotonic() - begun}


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("ray", "torch", "transformers", "vllm", "stereotype-evaluator"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _kept_apart() -> Iterator[int]:
    """Standard output for the answer alone: libraries print where they like."""
    answers = os.dup(1)
    os.dup2(2, 1)
    yield answers


if __name__ == "__main__":
    what, argument = sys.argv[1], sys.argv[2]
    with os.fdopen(next(_kept_apart()), "w") as answers:
        try:
            answer = try_engine(argument) if what == "engine" else try_ray(argument)
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]}
        answers.write(json.dumps(answer) + "\n")
    os._exit(0)  # what engines leave behind need not be waited for
