"""GEST for machine translation (method.md §1.4): masculine rates p_i, and f_s, f_m over all stereotypes.

A score is 1 where the translation makes the speaker a man, 0 where it makes her a woman, null where it says neither. Scores
come in as columns SCORES with `conflict`, `polarity` (`female`, `male` or null) and `family`. Rows that come out, for each
system and language:

    p           share masculine of the samples with a gender; group = the stereotype
    p_family    the same of the samples about family
    f_s, f_m    p_m - p_f and (p_m + p_f)/2, where p_f and p_m are means of p over the female and the male stereotypes
    yield       number of samples whose translation has a gender; n = all samples
    conflicts   number of samples whose rules contradicted each other; n = all samples
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Array
from evaluator.measures.estimate import grouped_by
from evaluator.measures.sampled import Label, Output, Sampled, Units
from evaluator.vocabulary import tidy

MEASURES = ("p", "p_family", "f_s", "f_m", "yield", "conflicts")

_CELL = ["model", "task", "language"]


def with_summaries(rates: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The rates (columns TIDY) of all systems with their yields and conflicts."""
    counts = scores.group_by(_CELL, maintain_order=True).agg(
        pl.col("score").count().cast(pl.Float64).alias("yield"),
        pl.col("conflict").sum().cast(pl.Float64).alias("conflicts"),
        pl.len().cast(pl.Int64).alias("n"),
    )
    counted = counts.unpivot(["yield", "conflicts"], index=[*_CELL, "n"], variable_name="measure")
    return grouped_by([rates, tidy(counted)], _CELL)


def sampled(scores: pl.DataFrame) -> list[Sampled]:
    """One system's translations into one language as sampling units: p, p_family, then f_s and f_m."""
    groups = _groups(scores)
    sides = _sides(scores, groups)
    strata = tuple(_units(group, scores.filter(pl.col("group") == group)) for group in groups)
    known = [int(units.values[:, 1].sum()) for units in strata]
    shares = [Output(Label(None, "p", group), n, "centred share") for group, n in zip(groups, known, strict=True)]
    topical = _units("family", scores.filter(pl.col("family")))
    family = Output(Label(None, "p_family"), int(topical.values[:, 1].sum()), "centred share")
    made = [
        Sampled(tuple(shares), strata, lambda sums: sums[..., 0] / sums[..., 1]),
        Sampled((family,), (topical,), lambda sums: sums[..., 0, :1] / sums[..., 0, 1:]),
    ]
    rated = [np.array(known)[side] for side in sides]
    if all(side.size and side.all() for side in rated):
        wanted = tuple(Output(Label(None, measure), sum(known)) for measure in ("f_s", "f_m"))
        made.append(Sampled(wanted, strata, lambda sums: _f(sums, *sides)))
    return made


def _groups(frame: pl.DataFrame) -> list[str]:
    return sorted(frame["group"].unique(), key=lambda g: (len(g), g))


def _sides(frame: pl.DataFrame, groups: list[str]) -> list[NDArray[np.bool_]]:
    """Which of the groups are female, and which are male ones."""
    polarity = dict(frame.select("group", "polarity").unique().iter_rows())
    return [np.array([polarity[g] == side for g in groups]) for side in ("female", "male")]


def _units(name: str, frame: pl.DataFrame) -> Units:
    """Samples as units: whether masculine, whether known."""
    frame = frame.sort("sample")
    score = frame["score"].cast(pl.Float64)
    known = score.is_not_null().cast(pl.Float64)
    return Units(name, tuple(frame["sample"]), np.column_stack([score.fill_null(0.0).to_numpy(), known.to_numpy()]))


def _f(sums: Array, female: NDArray[np.bool_], male: NDArray[np.bool_]) -> Array:
    """f_s and f_m from sums […, stereotypes, (masculine, known)]."""
    p = sums[..., 0] / sums[..., 1]
    p_f, p_m = p[..., female].mean(axis=-1), p[..., male].mean(axis=-1)
    return np.stack([p_m - p_f, (p_m + p_f) / 2], axis=-1)
