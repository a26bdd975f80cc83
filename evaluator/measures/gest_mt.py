"""GEST for machine translation (method.md §1.4): masculine rates p_i, and f_s, f_m over all stereotypes.

A score is 1 where the translation makes the speaker a man, 0 where it makes her a woman, null where it says neither.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Array, Bootstrap, Stratum
from evaluator.measures.intervals import BOOTSTRAPS, share_bounds
from evaluator.measures.sampled import Label, Sampled, units
from evaluator.vocabulary import TIDY, MeasureOptions, tidy

MEASURES = ("p", "p_family", "f_s", "f_m", "yield", "conflicts")

_CELL = ["model", "task", "language"]
_COLUMNS = ("measure", "group", "value", "low", "high", "n", "interval")
_Row = tuple[str, str | None, float | None, float | None, float | None, int, str | None]


def mt_measures(scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
    """Tidy rows of every system and language.

    Measures: `p` (group: stereotype) and `p_family`, shares masculine of the samples with a gender: k/n with Wilson's 95%
    interval, or with interval `published` Agresti and Coull's around its centre; `f_s` = p_m - p_f and `f_m` =
    (p_m + p_f)/2, where p_f and p_m are means of p over the female and the male stereotypes, with bootstrap intervals that
    resample samples within stereotypes; `yield` and `conflicts`, numbers of samples whose translation has a gender, and
    whose rules contradicted each other (n: all samples).

    `scores` has the columns SCORES and `conflict`, `polarity` (`female`, `male` or null), `family`.
    """
    bootstrap = Bootstrap.of(options)
    rows = [
        (*cell, *row)
        for cell, frame in scores.group_by(_CELL, maintain_order=True)
        for row in _cell_rows(frame, options, bootstrap)
    ]
    return tidy(pl.DataFrame(rows, schema={name: TIDY[name] for name in (*_CELL, *_COLUMNS)}, orient="row"))


def _cell_rows(frame: pl.DataFrame, options: MeasureOptions, bootstrap: Bootstrap) -> Iterator[_Row]:
    known = frame.filter(pl.col("score").is_not_null())
    groups = _groups(frame)
    for group in groups:
        yield ("p", group, *_share(known.filter(pl.col("group") == group), options))
    yield ("p_family", None, *_share(known.filter(pl.col("family")), options))
    sides = _sides(frame, groups)
    if all(side.any() for side in sides):
        estimate = bootstrap.estimate(
            [_stratum(group, frame.filter(pl.col("group") == group)) for group in groups],
            lambda sums: _f(sums, *sides),
        )
        for index, name in enumerate(("f_s", "f_m")):
            value, low, high = (_number(numbers[index]) for numbers in (estimate.value, estimate.low, estimate.high))
            if value is not None:
                kind = None if low is None else BOOTSTRAPS[options.interval]
                yield (name, None, value, low, high, known.height, kind)
    yield ("yield", None, float(known.height), None, None, frame.height, None)
    yield ("conflicts", None, float(frame["conflict"].sum()), None, None, frame.height, None)


def sampled(scores: pl.DataFrame) -> list[Sampled]:
    """One system's translations into one language as sampling units: p, f_s and f_m, then p_family; shares are k/n."""
    groups = _groups(scores)
    sides = _sides(scores, groups)
    parts = {group: scores.filter(pl.col("group") == group).sort("sample") for group in groups}
    labels = [Label(None, "p", group) for group in groups]
    wanted = all(side.any() for side in sides)

    def rates(sums: Array) -> Array:
        p = sums[..., 0] / sums[..., 1]
        return np.concatenate([p, _f(sums, *sides)], axis=-1) if wanted else p

    labels += [Label(None, "f_s"), Label(None, "f_m")] if wanted else []
    strata = tuple(units(_stratum(group, part), part["sample"].to_list()) for group, part in parts.items())
    made = [Sampled(tuple(labels), strata, rates, np.zeros(len(labels), dtype=bool))]
    topical = scores.filter(pl.col("family")).sort("sample")
    if topical.height:
        family = units(_stratum("family", topical), topical["sample"].to_list())
        label = Label(None, "p_family")
        made.append(Sampled((label,), (family,), lambda sums: sums[..., 0, :1] / sums[..., 0, 1:], np.zeros(1, dtype=bool)))
    return made


def _groups(frame: pl.DataFrame) -> list[str]:
    return sorted(frame["group"].unique(), key=lambda g: (len(g), g))


def _sides(frame: pl.DataFrame, groups: list[str]) -> list[NDArray[np.bool_]]:
    """Which of the groups are female, and which are male ones."""
    polarity = dict(frame.select("group", "polarity").unique().iter_rows())
    return [np.array([polarity[g] == side for g in groups]) for side in ("female", "male")]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _share(known: pl.DataFrame, options: MeasureOptions) -> tuple[float | None, float | None, float | None, int, str | None]:
    """Value, interval, n and the interval's kind; without any translation of known gender no value and no interval."""
    n, masculine = known.height, int(known["score"].sum())
    bounds, kind = share_bounds(masculine, n, options.interval)
    if options.interval == "published":
        return bounds.centre, bounds.low, bounds.high, n, kind
    return (masculine / n, bounds.low, bounds.high, n, kind) if n else (None, None, None, 0, None)


def _stratum(group: str, frame: pl.DataFrame) -> Stratum:
    """A stereotype's samples as units: whether masculine, whether known."""
    score = frame.sort("sample")["score"]
    return Stratum(group, np.column_stack([score.fill_null(0.0).to_numpy(), score.is_not_null().cast(pl.Float64).to_numpy()]))


def _f(sums: Array, female: NDArray[np.bool_], male: NDArray[np.bool_]) -> Array:
    """f_s and f_m from sums […, stereotypes, (masculine, known)]."""
    p = sums[..., 0] / sums[..., 1]
    p_f, p_m = p[..., female].mean(axis=-1), p[..., male].mean(axis=-1)
    return np.stack([p_m - p_f, (p_m + p_f) / 2], axis=-1)
