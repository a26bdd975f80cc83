"""Figures of a comparison: differences from the baseline with their intervals, those that remain after correction marked."""

from collections.abc import Iterator

import altair as alt
import polars as pl

from evaluator.comparison.build import Comparison
from evaluator.comparison.tables import LEVEL
from evaluator.reports.blocks import MANY_GROUPS
from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import (
    axis,
    base,
    chosen,
    extremes,
    finished,
    layered,
    lines_at,
    number_of,
    placed,
    scale,
    tall,
    tooltip,
    with_labels,
)
from evaluator.reports.figures.overview import overview
from evaluator.reports.overall import compared
from evaluator.vocabulary import Layout

SIGNIFICANT, NOT_SIGNIFICANT = "significant after Holm's correction", "not significant"
NUMBERS = ("difference", "low", "high", "value", "baseline_value", "p_holm", "detectable_low", "detectable_high")


def comparison_figures(comparison: Comparison) -> Iterator[Figure]:
    """The figures of all tasks."""
    for task in comparison.layouts:
        yield from task_figures(comparison, task)


def task_figures(comparison: Comparison, task: str) -> Iterator[Figure]:
    """A task's main measures over all groups, then each of its measures by group; in front its rates beside references."""
    if (section := comparison.beside.get(task)) is not None:
        yield from overview(section)
    layout = comparison.layouts[task]
    plain = pl.col("group").is_null() | (pl.col("group") == "all")
    rows = comparison.rows.filter(pl.col("task") == task).drop_nulls("difference")
    main = [each.measure for each in (*layout.overview, *layout.by_language)] or list(layout.summary[:1])
    for measure in main:
        whole = rows.filter(plain, pl.col("measure") == measure)
        if whole.height:
            yield _figure(comparison, task, layout, measure, whole.filter(compared()), by_group=False)
    for measure in layout.details:
        groups = rows.filter(~plain, pl.col("measure") == measure)
        if groups["group"].n_unique() > MANY_GROUPS:
            groups = groups.filter(pl.col("group").is_in(list(layout.groups)))
        if groups.height:
            yield _figure(comparison, task, layout, measure, groups, by_group=True)


def _figure(comparison: Comparison, task: str, layout: Layout, measure: str, rows: pl.DataFrame, *, by_group: bool) -> Figure:
    named = layout.shown(measure)
    title = f"{named}{' by group' if by_group else ''}: difference from {comparison.baseline}"
    data = _data(layout, rows, by_group=by_group)
    row = "name" if by_group else "label"
    verdicts = alt.Scale(domain=[SIGNIFICANT, NOT_SIGNIFICANT], range="category")
    key = alt.Legend(title=None, symbolOpacity=1)
    y = alt.Y(f"{row}:N", title=None, sort=None, axis=alt.Axis(labelLimit=0, grid=True))
    x = alt.X("difference:Q", scale=scale(log=False), axis=axis(f"difference of {named}"))
    colour = alt.Color("verdict:N", scale=verdicts, legend=key)
    shape = alt.Shape(
        "verdict:N", scale=alt.Scale(domain=[SIGNIFICANT, NOT_SIGNIFICANT], range=["circle", "diamond"]), legend=key
    )
    names = {"model": "model", "place": "template", **({"name": "group"} if by_group else {})}
    titles = {"difference": "difference", "low": "95% from", "high": "95% to", "value": "value", "baseline_value": "baseline"}
    test = {"p_holm": "p (Holm)", "detectable_low": "detectable down", "detectable_high": "detectable up"}
    tips = [*tooltip(names | titles | test, NUMBERS), number_of("samples")]
    chart = layered(
        *lines_at(x=0.0),
        base().mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour, tooltip=tips),
        base().mark_point(filled=True, size=70, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    )
    choice = "chosen" if by_group else "place"
    chart = chosen(chart, choice, "Model" if by_group else "Template", data[choice].unique(maintain_order=True))
    chart = chart.properties(height=tall(data, row, choice))
    caption = (
        "Error bars: 95% intervals. Colour and shape: whether the difference is significant after Holm's correction (p "
        f"≤ {LEVEL})."
    )
    description = f"{title}: {extremes(data.with_columns(value='difference'), 'the difference')}"
    name = slug(task, measure, "by-group" if by_group else None, "difference")
    return Figure(name, title, caption, data, finished(chart), description)


def _data(layout: Layout, rows: pl.DataFrame, *, by_group: bool) -> pl.DataFrame:
    """The rows with what axes and selectors show; groups in the layout's order."""
    columns = ("model", "language", "template", "group", *NUMBERS, "n")
    data = placed(with_labels(rows.select(columns))).with_columns(
        verdict=pl.when(pl.col("p_holm") <= LEVEL).then(pl.lit(SIGNIFICANT)).otherwise(pl.lit(NOT_SIGNIFICANT)),
    )
    if not by_group:
        return data
    order = {group: place for place, group in enumerate(layout.groups)}
    named = {group: layout.named(group) for group in data["group"].unique()}
    return data.with_columns(name=pl.col("group").replace_strict(named, return_dtype=pl.String())).sort(
        pl.col("group").replace_strict(order, default=len(order), return_dtype=pl.Int64()), "group", maintain_order=True
    )
