"""Samples that drive a rate, or on which two models differ most, with their sentences."""

from dataclasses import dataclass

import polars as pl

from evaluator.measures.drivers import moves
from evaluator.reports.blocks import OVER_ALL, UNDEFINED
from evaluator.tasks.base import Task
from evaluator.vocabulary import Layout, MeasureOptions
from evaluator_serving.errors import InputError

DRIVERS: dict[str, pl.DataType] = {
    "model": pl.String(),
    "task": pl.String(),
    "language": pl.String(),
    "template": pl.String(),
    "measure": pl.String(),
    "group": pl.String(),
    "sample": pl.Int64(),
    "sample_group": pl.String(),
    "score": pl.Float64(),
    "p_first": pl.Float64(),
    "p_second": pl.Float64(),
    "mass": pl.Float64(),
    "rate": pl.Float64(),
    "without": pl.Float64(),
    "move": pl.Float64(),
    "text": pl.String(),
}
"""Columns of `drivers`. `measure` and `group` are the rate's, `sample_group` is the sample's own; `p_first`, `p_second` are the
two words' probabilities (the masculine one first) and `mass` their sum, null where the task has no two words; `rate`, what it
is `without` this sample, and the difference of the two, `move`: samples that a rate falls without (`move` < 0) drive it up."""

DIFFERING: dict[str, pl.DataType] = {
    "model": pl.String(),
    "against": pl.String(),
    **{name: DRIVERS[name] for name in ("task", "language", "template", "sample", "sample_group", "score")},
    "other_score": pl.Float64(),
    "difference": pl.Float64(),
    "text": pl.String(),
}
"""Columns of `differing`: two models' scores of one sample and score − other_score."""

PLACE = ("language", "template", "sample")


@dataclass(frozen=True, slots=True)
class Rate:
    """Which rate: a measure, a group (None: what stands for all groups) and a template (None: each).

    `whole`: the groups that stand for all of them, as the task's layout says.
    """

    measure: str
    group: str | None = None
    template: str | None = None
    whole: tuple[str | None, ...] = (None, "all")

    @property
    def groups(self) -> tuple[str | None, ...]:
        """The groups that the rate's rows may have."""
        return self.whole if self.group is None else (self.group,)

    def __str__(self) -> str:
        return self.measure if self.group is None else f"{self.measure} of {self.group}"


def main_rate(layout: Layout, measure: str | None, group: str | None, template: str | None) -> Rate:
    """The rate that is meant where parts aren't given: of a group what the layout shows by group, else what models are
    compared by.
    """
    default = layout.details if group is not None else tuple(overview.measure for overview in layout.overview) or layout.summary
    if measure is None and not default:
        raise InputError("this task has no rate of its own for that: name one with --measure")
    return Rate(measure or default[0], group, template, layout.summary_groups)


def drivers(task: Task, scores: pl.DataFrame, texts: pl.DataFrame, rate: Rate, options: MeasureOptions) -> pl.DataFrame:
    """Every sample that one model's rate rests on (columns DRIVERS), those that drive it up most first.

    Raises InputError where the model has no such rate.
    """
    frames = [pl.DataFrame(schema=DRIVERS)]
    for (language,), mine in scores.group_by("language", maintain_order=True):
        blocks = task.sampled(mine, options)
        if not blocks and mine["score"].count():
            raise InputError(f"{task.name} doesn't say which samples its rates rest on: no samples can be named")
        try:
            found = moves(blocks, rate.measure, rate.groups, rate.template)
        except LookupError:
            raise InputError(f"{mine['model'][0]} has no rate {rate} on {task.name}: choose another") from None
        if rate.template is None and found["template"].n_unique() > 1:  # a mean over templates repeats what they say
            found = found.filter(~pl.col("template").is_in(OVER_ALL).fill_null(False))
        found = found.with_columns(pl.lit(language, pl.String).alias("language"))
        frames.append(_described(found, mine, texts, rate))
    return pl.concat(frames).sort("move", maintain_order=True)


def _described(found: pl.DataFrame, scores: pl.DataFrame, texts: pl.DataFrame, rate: Rate) -> pl.DataFrame:
    words = [name for name in ("logprob_male", "logprob_female") if name in scores.columns]
    known = scores.with_columns(
        pl.col(words).exp().name.map(lambda name: {"logprob_male": "p_first", "logprob_female": "p_second"}[name])
    ).unique([*PLACE], keep="first", maintain_order=True)
    absent = [pl.lit(None, pl.Float64).alias(name) for name in ("p_first", "p_second") if name not in known.columns]
    known = known.with_columns(absent).with_columns(mass=pl.col("p_first") + pl.col("p_second"))
    known = known.select("model", "task", *PLACE, pl.col("group").alias("sample_group"), "score", "p_first", "p_second", "mass")
    joined = found.join(known, on=PLACE, how="left", nulls_equal=True, maintain_order="left")
    joined = joined.with_columns(pl.lit(scores[name][0]).alias(name) for name in ("model", "task"))
    joined = joined.join(texts, on="sample", how="left", maintain_order="left").with_columns(
        pl.lit(rate.measure).alias("measure")
    )
    return joined.select(pl.col(name).cast(dtype) for name, dtype in DRIVERS.items())


def differing(task: Task, scores: pl.DataFrame, others: pl.DataFrame, texts: pl.DataFrame, rate: Rate) -> pl.DataFrame:
    """The samples that two models both have scores of (columns DIFFERING), the largest score − other_score first."""
    mine = scores if rate.group is None else scores.filter(pl.col("group") == rate.group)
    mine = mine if rate.template is None else mine.filter(pl.col("template") == rate.template)
    second = others.select(*PLACE, "group", pl.col("model").alias("against"), pl.col("score").alias("other_score"))
    joined = mine.join(second, on=[*PLACE, "group"], how="inner", nulls_equal=True, maintain_order="left")
    joined = joined.with_columns(difference=pl.col("score") - pl.col("other_score")).drop_nulls("difference")
    joined = joined.join(texts, on="sample", how="left", maintain_order="left").with_columns(sample_group="group")
    made = joined.select(pl.col(name).cast(dtype) for name, dtype in DIFFERING.items())
    return made.sort("difference", descending=True, maintain_order=True)


def ends(rows: pl.DataFrame, top: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The first and the last `top` rows, the last ones from the end; no row in both."""
    first = rows.head(top)
    return first, rows.slice(first.height).tail(top).reverse()


def short(value: float | None) -> str:
    """Four digits that count."""
    return UNDEFINED if value is None else f"{value:.4g}"
