"""Means, shares and correlations over samples as sampling units: for measures that consist of such statistics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import clustered
from evaluator.measures.correlations import LEAST_POINTS
from evaluator.measures.ordered import mean
from evaluator.measures.sampled import IntervalKind, Label, Output, Sampled, Units
from evaluator.measures.scales import LN10
from evaluator.vocabulary import MeasureOptions

UNITS = {"ratio": "natural log", "published": "log10", "log10": "log10"}
"""Units of mean scores by MeasureOptions.scale."""

CELL = ("model", "task", "language", "template")

_ADDENDS = 6


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a column where it isn't null; scaled to the units of the report."""

    measure: str
    group: str
    column: str

    def addends(self) -> list[pl.Expr]:
        """Per sample: value, 1."""
        x = pl.col(self.column)
        return [x, x.is_not_null()]


@dataclass(frozen=True, slots=True)
class Share:
    """The share of samples for which `hit` holds among those for which it isn't null.

    `positive` shares are those for which the published tables print the Agresti–Coull centre.
    """

    measure: str
    group: str
    hit: pl.Expr
    positive: bool = False

    def addends(self) -> list[pl.Expr]:
        """Per sample: hit or not, 1."""
        return [self.hit, self.hit.is_not_null()]


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's correlation of two columns over the samples that have both."""

    measure: str
    group: str
    x: str
    y: str

    def addends(self) -> list[pl.Expr]:
        """Per sample: 1, x, y, x², y², xy, of deviations from the mean (which changes nothing but rounding)."""
        both = pl.col(self.x).is_not_null() & pl.col(self.y).is_not_null()
        x, y = (pl.when(both).then(pl.col(c) - mean(pl.col(c).filter(both)).first()) for c in (self.x, self.y))
        return [both, x, y, x * x, y * y, x * y]


Statistic = Mean | Share | Correlation


def cells(scores: pl.DataFrame) -> Iterator[tuple[list[pl.Expr], pl.DataFrame]]:
    """The scores of each model, language and template by sample, and their keys (CELL) as columns for rows made of them."""
    for key, part in scores.group_by(CELL, maintain_order=True):
        columns = [pl.lit(value, pl.String).alias(name) for name, value in zip(CELL, key, strict=True)]
        yield columns, part.sort("sample", maintain_order=True)


def sampling_units(
    frame: pl.DataFrame,
    statistics: Sequence[Statistic],
    stratum: str,
    template: str | None,
    options: MeasureOptions,
    cluster: str | None = None,
) -> Sampled:
    """The statistics of one model's samples at a template; `cluster` names the column whose equal values are one unit.

    Without one samples are independent, and shares get Wilson's interval; published intervals ignore clusters.
    """
    values, factors = _addends(frame, statistics), _factors(statistics, options)
    counts = values.sum(axis=0).reshape(len(statistics), _ADDENDS)
    enough = np.ones(len(statistics))
    outputs = []
    for i, statistic in enumerate(statistics):
        label = Label(
            template, statistic.measure, statistic.group, UNITS[options.scale] if isinstance(statistic, Mean) else None
        )
        n = int(counts[i, 0 if isinstance(statistic, Correlation) else 1])
        kind: IntervalKind = "bootstrap"
        if isinstance(statistic, Share):
            kind = "centred share" if statistic.positive and n else "share"
        if isinstance(statistic, Correlation) and n < LEAST_POINTS:
            enough[i] = np.nan
        outputs.append(Output(label, n, kind))
    by_sample = Sampled(
        tuple(outputs),
        (Units(stratum, tuple(frame["sample"]), values),),
        lambda sums: _evaluate(statistics, sums) * factors * enough,
    )
    if cluster is None:
        return by_sample
    names = tuple(frame[cluster].unique(maintain_order=True))
    return replace(
        by_sample,
        outputs=tuple(replace(output, interval="bootstrap") for output in outputs),
        strata=(Units(stratum, names, clustered(values, frame[cluster].to_list())),),
        unit=cluster,
        as_published=by_sample,
    )


def _addends(frame: pl.DataFrame, statistics: Sequence[Statistic]) -> NDArray[np.float64]:
    """[samples, statistics × _ADDENDS]"""
    exprs = [e for statistic in statistics for e in _padded(statistic)]
    return frame.select(e.alias(str(i)) for i, e in enumerate(exprs)).to_numpy()


def _factors(statistics: Sequence[Statistic], options: MeasureOptions) -> NDArray[np.float64]:
    """What brings each statistic to the units of the report."""
    unit = 1.0 if options.scale == "ratio" else 1 / LN10
    return np.array([unit if isinstance(statistic, Mean) else 1.0 for statistic in statistics])


def _padded(statistic: Statistic) -> list[pl.Expr]:
    """The statistic's addends as `_ADDENDS` columns without nulls."""
    filled = [e.cast(pl.Float64).fill_null(0.0) for e in statistic.addends()]
    return filled + [pl.lit(0.0)] * (_ADDENDS - len(filled))


def _evaluate(statistics: Sequence[Statistic], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values […, statistics] from sums […, strata, statistics × _ADDENDS]."""
    parts = sums.sum(axis=-2).reshape(*sums.shape[:-2], len(statistics), _ADDENDS)
    pearson = np.array([isinstance(s, Correlation) for s in statistics])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = parts[..., 0] / parts[..., 1]
        n, x, y, xx, yy, xy = np.moveaxis(parts, -1, 0)
        covariance = xy - x * y / n
        spread = np.sqrt((xx - x * x / n) * (yy - y * y / n))
        # A column that doesn't vary leaves rounding behind where there should be a zero.
        flat = spread <= 1e-12 * np.sqrt(np.abs(xx * yy))
        rho = np.where(flat, np.nan, np.clip(covariance / np.where(flat, 1.0, spread), -1.0, 1.0))
    return np.where(pearson, rho, ratio)
