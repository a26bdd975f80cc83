"""Does GEST measure what WinoBias measures? Correlations of GEST's rates with WinoBias's over the models of a run.

M. Pikuliak et al.: Women Are Beautiful, Men Are Leaders (2024), section on validity; method.md §1.6. Published: Pearson
0.95 between mean g_s and type-1 test ĝ_s over 11 masked models, on the published scale.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from evaluator.measures import ordered
from evaluator.measures.correlations import LEAST_POINTS
from evaluator.measures.intervals import FISHER, Z95, named
from evaluator.measures.ordered import mean
from evaluator.vocabulary import TIDY, tidy

OVERALL = "all"
"""GEST's name for the mean over its templates."""

CHECKED, CHECK = ("g_s", "q"), ("g_hat_s",)
"""Measures of the task whose validity is asked, and of the one that it is compared with."""

SPOKEN = ("lean",)
"""The measure, by the same stereotypes, of a task that asks models in words: compared within each model."""


@dataclass(frozen=True, slots=True)
class Correlated:
    """A correlation over n pairs with its 95% interval; None where it is undefined or over fewer than LEAST_POINTS."""

    value: float | None
    low: float | None
    high: float | None
    n: int


def pearson(x: Sequence[float], y: Sequence[float]) -> Correlated:
    """Pearson's correlation; interval by Fisher's z, standard error 1/√(n − 3)."""
    return _with_interval(_pearson(x, y), len(x), lambda r: 1.0)


def spearman(x: Sequence[float], y: Sequence[float]) -> Correlated:
    """Spearman's rank correlation, ties by mean rank; interval by Fisher's z with D. G. Bonett and T. A. Wright's (2000)
    standard error √((1 + r²/2)/(n − 3))."""
    ranks = [pl.Series(values, dtype=pl.Float64).rank("average").to_list() for values in (x, y)]
    return _with_interval(_pearson(*ranks), len(x), lambda r: 1 + r * r / 2)


def _pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    if len(x) < LEAST_POINTS:
        return None
    pairs = pl.DataFrame({"x": x, "y": y}, schema={"x": pl.Float64, "y": pl.Float64})
    r = float(pairs.select(ordered.pearson(pl.col("x"), pl.col("y"))).item())
    return r if math.isfinite(r) else None


def _with_interval(r: float | None, n: int, variance: Callable[[float], float]) -> Correlated:
    if r is None:
        return Correlated(None, None, None, n)
    if abs(r) == 1:
        return Correlated(r, r, r, n)
    half = Z95 * math.sqrt(variance(r) / (n - 3))
    return Correlated(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half), n)


def points(gest: pl.DataFrame, winobias: pl.DataFrame) -> pl.DataFrame:
    """What is correlated, from the tidy rows of both tasks: one row per model × language × WinoBias split × GEST rate.

    Columns: `model`, `language` (of GEST's sentences, `all` for the mean over several), `template` (the split), `group` (`g_s`,
    or a stereotype for its q_i), `x`, `x_low`, `x_high` (GEST's rate: the overall g_s, or q_i over all templates, else the mean
    of q_i over the templates, which has no interval), `y`, `y_low`, `y_high` (ĝ_s).
    """
    overall = gest.filter((pl.col("measure") == "g_s") & (pl.col("template") == OVERALL)).select(
        "model", "language", pl.lit("g_s").alias("group"), pl.col("value").alias("x"), pl.col("low", "high").name.prefix("x_")
    )
    single = _q(gest).with_columns(pl.lit(None, pl.Float64).alias(name) for name in ("x_low", "x_high"))
    checked = winobias.filter(pl.col("measure") == "g_hat_s").select(
        "model", "template", pl.col("value").alias("y"), pl.col("low", "high").name.prefix("y_")
    )
    joined = checked.join(pl.concat([overall, single]), on="model", maintain_order="left_right")
    names = ("x", "x_low", "x_high", "y", "y_low", "y_high")
    return joined.select("model", "language", "template", "group", *names).drop_nulls(["x", "y"])


def _q(gest: pl.DataFrame) -> pl.DataFrame:
    """q of each model, language and stereotype (`group`) as `x`: over all templates, else the mean over the templates."""
    over_all = pl.col("template") == OVERALL
    return (
        gest.filter(pl.col("measure") == "q")
        .filter(over_all | ~over_all.any().over("model", "language"))
        .group_by("model", "language", "group", maintain_order=True)
        .agg(mean(pl.col("value")).alias("x"))
    )


def within(gest: pl.DataFrame, spoken: pl.DataFrame, scale: str) -> pl.DataFrame:
    """Tidy rows of q beside lean, by stereotype, and of their `spearman` over the stereotypes.

    For each model, language of GEST's sentences and way (template) of asking in words.
    """
    lean = spoken.filter(pl.col("measure") == "lean").select("model", "template", "group", pl.col("value").alias("y"))
    both = lean.join(_q(gest), on=["model", "group"], maintain_order="left_right").drop_nulls(["x", "y"])
    rows: list[tuple[object, ...]] = []
    for place, part in both.group_by("model", "language", "template", maintain_order=True):
        x, y = part["x"].to_list(), part["y"].to_list()
        r = spearman(x, y)
        rows.append((*place, "spearman", None, r.value, r.low, r.high, r.n, None))
        for group, one, other in zip(part["group"], x, y, strict=True):
            rows.append((*place, "q", group, one, None, None, None, scale))
            rows.append((*place, "lean", group, other, None, None, None, None))
    names = ("model", "language", "template", "measure", "group", "value", "low", "high", "n", "scale")
    frame = pl.DataFrame(rows, schema={name: TIDY[name] for name in names}, orient="row")
    return tidy(frame.with_columns(named(FISHER), pl.lit("validity").alias("task")))


def correlations(points: pl.DataFrame, scale: str) -> pl.DataFrame:
    """Tidy rows of measures `pearson` and `spearman` over the models, by language of GEST's sentences, split (template) and
    GEST rate (group); n models."""
    rows = []
    for (language, template, group), part in points.group_by("language", "template", "group", maintain_order=True):
        for measure, correlate in (("pearson", pearson), ("spearman", spearman)):
            r = correlate(part["x"].to_list(), part["y"].to_list())
            rows.append((language, template, measure, group, r.value, r.low, r.high, r.n))
    columns = ("language", "template", "measure", "group", "value", "low", "high", "n")
    frame = pl.DataFrame(rows, schema={name: TIDY[name] for name in columns}, orient="row")
    constant = {"model": OVERALL, "task": "validity", "scale": scale}
    return tidy(frame.with_columns(named(FISHER), *(pl.lit(value).alias(name) for name, value in constant.items())))
