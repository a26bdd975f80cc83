"""Ranks of models by a value, and how far resampling moves them. Pure."""

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Array

_LEVELS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of models among each other, the highest value first; each [models].

    Attributes:
        rank: from 1; equal values share the better rank.
        low, high: the central 95% of a model's ranks over the resamples; 0 without resamples.
        swaps: share of the resamples in which a model is not above the next lower one (ties count half); NaN for the last model
            and without resamples.
    """

    rank: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    swaps: Array


def ranks(values: Array, draws: Array | None) -> Ranks:
    """Ranks of `values` [models], all finite; `draws` [models, resamples] are their values in the same resamples.

    Of a model whose draws aren't finite nothing is known: it has no interval of ranks and doesn't move the others'.
    """
    count = len(values)
    order = np.argsort(-values, kind="stable")
    rank = 1 + np.searchsorted(np.sort(-values), -values, side="left")
    low, high, swaps = np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, np.nan)
    if draws is None or not (known := cast(NDArray[np.bool_], np.isfinite(draws).all(axis=1))).any():
        return Ranks(rank, low, high, swaps)
    above, below = order[:-1], order[1:]
    pairs = known[above] & known[below]
    above, below = above[pairs], below[pairs]
    swaps[above] = (draws[above] < draws[below]).mean(axis=1) + (draws[above] == draws[below]).mean(axis=1) / 2
    among = np.negative(draws[known].T, order="C")  # resample by resample, which is how they are sorted
    places = np.empty(among.shape, np.int32)
    np.put_along_axis(places, np.argsort(among, axis=1), np.arange(1, among.shape[1] + 1, dtype=np.int32)[None], 1)
    places = np.ascontiguousarray(places.T)
    resamples = draws.shape[1]
    ends = [min(resamples - 1, int(level * resamples)) for level in _LEVELS]
    places.partition(ends, axis=1)
    low[known], high[known] = places[:, ends[0]], places[:, ends[1]]
    return Ranks(rank, low, high, swaps)
