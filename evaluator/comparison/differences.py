"""Rows of a comparison: a model against a baseline, measure by measure, on the samples that both were scored on. Pure."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from evaluator.measures.bootstrap import Bootstrap
from evaluator.measures.intervals import BOOTSTRAPS
from evaluator.measures.paired import PERMUTATIONS, Paired, compare, holm, pair
from evaluator.measures.sampled import Label, Sampled
from evaluator.tasks.base import Task
from evaluator.vocabulary import MeasureOptions

COMPARED: dict[str, pl.DataType] = {
    "task": pl.String(),
    "language": pl.String(),
    "template": pl.String(),
    "measure": pl.String(),
    "group": pl.String(),
    "model": pl.String(),
    "baseline": pl.String(),
    "value": pl.Float64(),
    "baseline_value": pl.Float64(),
    "difference": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "p": pl.Float64(),
    "p_holm": pl.Float64(),
    "detectable_low": pl.Float64(),
    "detectable_high": pl.Float64(),
    "n": pl.Int64(),
    "scale": pl.String(),
    "interval": pl.String(),
}
"""Columns and types of a comparison's rows; null where a number isn't defined.

`value` and `baseline_value` are those on the `n` paired units, `difference` is value − baseline_value with its 95% interval
`low` to `high` (`interval` says how it was made); `p` is the paired permutation test's, `p_holm` the same after Holm's
correction over the templates, groups and models of one task, language and measure. `detectable_low` and `detectable_high` are
the minimum detectable effects downward and upward (see `evaluator.measures.paired.Comparison`). What neither model has a value
of has no row.
"""

FAMILY = ("task", "language", "measure")
PLACE = ("language", "template", "sample", "group")


Named = tuple[str, pl.DataFrame]
"""A model's name and its scores of a task."""


@dataclass(frozen=True, slots=True)
class ModelDifferences:
    """The rows of one model, and what was left out of them."""

    rows: pl.DataFrame
    notes: tuple[str, ...]


