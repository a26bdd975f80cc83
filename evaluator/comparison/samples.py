"""Samples that drive a rate, or on which two models differ most, with their sentences."""

from dataclasses import dataclass

import polars as pl

from evaluator.measures.drivers import moves
from evaluator.measures.ordered import mean
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
is `without` this sample, and the difference of the two, `move`: samples that a rate falls without (`move` < 0) drive it up.

Where several samples were made of one original pair, which a rate loses as a whole, `sample` is the first of them and the
sample's numbers are means over them; those of a rate over all templates are means over the templates."""

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
        raise InputError("this task has no default rate here: choose one with --measure")
    return Rate(measure or default[0], group, template, layout.summary_groups)


def drivers(task: Task, scores: pl.DataFrame, texts: pl.DataFrame, rate: Rate, options: MeasureOptions) -> pl.DataFrame:
    """Every sample that one model's rate rests on (columns DRIVERS), those that drive it up most first.

    Raises InputError where the model has no such rate.
    """
    frames = [pl.DataFrame(schema=DRIVERS)]
    for (language,), mine in scores.group_by("language", maintain_order=True):
        blocks = task.sampled(mine, options)
        if not blocks and mine["score"].count():
            raise InputError(f"{task.name} defines no sampling units: its samples cannot be listed")
        try:
            found = moves(blocks, rate.measure, rate.groups, rate.template)
        except LookupError:
            raise InputError(f"{mine['model'][0]} has no rate {rate} on {task.name}: choose another") from None
        if rate.template is None and found["template"].n_unique() > 1:  # a mean over templates repeats what they say
            found = found.filter(~pl.col("template").is_in(OVER_ALL).fill_null(False))
        found = found.with_columns(pl.lit(language, pl.String).alias("language"))
        frames.append(_described(found, mine, texts, rate, next((block.unit for block in blocks), "sample")))
    return pl.concat(frames).sort("move", maintain_order=True)


def _described(found: pl.DataFrame, scores: pl.DataFrame, texts: pl.DataFrame, rate: Rate, unit: str) -> pl.DataFrame:
    """`found` with what is known of its units, which are values of the column `unit`: of the rate's own group where they have
    scores in several."""
    absent = [pl.lit(None, pl.Float64).alias(name) for name in ("logprob_male", "logprob_female") if name not in scores.columns]
    known = scores.with_columns(absent).with_columns(
        unit=pl.col(unit), p_first=pl.col("logprob_male").exp(), p_second=pl.col("logprob_female").exp()
    )
    known = known.with_columns(mass=pl.col("p_first") + pl.col("p_second"))
    place = ["language", "template", "unit"]
    over_all = set(OVER_ALL) & set(found["template"])
    rows = [_numbers(known, place), *(_numbers(known.with_columns(template=pl.lit(name)), place) for name in over_all)]
    joined = (
        found.with_row_index("row")
        .join(pl.concat(rows), on=place, how="left", nulls_equal=True, maintain_order="left")
        .sort("row", pl.col("sample_group").ne_missing(pl.col("group")), maintain_order=True)
        .unique("row", keep="first", maintain_order=True)
        .join(texts, on="sample", how="left", maintain_order="left")
    )
    constant = {"model": scores["model"][0], "task": scores["task"][0], "measure": rate.measure}
    joined = joined.with_columns(pl.lit(value).alias(name) for name, value in constant.items())
    return joined.select(pl.col(name).cast(dtype) for name, dtype in DRIVERS.items())


def _numbers(known: pl.DataFrame, place: list[str]) -> pl.DataFrame:
    """The numbers of each unit at its place and in each of its groups."""
    numbers = (mean(pl.col(name)) for name in ("score", "p_first", "p_second", "mass"))
    rows = known.group_by(*place, "group", maintain_order=True).agg(pl.col("sample").first(), *numbers)
    return rows.rename({"group": "sample_group"})


def among(rows: pl.DataFrame, references: pl.DataFrame) -> pl.DataFrame:
    """Rows (columns DRIVERS) with `references`, how many reference models have a score of the sample, and `lower`, how many of
    those scores are lower than the row's."""
    if references.is_empty():
        return rows.with_columns(references=pl.lit(0), lower=pl.lit(0))
    others = references.drop_nulls("score").select(*PLACE, other="score")
    joined = rows.with_row_index("row").join(others, on=PLACE, how="inner", nulls_equal=True)
    counts = joined.group_by("row").agg(references=pl.len(), lower=(pl.col("other") < pl.col("score")).sum())
    counted = rows.with_row_index("row").join(counts, on="row", how="left", maintain_order="left").drop("row")
    return counted.with_columns(pl.col("references", "lower").fill_null(0).cast(pl.Int64))


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
    """The first `top` samples that drive a rate up (or that the first of two models scores higher), and from the end the last
    that drive it down.
    """
    signed = pl.col("difference") if "difference" in rows.columns else -pl.col("move")
    return rows.filter((signed > 0).fill_null(value=True)).head(top), rows.filter(signed < 0).tail(top).reverse()


def by_template(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """The rows of each template by themselves, in their order."""
    return rows.sort("template", maintain_order=True).partition_by("template", maintain_order=True)


def short(value: float | None) -> str:
    """Four digits that count."""
    return UNDEFINED if value is None else f"{value:.4g}"
