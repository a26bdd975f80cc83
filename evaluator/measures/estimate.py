"""Rows of a report from sampling units: value, 95% interval and n of every output.

Comparisons and `evaluator samples` read the same units, so each measure is defined once.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from evaluator.measures.bootstrap import Array, Bootstrap, Stratum
from evaluator.measures.intervals import BOOTSTRAPS, share_bounds
from evaluator.measures.sampled import Label, Sampled, logs_where
from evaluator.vocabulary import TIDY, Interval, MeasureOptions, tidy

SHIFTED = " shifted by its bias and clipped to 0-100"
"""Ends the name of the kind of intervals that are shifted."""

KEYS = ("model", "task", "language")
_COLUMNS = ("template", "measure", "group", "scale", "value", "low", "high", "n", "interval")

_Row = tuple[Label, float, float, float, int, str]


def estimates(
    scores: pl.DataFrame,
    options: MeasureOptions,
    sampled: Callable[[pl.DataFrame, MeasureOptions], Iterable[Sampled]],
    keys: Sequence[str] = KEYS,
) -> pl.DataFrame:
    """Tidy rows (columns TIDY) of all models: `sampled` makes the sampling units of the scores with equal `keys`.

    Without the language among the keys, the outputs' labels have it. Numbers that aren't finite are null.
    """
    intervals = _Intervals(options)
    rows = [
        (*key, *_label_columns(label, "language" not in keys), value, low, high, n, kind)
        for key, part in scores.group_by(keys, maintain_order=True)
        for block in sampled(part, options)
        for label, value, low, high, n, kind in intervals.rows(block)
    ]
    names = (*keys, *(() if "language" in keys else ("language",)), *_COLUMNS)
    return tidy(pl.DataFrame(rows, schema={name: TIDY[name] for name in names}, orient="row"))


def grouped_by(frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """The rows of all frames, those with equal keys beside each other, in the order of their first appearance."""
    rows = pl.concat(frames)
    return pl.concat(rows.partition_by(keys, maintain_order=True)) if rows.height else rows


def _label_columns(label: Label, with_language: bool) -> tuple[str | None, ...]:
    language = (label.language,) if with_language else ()
    return (*language, label.template, label.measure, label.group, label.scale)


class _Intervals:
    """Estimates of one report: one bootstrap, and so one set of draws, for all models."""

    def __init__(self, options: MeasureOptions) -> None:
        self._interval: Interval = options.interval
        self._bootstrap = Bootstrap.of(options)
        # BCa's own correction breaks down at a bias that is as large as the spread: a percentile interval is shifted.
        bca = options.interval == "bca"
        self._for_shifted = Bootstrap.of(replace(options, interval="percentile")) if bca else self._bootstrap
        self._shifted: Interval = "percentile" if bca else options.interval

    def rows(self, sampled: Sampled) -> Iterator[_Row]:
        """Label, value, low, high, n and kind of interval of every output."""
        sampled = (sampled.as_published if self._interval == "published" else None) or sampled
        if not sampled.outputs:
            return
        logs = np.array([output.interval == "log bootstrap" for output in sampled.outputs])
        strata = [Stratum(units.stratum, units.values) for units in sampled.strata]

        def statistic(sums: Array) -> Array:
            return logs_where(logs, sampled.statistic(sums))

        found = self._bootstrap.estimate(strata, statistic)
        biased = found
        if self._for_shifted is not self._bootstrap and any(output.interval == "shifted" for output in sampled.outputs):
            biased = self._for_shifted.estimate(strata, statistic)
        shift = biased.value - biased.mean
        with np.errstate(over="ignore"):
            low, high = (np.where(logs, np.exp(side), side) for side in (found.low, found.high))
        for i, (output, value) in enumerate(zip(sampled.outputs, sampled.values, strict=True)):
            row = (output.label, float(value), float(low[i]), float(high[i]), output.n, BOOTSTRAPS[self._interval])
            if output.interval in ("share", "centred share"):
                row = self._share(output.label, value / output.whole, output.n, output.whole, output.interval)
            elif output.interval == "shifted":
                bounds = np.clip([biased.low[i] + shift[i], biased.high[i] + shift[i]], 0, output.whole)
                kind = BOOTSTRAPS[self._shifted] + SHIFTED
                row = (output.label, float(value), float(bounds[0]), float(bounds[1]), output.n, kind)
            yield row

    def _share(self, label: Label, value: float, n: int, whole: float, kind: str) -> _Row:
        if not n and not (kind == "centred share" and self._interval == "published"):
            return label, math.nan, math.nan, math.nan, 0, ""
        hits = value * n if n else 0.0
        near = round(2 * hits) / 2  # halves are ties: what division has added to them is rounding
        bounds, name = share_bounds(near if abs(hits - near) < 1e-6 else hits, n, self._interval)
        centre = bounds.centre if kind == "centred share" and self._interval == "published" else value
        return label, whole * centre, whole * bounds.low, whole * bounds.high, n, name
