"""A separate process, which may crash: `python -m evaluator.doctor.trial_process engine NAME` or `… ray [ADDRESS]`.

Its last line on standard output is JSON. An engine loads tiny models with random weights and scores synthetic rows; its
numbers are compared with transformers' logits in float64.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VOCABULARY, CONTEXT = 211, 64
WEIGHT_STD = 0.3
"""Standard deviation of the weights: with the usual one all log-probabilities are nearly equal and hide errors."""


def tiny_models() -> dict[str, Any]:
    """Head → a tiny model with random weights."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

    shape: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 192}
    shape |= {"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "initializer_range": WEIGHT_STD}
    torch.manual_seed(0)
    masked = BertForMaskedLM(BertConfig(**shape, pad_token_id=0))
    causal = LlamaForCausalLM(LlamaConfig(**shape, num_key_value_heads=2, bos_token_id=1, eos_token_id=2))
    return {"masked": masked.eval(), "causal": causal.eval()}


def tiny_rows(head: Any) -> list[Any]:
    """Rows of several lengths whose last two positions are read."""
    from evaluator_serving.rows import Row

    rows = []
    for length in (5, 9, 14, 23):
        ids = tuple(3 + (7 * i + length) % (VOCABULARY - 3) for i in range(length))
        rows.append(Row(head, ids, ((length - 2, ids[-1]), (length - 2, 17), (length - 1, 40))))
    return rows


def expected(model: Any, rows: list[Any]) -> list[float]:
    """Reference values of the rows: log-softmax of transformers' logits in float64."""
    import torch

    reference, values = model.double(), []
    for row in rows:
        with torch.no_grad():
            logits = reference(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
        values += [float(logits[position, token]) for position, token in row.lookups]
    return values


def check_engine(name: str) -> dict[str, Any]:
    """Load the engine, score, and compare: `right`, `worst` (largest difference), `heads`, `device`, `seconds`."""
    import numpy as np

    from evaluator_serving.checks.verify import TOLERANCE
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.models.config import quiet
    from evaluator_serving.models.source import ModelSource
    from evaluator_serving.opening import open_engine
    from evaluator_serving.registry import engine_class

    quiet()
    engine_type = engine_class(name)
    begun, worst, device = time.monotonic(), 0.0, ""
    scored: list[str] = []
    for head, model in tiny_models().items():
        if head not in engine_type.heads:
            continue
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            source = ModelSource(f"tiny {head}", Path(folder), "doctor", frozenset({head}), model.config, CONTEXT)
            rows = tiny_rows(head)
            try:
                engine = open_engine(name, source, EngineOptions(), rows)
            except Exception as error:
                if scored and name == "onnx" and "on CPUs only" in str(error):
                    continue  # other engines score generative models on a GPU
                raise
            device = engine.device_kind
            numbers = np.concatenate(engine.score(rows))
            engine.close()
            worst = max(worst, float(np.abs(numbers - np.array(expected(model, rows))).max()))
            scored.append(head)
    right = worst <= TOLERANCE["float32"]
    return {"right": right, "worst": worst, "heads": scored, "device": device, "seconds": time.monotonic() - begun}


def check_ray(address: str) -> dict[str, Any]:
    """Start or join a cluster, run a task on it, and list its machines and versions."""
    import ray

    from evaluator.sweep.on_ray import cluster

    begun = time.monotonic()
    cluster.connect(address, 1 if address == "local" else None)
    task = ray.remote(_versions).options(num_cpus=0)
    remote = ray.get(task.remote(), timeout=120)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    totals = {name: sum(node["Resources"].get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    ray.shutdown()
    return {"there": remote, "here": _versions(), "nodes": len(nodes), **totals, "seconds": time.monotonic() - begun}


def _versions() -> dict[str, str]:
    # Imports stay inside: Ray runs this on machines that may not have this package.
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in ("ray", "torch", "transformers", "vllm", "stereotype-evaluator"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


if __name__ == "__main__":
    what, argument = sys.argv[1], sys.argv[2]
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what libraries print goes to stderr: standard output is for the answer alone
        try:
            answer = check_engine(argument) if what == "engine" else check_ray(argument)
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]}
        answers.write(json.dumps(answer) + "\n")
    os._exit(0)  # without waiting for threads that engines leave behind
