"""Rows of a comparison: a model against a baseline, measure by measure, on the samples that both were scored on. Pure."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from evaluator.measures.bootstrap import Bootstrap
from evaluator.measures.intervals import BOOTSTRAPS
from evaluator.measures.paired import PERMUTATIONS, compare, holm, pair
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
    baseline: tuple[str, pl.DataFrame],
    model: tuple[str, pl.DataFrame],
    options: MeasureOptions,
    bootstrap: Bootstrap,
    *,
    shown: Callable[[Label], bool] = lambda label: True,
    permutations: int = PERMUTATIONS,
) -> ModelDifferences:
    """Rows (columns COMPARED, without `p_holm`) of a model against a baseline, each a name and its scores of this task."""
    first, second = in_common(task, baseline[1], model[1])
    notes = list(_left_out(task.name, (baseline[0], baseline[1], first), (model[0], model[1], second)))
    rows: list[tuple[object, ...]] = []
    for (language,), mine in first.group_by("language", maintain_order=True):
        others = second.filter(pl.col("language").eq_missing(pl.lit(language, pl.String)))
        units = task.sampled(mine, options)
        if not units and not mine["score"].count():
            continue
        if not units:
            why = f"{task.name} cannot be compared: the task defines no sampling units."
            return ModelDifferences(pl.DataFrame(schema=COMPARED), (why,))
        for one, other in _matching(units, task.sampled(others, options)):
            both = pair(one, other, shown)
            if both is None:
                continue
            found = compare(both, bootstrap, permutations, options.seed)
            tested = (found.model, found.baseline, found.difference, found.low, found.high, found.p)
            sizes = (found.detectable_low, found.detectable_high, found.n)
            for label, *numbers in zip(both.labels, *(column.tolist() for column in (*tested, *sizes)), strict=True):
                place = (task.name, language, label.template, label.measure, label.group, model[0], baseline[0])
                rows.append((*place, *numbers[:6], None, *numbers[6:], label.scale, BOOTSTRAPS[options.interval]))
    return ModelDifferences(_finite(pl.DataFrame(rows, schema=COMPARED, orient="row")), tuple(notes))


def _matching(baseline: Sequence[Sampled], model: Sequence[Sampled]) -> Iterator[tuple[Sampled, Sampled]]:
    """The blocks of both that have an output in common."""
    for one in baseline:
        for other in model:
            if set(one.labels) & set(other.labels):
                yield one, other


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
