"""lm-evaluation-harness's two backends, each with its fastest settings on this machine."""

import os
import time
from collections.abc import Sequence
from importlib import metadata
from typing import Any

BATCH_SIZES = (1, 8, 32, 128)
"""Batch sizes tried with the hf backend."""

Pair = tuple[str, str]
"""A context and its continuation."""


def log_probabilities(backend: Any, pairs: Sequence[Pair]) -> list[float]:
    """Log-probability of each continuation after its context."""
    from lm_eval.api.instance import Instance

    instances = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    return [float(log_p) for log_p, _ in backend.loglikelihood(instances, disable_tqdm=True)]


def on_transformers(model: str, dtype: str, few: Sequence[Pair], *, own_code: bool = False) -> Any:
    """The `hf` backend with the batch size that scores a few pairs fastest.

    `own_code` allows code from the model's repository.
    """
    import torch
    from lm_eval.models.huggingface import HFLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    backend = HFLM(pretrained=model, dtype=dtype, device=device, batch_size=1, trust_remote_code=own_code)
    clock = time.process_time if device == "cpu" else time.perf_counter
    log_probabilities(backend, few[:4])
    times = {}
    for size in BATCH_SIZES:
        backend.batch_size_per_gpu = size
        begun = clock()
        log_probabilities(backend, few)
        times[size] = clock() - begun
    backend.batch_size_per_gpu = min(times, key=lambda size: times[size])
    return backend


def on_vllm(model: str, dtype: str, *, max_length: int = 512, own_code: bool = False) -> Any:
    """The `vllm` backend with the same options as this program's vllm engine. `own_code`: as above."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import vllm
    from vllm.platforms import current_platform

    options: dict[str, Any] = {"kv_cache_memory_bytes": 1 << 30} if current_platform.is_cpu() else {}
    options |= {"dtype": dtype, "max_length": max_length, "trust_remote_code": own_code}
    plain = metadata.version
    # The harness looks up the version of a package named "vllm"; the CPU build has another name.
    metadata.version = lambda distribution_name: vllm.__version__ if distribution_name == "vllm" else plain(distribution_name)
    try:
        from lm_eval.models.vllm_causallms import VLLM
    finally:
        metadata.version = plain
    return VLLM(pretrained=model, batch_size="auto", enforce_eager=True, **options)
