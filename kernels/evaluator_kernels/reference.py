"""The readable reference: full logits, then log-sum-exp, then a gather. Right first; O(N·V) memory."""

from __future__ import annotations

import torch
from torch import Tensor

from .problem import PADDING, MaskedLogProbs, check_candidate_range


def reference_log_probs(hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor | None = None) -> MaskedLogProbs:
    """`masked_log_probs` by definition, computed in float32 (in float64 when the input is float64).

    log P(c | position n) = z[n, c] - log Σ_v exp z[n, v], with z = hidden · weightᵀ + bias.
    """
    check_candidate_range(candidates, weight.shape[0])
    precision = torch.promote_types(hidden.dtype, torch.float32)
    logits = hidden.to(precision) @ weight.to(precision).T
    if bias is not None:
        logits = logits + bias.to(precision)
    logsumexp = torch.logsumexp(logits, dim=1)
    chosen = torch.gather(logits, 1, candidates.clamp(min=0).long())
    log_probs = (chosen - logsumexp[:, None]).masked_fill(candidates == PADDING, float("-inf"))
    return MaskedLogProbs(log_probs, logsumexp)
