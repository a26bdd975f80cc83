"""WinoBias as a check of validity: q̂_m, q̂_f and ĝ_s over male and female occupations (method.md §1.6).

M. Pikuliak et al.: Women Are Beautiful, Men Are Leaders (2024).
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Bootstrap, Stratum, means, with_counts
from evaluator.measures.intervals import BOOTSTRAPS, named
from evaluator.measures.sampled import Label, Sampled, units
from evaluator.measures.scales import array_on_scale
from evaluator.vocabulary import TIDY, MeasureOptions, Scale, tidy

MEASURES = ("q_hat_m", "q_hat_f", "g_hat_s")
"""Rates over male occupations, over female ones, and their ratio."""


def rates(scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
    """q̂_m, q̂_f and ĝ_s = q̂_m/q̂_f of every model and template (split), with intervals that resample within occupations.

    Scales as for GEST (method.md §0): `ratio` exp of the mean natural log, `published` exp of the mean log10, `log10` the
    mean log10 itself, whose ĝ_s is a difference.
    """
    bootstrap = Bootstrap.of(options)

    frames = []
    for key, rows in scores.group_by("model", "task", "language", "template", maintain_order=True):
        part = rows.sort("sample", maintain_order=True)
        strata = [stratum for stratum, _ in _strata(part)]
        found = bootstrap.estimate(strata, lambda sums: _rates(sums, options.scale))
        counts = [len(strata[0].values), len(strata[1].values), part.height]
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


def sampled(scores: pl.DataFrame, scale: Scale) -> list[Sampled]:
    """One model's scores as sampling units, template by template."""
    made = []
    for (template,), rows in scores.group_by("template", maintain_order=True):
        strata = tuple(units(stratum, names) for stratum, names in _strata(rows.sort("sample", maintain_order=True)))
        labels = tuple(Label(str(template), measure, "all", scale) for measure in MEASURES)
        ratio = np.full(len(MEASURES), scale != "log10")
        made.append(Sampled(labels, strata, lambda sums: _rates(sums, scale), ratio))
    return made


def _strata(part: pl.DataFrame) -> Iterator[tuple[Stratum, list[int]]]:
    """The male and the female occupations, with their samples' numbers."""
    for gender in ("male", "female"):
        rows = part.filter(pl.col("group") == gender)
        yield Stratum(f"winobias/{gender}", with_counts(rows["score"].to_numpy()[:, None])), rows["sample"].to_list()


def _rates(sums: NDArray[np.float64], scale: Scale) -> NDArray[np.float64]:
    """From sums […, (male, female), (value, count)] to the three measures."""
    log_m, log_f = np.moveaxis(means(sums)[..., 0], -1, 0)
    return array_on_scale(np.stack([log_m, log_f, log_m - log_f], axis=-1), scale)
