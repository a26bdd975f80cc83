"""Sizes of vLLM's buffers for the rows of a run. Pure functions."""

from dataclasses import dataclass
from math import ceil
from typing import Any

from evaluator_serving.rows import Workload

GIB = 1 << 30

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""What vLLM computes in, with bytes a number."""

_BLOCK = 128
"""Largest common size of a block of the KV cache in tokens; a sequence takes whole blocks."""
_LOGIT_BYTES = 12
"""Bytes of a vocabulary entry while log-probabilities are taken: logits in float32, their log-softmax, one temporary."""
_ATTENTION = frozenset({"full_attention", "sliding_attention", "chunked_attention"})


@dataclass(frozen=True, slots=True)
class Device:
    """Limits of a device.

    Attributes:
        logits: maximum bytes for logits and log-probabilities per step.
        kv: maximum bytes for the KV cache.
        tokens, sequences: maximum useful tokens and sequences per step.
        total: the device's memory in bytes, None if not limited by share (CPU).
    """

    logits: int
    kv: int
    tokens: int
    sequences: int
    total: int | None = None

    @classmethod
    def cpu(cls) -> "Device":
        """A CPU, whose throughput is constant from a few hundred tokens per step."""
        return cls(logits=GIB, kv=GIB, tokens=2048, sequences=256)

    @classmethod
    def gpu(cls, total: int) -> "Device":
        """A GPU with `total` bytes of memory."""
        return cls(logits=min(2 * GIB, total // 8), kv=min(4 * GIB, total // 8), tokens=16384, sequences=1024, total=total)


@dataclass(frozen=True, slots=True)
class Sizes:
    """vLLM's engine arguments of these names; None keeps vLLM's default."""

    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    kv_cache_memory_bytes: int | None
    gpu_memory_utilization: float | None

    def arguments(self) -> dict[str, Any]:
        """The arguments that are set."""
        names = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "kv_cache_memory_bytes", "gpu_memory_utilization")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def kv_bytes_per_token(config: Any, dtype: str, shards: int) -> int | None:
    """Bytes of KV cache per token on each of `shards` devices; None if the model has other states than keys and values."""
    text = config.get_text_config()
    layers, heads = getattr(text, "num_hidden_layers", None), getattr(text, "num_attention_heads", None)
    if not layers or not heads or any(kind not in _ATTENTION for kind in getattr(text, "layer_types", None) or ()):
        return None
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    # vLLM groups layers of different kinds and pads the groups to one size.
    padding = 2 if len(set(getattr(text, "layer_types", None) or ())) > 1 else 1
    return int(padding * 2 * layers * ceil(kv_heads / shards) * width * DTYPE_BYTES[dtype])


def sizes(work: Workload, config: Any, device: Device, *, kv_token: int | None, weights: int, tokens: int | None) -> Sizes:
    """Sizes for scoring all rows of a run.

    `kv_token`: bytes of KV cache per token; `weights`: bytes of weights per device; `tokens`: the user's limit of tokens per
    step. Every sequence in flight has its blocks, so nothing is preempted.
    """
    vocabulary = config.get_text_config().vocab_size
    length = work.longest + 1  # the token after the last one is predicted, never computed
    per_token = vocabulary * _LOGIT_BYTES
    batched = tokens or min(device.tokens, max(256, work.tokens))
    if work.longest * per_token > device.logits:  # a scored prompt takes a vocabulary of logits a token
        batched = min(batched, max(16, device.logits // per_token))
    sequences = min(device.sequences, batched, 2 * work.rows or 1, max(1, device.logits // per_token))
    if kv_token is None:
        kv = None if device.total else device.kv
        return Sizes(length, batched, sequences, kv, 0.9 if device.total else None)
    per_sequence = ceil((length + 1) / _BLOCK) * _BLOCK * kv_token
    sequences = max(1, min(sequences, device.kv // per_sequence))
    kv = (sequences + 2) * per_sequence
    share = (weights + kv + 2 * device.logits + 2 * GIB) / device.total if device.total else None
    return Sizes(length, batched, sequences, kv, None if share is None else min(0.95, share))
