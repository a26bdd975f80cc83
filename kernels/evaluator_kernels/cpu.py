"""The CPU path: the vocabulary in blocks, matrix products by the BLAS, one running (maximum, sum) pair per row."""

from __future__ import annotations

import torch
from torch import Tensor

from .problem import PADDING, MaskedLogProbs, check_candidate_range

BLOCK_BYTES = 4 << 20
"""Size of one block of float32 logits. Four passes (add, max, exp, sum) read it: it has to stay in the cache."""

MIN_BLOCK = 512
"""Fewest vocabulary entries of a block: below it the matrix product no longer runs at full rate."""

MAX_ROWS = 1024
"""Most rows handled at once; more would shrink the vocabulary block below MIN_BLOCK or outgrow the cache."""


def chunked_log_probs(hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor | None = None) -> MaskedLogProbs:
    """`masked_log_probs` on the CPU, in float32 arithmetic for every input type.

    Memory beyond the inputs and outputs: one block of logits, at most max(BLOCK_BYTES, 4·MAX_ROWS·MIN_BLOCK) bytes,
    plus, for float16 and bfloat16 input, a float32 copy of one block of the weight and of `hidden`. Never [N, V].
    """
    check_candidate_range(candidates, weight.shape[0])
    rows = hidden.shape[0]
    log_probs = torch.empty(candidates.shape, dtype=torch.float32)
    logsumexp = torch.empty(rows, dtype=torch.float32)
    for start in range(0, rows, MAX_ROWS):
        part = slice(start, start + MAX_ROWS)
        block = hidden[part].float()
        logsumexp[part] = _online_logsumexp(block, weight, bias)
        log_probs[part] = _candidate_logits(block, weight, candidates[part], bias) - logsumexp[part, None]
    return MaskedLogProbs(log_probs, logsumexp)


def _online_logsumexp(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Log-sum-exp of hidden · weightᵀ + bias over the vocabulary, block by block; hidden is float32."""
    rows, vocabulary = hidden.shape[0], weight.shape[0]
    block = min(vocabulary, max(MIN_BLOCK, BLOCK_BYTES // (4 * rows)))
    buffer = torch.empty(rows * block, dtype=torch.float32)
    running_max = torch.full((rows,), float("-inf"))
    running_sum = torch.zeros(rows)
    for start in range(0, vocabulary, block):
        part = weight[start : start + block].float()
        logits = buffer[: rows * part.shape[0]].view(rows, part.shape[0])
        if bias is None:
            torch.mm(hidden, part.T, out=logits)
        else:
            torch.addmm(bias[start : start + block].float(), hidden, part.T, out=logits)
        new_max = torch.maximum(running_max, logits.amax(dim=1))
        # A row that has seen nothing but -inf would compute -inf - -inf; against zero it stays at probability zero.
        shift = new_max.masked_fill(new_max == float("-inf"), 0.0)
        running_sum = running_sum * torch.exp(running_max - shift) + logits.sub_(shift[:, None]).exp_().sum(dim=1)
        running_max = new_max
    return running_max + torch.log(running_sum)


def _candidate_logits(hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor | None) -> Tensor:
    """Logits of the candidates alone [N, K], by dot products with the gathered rows of the weight; -inf for padding."""
    ids = candidates.clamp(min=0).long()
    logits = torch.empty(ids.shape, dtype=torch.float32)
    for place in range(ids.shape[1]):  # one [N, H] gather at a time, never [N, K, H]
        column = ids[:, place]
        logits[:, place] = (hidden * weight[column].float()).sum(dim=1)
    if bias is not None:
        logits += bias[ids].float()
    return logits.masked_fill_(candidates == PADDING, float("-inf"))
