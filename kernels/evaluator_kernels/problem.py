"""The problem that every implementation here solves, its result and the checks on its input."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PADDING = -1
"""Candidate id of an empty place in a ragged list of candidates; its log-probability is -inf (probability zero)."""

FLOAT_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class MaskedLogProbs(NamedTuple):
    """Natural-log probabilities at N masked positions.

    log_probs: float32 [N, K], logit of each candidate minus the row's log-sum-exp; -inf where the candidate is padding.
    logsumexp: float32 [N], log of the sum of exp(logit) over the whole vocabulary.
    """

    log_probs: Tensor
    logsumexp: Tensor


def check_problem(hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor | None) -> None:
    """Raise ValueError, naming the argument, unless shapes, types and devices fit together (values are not read)."""
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(f"hidden [N, H] and weight [V, H] do not fit: {list(hidden.shape)} and {list(weight.shape)}")
    if weight.shape[0] == 0 or weight.shape[1] == 0:
        raise ValueError(f"weight [V, H] is empty: {list(weight.shape)}")
    if hidden.dtype not in FLOAT_TYPES or weight.dtype != hidden.dtype:
        raise ValueError(f"hidden and weight must both be float32, float16 or bfloat16: {hidden.dtype}, {weight.dtype}")
    if candidates.ndim != 2 or candidates.shape[0] != hidden.shape[0]:
        raise ValueError(f"candidates must be [N, K] with N = {hidden.shape[0]}: {list(candidates.shape)}")
    if candidates.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"candidates must be int32 or int64: {candidates.dtype}")
    if bias is not None and (bias.shape != weight.shape[:1] or not bias.is_floating_point()):
        raise ValueError(f"bias must be floating point [V] with V = {weight.shape[0]}: {bias.dtype} {list(bias.shape)}")
    devices = {tensor.device for tensor in (hidden, weight, candidates, bias) if tensor is not None}
    if len(devices) > 1:
        raise ValueError(f"hidden, weight, candidates and bias must be on one device: {sorted(map(str, devices))}")


def check_candidate_range(candidates: Tensor, vocabulary: int) -> None:
    """Raise ValueError for an id outside [-1, V). Reads the values: free on the CPU, a synchronisation on a GPU."""
    if candidates.numel() == 0:
        return
    low, high = (int(bound) for bound in candidates.aminmax())
    if low < PADDING or high >= vocabulary:
        raise ValueError(f"candidate ids run from {low} to {high}; allowed are {PADDING} (padding) to {vocabulary - 1}")
