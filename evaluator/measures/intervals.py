"""Agresti–Coull intervals of shares, as numbers and as Polars expressions.

A. Agresti, B. A. Coull: Approximate is better than "exact" for interval estimation of binomial proportions (1998).
"""

from statistics import NormalDist
from typing import NamedTuple

import polars as pl

Z95 = NormalDist().inv_cdf(0.975)
"""Standard normal quantile of a two-sided 95% interval, 1.95996…"""


class AgrestiCoull(NamedTuple):
    """An interval of a share; `low` may lie below 0 and `high` above 1, as in the published tables."""

    low: float
    centre: float
    high: float


def agresti_coull(successes: float, trials: float, z: float = Z95) -> AgrestiCoull:
    """The interval p̃ ± z·sqrt(p̃(1−p̃)/ñ) with ñ = n + z² and centre p̃ = (k + z²/2)/ñ, unclipped.

    Without a single trial it is exactly 0 … 1 around 0.5: nothing is known of the share.

    Raises ValueError unless 0 ≤ successes ≤ trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    widened = trials + z * z
    centre = (successes + z * z / 2) / widened
    half = z * (centre * (1 - centre) / widened) ** 0.5
    return AgrestiCoull(centre - half, centre, centre + half)


def agresti_coull_columns(successes: pl.Expr, trials: pl.Expr, z: float = Z95) -> list[pl.Expr]:
    """`agresti_coull` as expressions named `low`, `centre` and `high`; null where a count is null."""
    widened = trials + z * z
    centre = (successes + z * z / 2) / widened
    half = z * (centre * (1 - centre) / widened).sqrt()
    return [(centre - half).alias("low"), centre.alias("centre"), (centre + half).alias("high")]
