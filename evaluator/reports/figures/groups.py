"""A measure by group: groups and models as a heat map, and the intervals of one model, which a selector chooses."""

import math
from collections.abc import Iterator, Sequence

import altair as alt
import polars as pl

from evaluator.reports.blocks import UNDEFINED, detail_groups, interval_kinds
from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import (
    axis,
    base,
    bounds,
    chosen,
    extremes,
    finished,
    group_label,
    heat,
    layered,
    lines_at,
    logarithmic,
    nothing,
    number_of,
    placed,
    poles,
    scale,
    sentences,
    shades,
    shown,
    side,
    tall,
    tilted,
    tooltip,
    with_labels,
)
from evaluator.reports.report import Section

COLUMNS = ("model", "language", "template", "group", "value", "low", "high", "n")


def groups(section: Section) -> Iterator[Figure]:
    """For each measure that is shown by group: the heat map where there are several models, and the intervals."""
    for measure in section.layout.details:
        rows = section.rows.filter(pl.col("measure") == measure, pl.col("group").is_not_null(), pl.col("group") != "all")
        order, _ = detail_groups(section, rows) if rows.height else ([], 0)
        if not order:
            continue
        data = _data(section, rows.filter(pl.col("group").is_in(order)))
        names = [group_label(section, group) for group in order]
        if data["value"].null_count() == data.height:
            yield nothing(slug(section.task, measure), f"{section.layout.shown(measure)} by group", data)
            continue
        if data["model"].n_unique() > 1:
            yield _heat(section, measure, data, names)
        yield _intervals(section, measure, data, names, interval_kinds(rows))


def _data(section: Section, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the groups' labels and poles, and the places where models were measured."""
    named = {group: group_label(section, group) for group in rows["group"].unique()}
    sides = {group: side(section, group) for group in named}
    return placed(with_labels(rows.select(COLUMNS))).with_columns(
        name=pl.col("group").replace_strict(named, return_dtype=pl.String()),
        pole=pl.col("group").replace_strict(sides, return_dtype=pl.String()),
    )


def _heat(section: Section, measure: str, data: pl.DataFrame, names: Sequence[str]) -> Figure:
    title = f"{section.layout.shown(measure)} by group and model"
    relative = measure in section.layout.relative
    log = logarithmic(section, data["value"])
    against = 0.0 if relative else section.layout.neutral(measure)
    data = data.with_columns(shade=_shade(relative=relative, log=log, neutral=section.layout.neutral(measure)))
    if relative:
        # what a tooltip says: a ratio on a logarithmic scale
        data = data.with_columns(relative=pl.col("shade").exp() if log else pl.col("shade"))
    tip = {"model": "model", "name": "group", "place": "template"}
    numbers = ("value", "low", "high", *(("relative",) if relative else ()))
    tips = tooltip({**tip, "relative": "relative to the mean"} if relative else tip, numbers)
    what = f"{measure} {'/' if log else '−'} mean of the row" if relative else measure
    spread = {"middle": 0.0 if log else against, "neutral": against if log else None}
    colour, key = shades(data["shade"], what, ratio=log, poles=bool(section.layout.polarity), **spread)
    y = alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=0))
    x = alt.X("name:N", title=None, sort=list(names), axis=tilted(names))
    cells = heat(x, y, alt.Color("shade:Q", title=what, scale=colour, legend=key), [*tips, number_of()])
    known = [name for name, several in (("Language", "language"), ("Template", "template")) if data[several].n_unique() > 1]
    chart = chosen(layered(cells), "place", " and ".join(known).capitalize(), data["place"].unique(maintain_order=True))
    chart = chart.properties(height=tall(data, "label", "place"))
    caption = sentences(
        f"Cells: {measure} of a group and model."
        + (f" Colour: relative to the row's mean, because the absolute level of {measure} has no meaning." if relative else ""),
        " ".join(f"{colour}: {pole}." for colour, pole in zip(("Blue", "Orange"), section.layout.poles, strict=True) if pole)
        if section.layout.polarity and against is not None
        else None,
        "Empty cell: no value. Click a cell to show that model's intervals in the next figure.",
    )
    description = f"{title}, {data['model'].n_unique()} models and {len(names)} groups: {extremes(data, measure)}"
    return Figure(slug(section.task, measure, "heat"), title, caption, data, finished(chart), description)


def _shade(*, relative: bool, log: bool, neutral: float | None) -> pl.Expr:
    """What the colour shows: the value; or (logarithmic) the logarithm of its ratio to what it is compared with."""
    value = pl.col("value").log() if log else pl.col("value")
    if relative:
        return value - value.mean().over("model", "language", "template")
    if log and neutral is not None:
        return value - math.log(neutral)
    return value


def _intervals(section: Section, measure: str, data: pl.DataFrame, names: Sequence[str], kinds: Sequence[str]) -> Figure:
    several = data["chosen"].n_unique() > 1
    title = f"{section.layout.shown(measure)} by group with intervals" + (", one model" if several else "")
    values = bounds(data.drop_nulls("value"), "value", "low", "high")
    log = logarithmic(section, values)
    sides, colours, shapes = poles(section)
    label = shown(measure, log=log)
    y = alt.Y("name:N", title=None, sort=list(names), axis=alt.Axis(labelLimit=0, grid=True))
    x = alt.X("value:Q", title=label, scale=scale(log=log), axis=axis(label))
    present = [each for each in sides if each in set(data["pole"])]
    key = alt.Legend(title=None, values=present, symbolOpacity=1) if len(present) > 1 else None
    colour = alt.Color("pole:N", scale=colours, legend=key)
    tips = [*tooltip({"model": "model", "place": "template", "name": "group"}), number_of()]
    neutral = None if measure in section.layout.relative else section.layout.neutral(measure)
    chart = layered(
        *lines_at(x=neutral if neutral is None or not log or neutral > 0 else None),
        base().mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour, tooltip=tips),
        base()
        .mark_point(filled=True, size=70, opacity=1)
        .encode(x=x, y=y, color=colour, shape=alt.Shape("pole:N", scale=shapes, legend=key), tooltip=tips),
        base()
        .mark_text(align="left", fontSize=11)
        .transform_filter("!isValid(datum.value)")
        .encode(x=alt.value(4), y=y, text=alt.value(UNDEFINED)),
    ).properties(height=tall(data, "name"))
    chart = chosen(chart, "chosen", "Model", data["chosen"].unique(maintain_order=True))
    caption = sentences(_shapes(section), section.layout.notes.get(measure), *kinds)
    description = f"{title}: {extremes(data, measure)}"
    return Figure(slug(section.task, measure, "intervals"), title, caption, data, finished(chart), description)


def _shapes(section: Section) -> str:
    """What the marks' shapes say."""
    layout = section.layout
    if not layout.polarity:
        return ""
    first, second = (f"{layout.mark(pole)}: {pole} groups" for pole in layout.poles)
    return f"Circles {second}; squares {first}."
