"""WinoBias as a check of validity: q̂_m, q̂_f and ĝ_s over male and female occupations (method.md §1.6).

M. Pikuliak et al.: Women Are Beautiful, Men Are Leaders (2024).
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import means, with_counts
from evaluator.measures.sampled import Label, Output, Sampled, Units
from evaluator.measures.scales import on_scale
from evaluator.vocabulary import Scale

MEASURES = ("q_hat_m", "q_hat_f", "g_hat_s")
"""Rates over male occupations, over female ones, and their ratio."""


def sampled(scores: pl.DataFrame, scale: Scale) -> list[Sampled]:
    """One model's scores as sampling units, split (template) by split: q̂_m, q̂_f and ĝ_s = q̂_m/q̂_f.

    Scales as for GEST (method.md §0): `ratio` exp of the mean natural log, `published` exp of the mean log10, `log10` the
    mean log10 itself, whose ĝ_s is a difference. Sentences are resampled within the occupations of one gender.
    """
    made = []
    for (template,), rows in scores.group_by("template", maintain_order=True):
        strata = tuple(_strata(rows.sort("sample", maintain_order=True)))
        male, female = (len(units.ids) for units in strata)
        outputs = tuple(
            Output(Label(str(template), measure, "all", scale), n, ratio=scale != "log10")
            for measure, n in zip(MEASURES, (male, female, rows.height), strict=True)
        )
        made.append(Sampled(outputs, strata, lambda sums: _rates(sums, scale)))
    return made


def _strata(part: pl.DataFrame) -> Iterator[Units]:
    """The male and the female occupations, with their samples' numbers."""
    for gender in ("male", "female"):
        rows = part.filter(pl.col("group") == gender)
        yield Units(f"winobias/{gender}", tuple(rows["sample"]), with_counts(rows["score"].to_numpy()[:, None]))


def _rates(sums: NDArray[np.float64], scale: Scale) -> NDArray[np.float64]:
    """From sums […, (male, female), (value, count)] to the three measures."""
    log_m, log_f = np.moveaxis(means(sums)[..., 0], -1, 0)
    return on_scale(np.stack([log_m, log_f, log_m - log_f], axis=-1), scale)
