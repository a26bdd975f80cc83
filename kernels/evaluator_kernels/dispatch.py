"""One name for the three implementations: which runs is decided by the device the tensors are on."""

from __future__ import annotations

from torch import Tensor

from .cpu import chunked_log_probs
from .problem import MaskedLogProbs, check_problem

__all__ = ["MaskedLogProbs", "masked_log_probs"]


def masked_log_probs(hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor | None = None) -> MaskedLogProbs:
    """Log-probabilities of K candidates at each of N masked positions, in one pass over a vocabulary of V entries.

    hidden: [N, H] float32, float16 or bfloat16, what the vocabulary head multiplies (after its transform, if any).
    weight: [V, H], same type and device as hidden. bias: [V], any floating-point type, or None; entries may be -inf.
    candidates: [N, K] int32 or int64 ids in [0, V); -1 marks an empty place of a ragged list, answered by -inf. The
    same id may stand in several places.

    Returns natural logs in float32: log_probs [N, K] = logit - log-sum-exp, and logsumexp [N]. Sums are accumulated in
    float32 whatever the input type. The error of a log-probability is bounded by the rounding of the logits, about
    1e-7 times the largest |logit|. A row whose every entry is -inf has logsumexp -inf and NaN log-probabilities.

    Memory beyond the inputs: the outputs plus O(N) on a GPU, one cache-sized block on the CPU; [N, V] never exists.

    Raises ValueError when shapes, types or devices do not fit, and, on the CPU, for an id out of range. On a GPU
    reading the ids back would stall the queue, so an id out of range is answered by NaN there.
    """
    check_problem(hidden, weight, candidates, bias)
    if hidden.device.type == "cpu":
        return chunked_log_probs(hidden, weight, candidates, bias)
    if hidden.device.type == "cuda":
        from .triton_kernel import triton_log_probs  # triton exists only where there is a GPU

        return triton_log_probs(hidden, weight, candidates, bias)
    raise ValueError(f"no implementation for device {hidden.device}")
