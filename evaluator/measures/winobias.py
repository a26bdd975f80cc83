"""WinoBias as a check of validity: q̂_m, q̂_f and ĝ_s over male and female occupations (method.md §1.6).

M. Pikuliak et al.: Women Are Beautiful, Men Are Leaders (2024).
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Bootstrap, Stratum, means, with_counts
from evaluator.measures.intervals import BOOTSTRAPS, named
from evaluator.measures.scales import array_on_scale
from evaluator.tasks.base import TIDY, MeasureOptions, tidy

MEASURES = ("q_hat_m", "q_hat_f", "g_hat_s")
"""Rates over male occupations, over female ones, and their ratio."""


def rates(scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
    """q̂_m, q̂_f and ĝ_s = q̂_m/q̂_f of every model and template (split), with intervals that resample within occupations.

    Scales as for GEST (method.md §0): `ratio` exp of the mean natural log, `published` exp of the mean log10, `log10` the
    mean log10 itself, whose ĝ_s is a difference.
    """
    bootstrap = Bootstrap.of(options)

    def rate(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """From sums […, (male, female), (value, count)] to the three measures."""
        log_m, log_f = np.moveaxis(means(sums)[..., 0], -1, 0)
        return array_on_scale(np.stack([log_m, log_f, log_m - log_f], axis=-1), options.scale)

    frames = []
    for key, rows in scores.group_by("model", "task", "language", "template", maintain_order=True):
        part = rows.sort("sample", maintain_order=True)
        values = [part.filter(pl.col("group") == gender)["score"].to_numpy() for gender in ("male", "female")]
        strata = [
            Stratum(f"winobias/{gender}", with_counts(column[:, None]))
            for gender, column in zip(("male", "female"), values, strict=True)
        ]
        found = bootstrap.estimate(strata, rate)
        counts = [len(values[0]), len(values[1]), part.height]
        frames.append(
            pl.DataFrame(
                {
                    "measure": MEASURES,
                    "group": "all",
                    "value": found.value,
                    "low": found.low,
                    "high": found.high,
                    "n": counts,
                    "scale": options.scale,
                },
                nan_to_null=True,
            ).with_columns(
                pl.lit(value, pl.String).alias(name)
                for name, value in zip(("model", "task", "language", "template"), key, strict=True)
            )
        )
    if not frames:
        return pl.DataFrame(schema=TIDY)
    return tidy(pl.concat(frames).with_columns(named(BOOTSTRAPS[options.interval])))
