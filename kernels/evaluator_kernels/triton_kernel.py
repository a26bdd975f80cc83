"""The GPU path: two Triton kernels.

1. `_partial_logsumexp`: a matrix product whose tiles are reduced to one (maximum, sum) pair per row as soon as they are
   made. The vocabulary is split among programs, so that a handful of rows still uses the whole chip.
2. `_finish`: joins the partial pairs of a row and reads the candidates' logits by indexed dot products.

To keep the log-sum-exp and the indexed dot product apart is the idea of Cut Cross-Entropy (Wijmans et al., 2024).
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .problem import MaskedLogProbs, check_problem

PROGRAMS_PER_PROCESSOR = 8
"""Programs aimed at per multiprocessor: enough that the last, partly filled wave costs a few percent."""

ROWS_PER_TILE = 64
"""Rows assumed per tile when the number of splits is chosen, before the autotuner has picked the tile."""

VOCABULARY_PER_TILE = 128
"""Vocabulary assumed per tile, likewise: more splits than tiles would leave programs without work."""

INTERPRETED = triton.knobs.runtime.interpret


COMPILER_OPTIONS = {"enable_fp_fusion": True}
"""Of both kernels: a product is rounded together with its sum (FMA). Triton 3.10 no longer does so by default."""

FINISH_BLOCKS = {"BLOCK_H": 256, "BLOCK_S": 128}
"""Width and splits that `_finish` reads at a time."""


class Tile(NamedTuple):
    """A program's tile of rows and vocabulary, how deep it reads at a time, and how many warps and stages compute it."""

    rows: int
    words: int
    depth: int
    warps: int
    stages: int

    @property
    def deep(self) -> bool:
        """Whether it is one for 16-bit input: float32's take twice the shared memory and are half as deep."""
        return self.depth > 32

    def spills_on(self, chip: int) -> bool:
        """Whether it needs more registers than a thread has, on chips of this compute capability (80, 90, 100, …)."""
        return self in SPILLING.get(chip // 10, ())


TILES = (
    Tile(16, 128, 128, 4, 4),
    Tile(16, 256, 64, 4, 4),
    Tile(32, 128, 128, 4, 3),
    Tile(64, 128, 64, 4, 4),
    Tile(64, 256, 64, 8, 4),
    Tile(128, 128, 64, 4, 3),
    Tile(128, 128, 64, 8, 4),
    Tile(128, 256, 64, 8, 3),
    Tile(16, 128, 32, 4, 4),
    Tile(32, 128, 32, 4, 4),
    Tile(64, 64, 32, 4, 4),
    Tile(64, 128, 32, 4, 3),
    Tile(128, 128, 32, 8, 3),
)
"""Tiles that the autotuner may try, but for SPILLING's."""

_SPILLING = frozenset({Tile(128, 128, 64, 4, 3), Tile(128, 256, 64, 8, 3), Tile(64, 128, 32, 4, 3), Tile(128, 128, 32, 8, 3)})
SPILLING = {8: _SPILLING, 12: _SPILLING}
"""By generation of chips (compute capability 8.x: A100, L4, …; 12.x), the tiles that need more registers than a thread has.

Each warp holds its products in registers there; newer data-centre chips multiply whole tiles out of shared memory. Found by
benchmarks/triton_ahead.py, which looks at all of them.
"""


def configurations() -> list[triton.Config]:
    """The tiles as Triton takes them; the interpreter, which times nothing, gets one of its own."""
    tiles = (Tile(16, 64, 32, 4, 1),) if INTERPRETED else TILES
    return [
        triton.Config({"BLOCK_N": rows, "BLOCK_V": words, "BLOCK_H": depth}, num_warps=warps, num_stages=stages)
        for rows, words, depth, warps, stages in tiles
    ]


def tile_of(config: triton.Config) -> Tile:
    """The tile that a configuration stands for."""
    sizes = config.kwargs
    return Tile(sizes["BLOCK_N"], sizes["BLOCK_V"], sizes["BLOCK_H"], config.num_warps, config.num_stages)


def worthwhile(tile: Tile, *, deep: bool, rows: int, chip: int) -> bool:
    """Whether a tile is worth timing: deep for 16-bit input, no more than half of its rows empty, registers for all of it.

    `chip` is its compute capability: 80, 90, 100, …
    """
    return tile.deep == deep and min(rows, 64) <= tile.rows <= rows and not tile.spills_on(chip)


def _worthwhile(configs: list[triton.Config], named: Mapping[str, Any], **_: object) -> list[triton.Config]:
    """The configurations worth timing for a call with these arguments."""
    if INTERPRETED:
        return configs
    hidden, rows = named["hidden"], named["row_bucket"]
    major, minor = torch.cuda.get_device_capability(hidden.device)
    deep = hidden.element_size() < 4
    return [config for config in configs if worthwhile(tile_of(config), deep=deep, rows=rows, chip=10 * major + minor)]


@triton.autotune(
    configs=configurations(),
    key=["row_bucket", "V", "H"],
    prune_configs_by={"early_config_prune": _worthwhile},
    cache_results=True,
)
@triton.heuristics({"EVEN_H": lambda named: named["H"] % named["BLOCK_H"] == 0})
@triton.jit(do_not_specialize=["N", "V", "splits", "row_bucket"])
def _partial_logsumexp(
    hidden,
    weight,
    bias,
    part_max,
    part_sum,
    N,
    V,
    H,
    hidden_stride,
    weight_stride,
    splits,
    row_bucket,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
    EVEN_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """One tile of rows against one share of the vocabulary: per row the maximum and the sum of exp(logit - maximum)."""
    # Neighbouring programs differ in their rows: those running together read the same weights, once, into the L2 cache.
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    depth = tl.arange(0, BLOCK_H)
    # Rows and words past the end read row 0 instead: addresses stay valid without a mask in the inner loop.
    row_offsets = tl.where(rows < N, rows, 0).to(tl.int64) * hidden_stride
    hidden_tile = hidden + row_offsets[:, None] + depth[None, :]

    running_max = tl.full([BLOCK_N], float("-inf"), tl.float32)
    running_sum = tl.zeros([BLOCK_N], tl.float32)
    tiles = tl.cdiv(V, BLOCK_V)
    for tile in range(split * tiles // splits, (split + 1) * tiles // splits):
        words = tile * BLOCK_V + tl.arange(0, BLOCK_V)
        word_offsets = tl.where(words < V, words, 0).to(tl.int64) * weight_stride
        weight_tile = weight + word_offsets[None, :] + depth[:, None]
        logits = tl.zeros([BLOCK_N, BLOCK_V], tl.float32)
        for start in range(0, H, BLOCK_H):
            if EVEN_H:
                left = tl.load(hidden_tile + start)
                right = tl.load(weight_tile + start)
            else:
                left = tl.load(hidden_tile + start, mask=depth[None, :] + start < H, other=0.0)
                right = tl.load(weight_tile + start, mask=depth[:, None] + start < H, other=0.0)
            if WIDEN:
                left, right = left.to(tl.float32), right.to(tl.float32)
            logits = tl.dot(left, right, logits, input_precision=PRECISION)
        if HAS_BIAS:
            logits += tl.load(bias + words, mask=words < V, other=0.0).to(tl.float32)[None, :]
        logits = tl.where(words[None, :] < V, logits, float("-inf"))
        new_max = tl.maximum(running_max, tl.max(logits, axis=1))
        # A row that has seen nothing but -inf would compute -inf - -inf; against zero it stays at probability zero.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        running_sum = running_sum * tl.exp(running_max - shift) + tl.sum(tl.exp(logits - shift[:, None]), axis=1)
        running_max = new_max

    place = rows.to(tl.int64) * splits + split
    tl.store(part_max + place, running_max, mask=rows < N)
    tl.store(part_sum + place, running_sum, mask=rows < N)


@triton.jit(do_not_specialize=["V", "K", "splits"])
def _finish(
    hidden,
    weight,
    bias,
    candidates,
    part_max,
    part_sum,
    log_probs,
    logsumexp,
    V,
    K,
    H,
    hidden_stride,
    weight_stride,
    splits,
    HAS_BIAS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """One row: log-sum-exp from its partial pairs, then its candidates' logits minus it."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK_S)
    lane_max = tl.full([BLOCK_S], float("-inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK_S], tl.float32)
    for start in range(0, splits, BLOCK_S):
        place = row * splits + start + lane
        part = tl.load(part_max + place, mask=start + lane < splits, other=float("-inf"))
        new_max = tl.maximum(lane_max, part)
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        total = tl.load(part_sum + place, mask=start + lane < splits, other=0.0)
        lane_sum = lane_sum * tl.exp(lane_max - shift) + total * tl.exp(part - shift)
        lane_max = new_max
    row_max = tl.max(lane_max, axis=0)
    shift = tl.where(row_max == float("-inf"), 0.0, row_max)
    row_logsumexp = row_max + tl.log(tl.sum(lane_sum * tl.exp(lane_max - shift), axis=0))
    tl.store(logsumexp + row, row_logsumexp)

    depth = tl.arange(0, BLOCK_H)
    for first in range(0, K, BLOCK_K):
        places = first + tl.arange(0, BLOCK_K)
        ids = tl.load(candidates + row * K + places, mask=places < K, other=-1).to(tl.int64)
        known = (ids >= 0) & (ids < V)
        logits = tl.zeros([BLOCK_K], tl.float32)
        for start in range(0, H, BLOCK_H):
            inside = start + depth < H
            left = tl.load(hidden + row * hidden_stride + start + depth, mask=inside, other=0.0).to(tl.float32)
            offsets = ids[:, None] * weight_stride + start + depth[None, :]
            right = tl.load(weight + offsets, mask=known[:, None] & inside[None, :], other=0.0).to(tl.float32)
            logits += tl.sum(left[None, :] * right, axis=1)
        if HAS_BIAS:
            logits += tl.load(bias + ids, mask=known, other=0.0).to(tl.float32)
        answer = tl.where(known, logits - row_logsumexp, float("nan"))
        answer = tl.where(ids == -1, float("-inf"), answer)
        tl.store(log_probs + row * K + places, answer, mask=places < K)


def triton_log_probs(
    hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor | None = None, *, precision: str = "tf32x3"
) -> MaskedLogProbs:
    """`masked_log_probs` on a GPU (or in Triton's interpreter: TRITON_INTERPRET=1 before the first import of triton).

    Matrix products accumulate in float32. `precision` says how float32 input is multiplied: "tf32x3" (three tensor-core
    products, accurate to float32 rounding) or "ieee" (no tensor cores); "tf32" would be wrong by 1e-3. 16-bit input is
    exact in the products either way.

    Memory beyond inputs and outputs: the partial pairs, 8·N·splits bytes, where N·splits is at most about N plus
    64·PROGRAMS_PER_PROCESSOR times the number of multiprocessors.
    """
    check_problem(hidden, weight, candidates, bias)
    hidden = hidden if hidden.stride(1) == 1 else hidden.contiguous()
    weight = weight if weight.stride(1) == 1 else weight.contiguous()
    bias = bias.contiguous() if bias is not None else None
    candidates = candidates.contiguous()
    (rows, depth), vocabulary, places = hidden.shape, weight.shape[0], candidates.shape[1]
    log_probs = torch.empty((rows, places), dtype=torch.float32, device=hidden.device)
    logsumexp = torch.empty(rows, dtype=torch.float32, device=hidden.device)
    if rows == 0:
        return MaskedLogProbs(log_probs, logsumexp)

    splits = vocabulary_splits(rows, vocabulary, processors(hidden.device))
    part_max = torch.empty((rows, splits), dtype=torch.float32, device=hidden.device)
    part_sum = torch.empty_like(part_max)
    has_bias = bias is not None
    bias_or_any = bias if bias is not None else weight  # never read without HAS_BIAS, but a kernel needs a pointer
    _partial_logsumexp[lambda meta: (triton.cdiv(rows, meta["BLOCK_N"]), splits)](
        hidden,
        weight,
        bias_or_any,
        part_max,
        part_sum,
        rows,
        vocabulary,
        depth,
        hidden.stride(0),
        weight.stride(0),
        splits,
        row_bucket(rows),
        HAS_BIAS=has_bias,
        PRECISION=precision,
        WIDEN=INTERPRETED,  # the interpreter multiplies the bit patterns of bfloat16 as integers
        **COMPILER_OPTIONS,
    )
    _finish[(rows,)](
        hidden,
        weight,
        bias_or_any,
        candidates,
        part_max,
        part_sum,
        log_probs,
        logsumexp,
        vocabulary,
        places,
        depth,
        hidden.stride(0),
        weight.stride(0),
        splits,
        HAS_BIAS=has_bias,
        BLOCK_K=min(8, triton.next_power_of_2(max(places, 1))),
        **FINISH_BLOCKS,
        **COMPILER_OPTIONS,
    )
    return MaskedLogProbs(log_probs, logsumexp)


def vocabulary_splits(rows: int, vocabulary: int, processors: int) -> int:
    """Number of programs that share one tile of rows, so that the grid fills the chip several times over."""
    row_tiles: int = triton.cdiv(rows, ROWS_PER_TILE)
    wanted: int = triton.cdiv(PROGRAMS_PER_PROCESSOR * processors, row_tiles)
    most: int = triton.cdiv(vocabulary, VOCABULARY_PER_TILE)
    return max(1, min(wanted, most))


def row_bucket(rows: int) -> int:
    """The number of rows rounded up to a power of two within [16, 1024]: batches of similar size share one tuning."""
    power: int = triton.next_power_of_2(rows)
    return min(1024, max(16, power))


def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU."""
    return 2 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count