def in_common(task: Task, baseline: pl.DataFrame, model: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two models' scores of the samples and templates that both have an answer to."""
    first, second = (_answered(task, scores) for scores in (baseline, model))
    return (
        first.join(second, on=PLACE, how="semi", nulls_equal=True, maintain_order="left"),
        second.join(first, on=PLACE, how="semi", nulls_equal=True, maintain_order="left"),
    )


def _answered(task: Task, scores: pl.DataFrame) -> pl.DataFrame:
    """Rows with a number. A task that asks no model has nulls that are answers (a translation without a gender)."""
    numbers = [name for name, dtype in scores.schema.items() if dtype == pl.Float64()]
    return scores.filter(pl.any_horizontal(pl.col(numbers).is_not_null())) if task.heads else scores


def differences(
    task: Task,
    baseline: Named,
    models: Sequence[Named],
    options: MeasureOptions,
    bootstrap: Bootstrap,
    *,
    shown: Callable[[Label], bool] = lambda label: True,
    permutations: int = PERMUTATIONS,
    progress: Callable[[float], None] = lambda share: None,
) -> list[ModelDifferences]:
    """Rows (columns COMPARED, without `p_holm`) of each model against a baseline.

    `progress` hears which share of them is made, one language after the other.
    """
    notes: list[list[str]] = []
    parts: list[tuple[dict[object, pl.DataFrame], dict[object, pl.DataFrame]]] = []
    for name, scores in models:
        first, second = in_common(task, baseline[1], scores)
        notes.append(list(_left_out(task.name, (*baseline, first), (name, scores, second))))
        parts.append((_by_language(first), _by_language(second)))
    rows: list[list[tuple[object, ...]]] = [[] for _ in models]
    undefined: set[int] = set()
    languages = list(dict.fromkeys(language for mine, _ in parts for language in mine))
    for done, language in enumerate(languages):
        known: list[tuple[pl.DataFrame, Sequence[Sampled]]] = []
        pairs: list[tuple[int, Paired]] = []
        for place, (mine, others) in enumerate(parts):
            progress((done + place / len(parts)) / len(languages))
            units = _sampled(task, mine[language], options, known) if language in mine else ()
            if units:
                pairs += [(place, both) for both in _pairs(units, task.sampled(others[language], options), shown)]
            elif language in mine and mine[language]["score"].count():
                undefined.add(place)
        compared = compare([both for _, both in pairs], bootstrap, permutations, options.seed)
        for (place, both), found in zip(pairs, compared, strict=True):
            name = models[place][0]
            tested = (found.model, found.baseline, found.difference, found.low, found.high, found.p)
            sizes = (found.detectable_low, found.detectable_high, found.n)
            for label, *numbers in zip(both.labels, *(column.tolist() for column in (*tested, *sizes)), strict=True):
                row = (task.name, language, label.template, label.measure, label.group, name, baseline[0])
                rows[place].append((*row, *numbers[:6], None, *numbers[6:], label.scale, BOOTSTRAPS[options.interval]))
    why = f"{task.name} cannot be compared: the task defines no sampling units."
    return [
        ModelDifferences(pl.DataFrame(schema=COMPARED), (why,))
        if place in undefined
        else ModelDifferences(_finite(pl.DataFrame(made, schema=COMPARED, orient="row")), tuple(said))
        for place, (made, said) in enumerate(zip(rows, notes, strict=True))
    ]


def _by_language(scores: pl.DataFrame) -> dict[object, pl.DataFrame]:
    """The scores of each language, in the order in which they come."""
    return {language: part for (language,), part in scores.group_by("language", maintain_order=True)}


def _sampled(
    task: Task, scores: pl.DataFrame, options: MeasureOptions, known: list[tuple[pl.DataFrame, Sequence[Sampled]]]
) -> Sequence[Sampled]:
    """The units of these scores, made once where several models leave the baseline the same samples."""
    for frame, units in known:
        if frame.equals(scores):
            return units
    known.append((scores, task.sampled(scores, options)))
    return known[-1][1]


def _pairs(baseline: Sequence[Sampled], model: Sequence[Sampled], shown: Callable[[Label], bool]) -> Iterator[Paired]:
    """The blocks of both that have an output in common that is shown."""
    for one in baseline:
        for other in model:
            if set(one.labels) & set(other.labels) and (both := pair(one, other, shown)) is not None:
                yield both


def _finite(rows: pl.DataFrame) -> pl.DataFrame:
    """Numbers that aren't finite are null, an interval without both bounds or a difference has no kind."""
    numbers = [name for name, dtype in COMPARED.items() if dtype == pl.Float64()]
    rows = rows.with_columns(pl.when(pl.col(name).is_finite()).then(name).alias(name) for name in numbers)
    whole = pl.all_horizontal(pl.col("difference", "low", "high").is_not_null())
    known = pl.any_horizontal(pl.col("value", "baseline_value").is_not_null())
    return rows.filter(known).with_columns(pl.when(whole).then(name).alias(name) for name in ("low", "high", "interval"))


def _left_out(task: str, *sides: tuple[str, pl.DataFrame, pl.DataFrame]) -> Iterator[str]:
    for (name, whole, kept), other in zip(sides, reversed([side[0] for side in sides]), strict=True):
        if missing := whole.height - kept.height:
            scores = f"{missing:,} of the {whole.height:,} scores of {name}"
            yield f"{task}: {scores} have no counterpart in {other} and are omitted."


def corrected(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `p_holm`, the largest difference of each measure first."""
    families = [
        part.with_columns(p_holm=pl.Series(holm(part["p"].cast(pl.Float64).fill_null(float("nan")).to_numpy())).fill_nan(None))
        for _, part in rows.group_by(FAMILY, maintain_order=True)
    ]
    if not families:
        return rows
    return pl.concat(map(largest_first, families))


def largest_first(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows by the size of their difference, those without one last."""
    return rows.sort(pl.col("difference").abs(), descending=True, nulls_last=True, maintain_order=True)


def too_few_permutations(rows: pl.DataFrame, permutations: int, level: float = 0.05) -> str | None:
    """A sentence where a family has so many tests that the smallest p that there is could not survive Holm's correction."""
    tests = rows.drop_nulls("p").group_by(FAMILY).len()["len"].max()
    if not isinstance(tests, int) or tests / (1 + permutations) <= level:
        return None
    needed = -(-tests // level) - 1
    return (
        f"With {permutations:,} permutations no p is below {1 / (1 + permutations):.2g}: none of a measure's {tests:,} tests "
        f"can survive Holm's correction: use --permutations {needed:.0f} or more, or compare fewer models."
    )


def named_groups(label: Label, groups: Collection[str]) -> bool:
    """Whether an output is over all groups or of one of these."""
    return label.group is None or label.group == "all" or label.group in groups
