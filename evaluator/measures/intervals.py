"""Intervals of shares, and the names of all kinds of intervals, which every row with an interval carries.

A. Agresti, B. A. Coull: Approximate is better than "exact" for interval estimation of binomial proportions (1998); E. B.
Wilson: Probable inference, the law of succession, and statistical inference (1927). Both have the same centre; Wilson's is
the narrower one and never leaves 0 … 1, Agresti and Coull's is what the papers print.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple

import polars as pl

from evaluator.vocabulary import Interval

Z95 = NormalDist().inv_cdf(0.975)
"""Standard normal quantile of a two-sided 95% interval, 1.95996…"""

BOOTSTRAPS: Mapping[Interval, str] = {
    "percentile": "percentile bootstrap",
    "bca": "BCa bootstrap",
    "published": "normal fit of the bootstrap",
}
"""Names of the bootstrap intervals. The first two lie within a measure's range, the third may leave it."""

WILSON = "Wilson"
AGRESTI_COULL = "Agresti-Coull"
FISHER = "Fisher's z"


class Bounds(NamedTuple):
    """An interval of a share and its centre."""

    low: float
    centre: float
    high: float


def agresti_coull(successes: float, trials: float, z: float = Z95) -> Bounds:
    """The interval p̃ ± z·sqrt(p̃(1−p̃)/ñ) with ñ = n + z² and centre p̃ = (k + z²/2)/ñ.

    Unclipped as in the published tables: `low` may lie below 0 and `high` above 1. Without a single trial it is 0 … 1
    around 0.5: nothing is known of the share.

    Raises ValueError unless 0 ≤ successes ≤ trials.
    """
    centre, widened = _centre(successes, trials, z)
    half = z * (centre * (1 - centre) / widened) ** 0.5
    return Bounds(centre - half, centre, centre + half)


def wilson(successes: float, trials: float, z: float = Z95) -> Bounds:
    """The interval p̃ ± (z/ñ)·sqrt(k(n−k)/n + z²/4), ñ and p̃ as in `agresti_coull`: within 0 … 1, and k/n within it.

    Raises ValueError unless 0 ≤ successes ≤ trials.
    """
    centre, widened = _centre(successes, trials, z)
    spread = successes * (trials - successes) / trials if trials else 0.0
    half = z / widened * (spread + z * z / 4) ** 0.5
    # 0 and 1 are reached exactly by shares of 0 and 1, which rounding would miss.
    return Bounds(centre - half if successes else 0.0, centre, centre + half if successes < trials else 1.0)


def _centre(successes: float, trials: float, z: float) -> tuple[float, float]:
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    widened = trials + z * z
    return (successes + z * z / 2) / widened, widened


def share_bounds(successes: float, trials: float, interval: Interval) -> tuple[Bounds, str]:
    """The interval of a share that a report's choice asks for, with its name: Wilson's, or as published."""
    if interval == "published":
        return agresti_coull(successes, trials), AGRESTI_COULL
    return wilson(successes, trials), WILSON


def named(kind: str) -> pl.Expr:
    """Column `interval`: the kind's name where a row has an interval (columns `low`, `high`), else null."""
    return pl.when(pl.col("low").is_not_null()).then(pl.lit(kind)).alias("interval")
