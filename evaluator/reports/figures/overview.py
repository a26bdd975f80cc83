"""Models side by side: a measure's overall value with its interval, single templates as small marks.

References (`evaluator.reports.beside`) are muted marks: together in a line for each kind, or by name.
"""

from collections.abc import Iterator, Sequence

import altair as alt
import polars as pl

from evaluator.reports.beside import among
from evaluator.reports.blocks import UNDEFINED, interval_kinds
from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import (
    ROW,
    alt_text,
    axis,
    base,
    bounds,
    chosen,
    finished,
    layered,
    lines_at,
    logarithmic,
    nothing,
    number_of,
    scale,
    selector,
    sentences,
    shown,
    tall,
    tooltip,
    with_labels,
)
from evaluator.reports.overall import choices, wholes
from evaluator.reports.report import Section
from evaluator.vocabulary import Overview

BESIDE, TOGETHER, NAMED = "beside", "together", "by name"
"""The choice of how references are drawn."""
PLACES = ("over all templates", "a single template")


def overview(section: Section) -> Iterator[Figure]:
    """A figure for each measure that models are compared by."""
    for each in section.layout.overview:
        rows = wholes(section, each.measure)
        if rows.height:
            yield _figure(section, each, rows)


def _figure(section: Section, each: Overview, rows: pl.DataFrame) -> Figure:
    measure = section.layout.shown(each.measure)
    name, title = slug(section.task, each.measure), f"{measure} of all models"
    templates = choices(rows.filter("overall"))
    data = _ordered(_with_references(section, each.measure, rows), templates)
    values = bounds(data.drop_nulls("value"), "value", "low", "high")
    if not values:
        return nothing(name, title, data)
    log = logarithmic(section, [*values, each.neutral])
    languages = data["language"].unique(maintain_order=True).drop_nulls().to_list()
    several = not data["overall"].all()
    chart = _chart(shown(measure, log=log), each.neutral, log=log, several=several, references="reference" in data.columns)
    references = "reference" in data.columns
    chart = chart.properties(height=alt.Step(ROW) if references else tall(data, "label", "language"))
    if references:
        chart = chart.add_params(selector(BESIDE, "References", [TOGETHER, NAMED]))
    chart = chosen(chart, "language", "Language", languages)
    chart = chosen(chart, "template", "Template", templates)
    kinds = interval_kinds(section.rows.filter(pl.col("measure") == each.measure))
    caption = sentences(
        f"Points: the value {'of the chosen template' if templates else 'over all templates of a model'}, with its 95% interval"
        + ("; small circles: single templates." if not data["overall"].all() else "."),
        f"Dashed line: {each.neutral:g}, unbiased." if each.neutral is not None else None,
        "Gray: references, which no test includes; the pointer names them." if references else None,
        section.layout.notes.get(each.measure),
        *kinds,
    )
    found = alt_text(data.filter("overall", *([~pl.col("reference")] if references else [])), measure, templates)
    description = f"{title} with 95% intervals: {found} The tables below have all values."
    return Figure(name, title, caption, data, finished(chart), description)


def _with_references(section: Section, measure: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with labels and, where there are references, theirs too: by name and by the line that they share (`together`).

    References are gray: an axis marks only names that another model has, too.
    """
    others = among(section, measure)
    if others.is_empty():
        return with_labels(rows)
    kind = pl.col("way").str.split(";").list.first()
    count = pl.col("model").n_unique().over("source", "way").cast(pl.String)
    marked = pl.concat_str("model", pl.lit(" ("), "source", pl.lit(")"))
    unique = ~pl.col("model").is_in(rows["model"].unique().to_list()) & (pl.col("source").n_unique().over("model") == 1)
    others = others.with_columns(
        model=marked,
        shown=pl.when(unique).then("model").otherwise(marked),
        together=pl.concat_str(count, pl.lit(" "), "source", pl.lit(" "), kind),
        reference=pl.lit(True),
    )
    own = rows.with_columns(shown="model", together=pl.lit(None, pl.String), reference=pl.lit(False))
    return with_labels(pl.concat([own, others.select(own.columns)]), "shown").drop("shown")


def _ordered(data: pl.DataFrame, templates: Sequence[str]) -> pl.DataFrame:
    """With the place of each model by its overall value, the largest first, those without one last; of each template its own
    order, where one is chosen."""
    among = ["language", *(["template"] if templates else [])]
    best = data.filter("overall").select("model", *among, best="value")
    ranked = best.sort("best", descending=True, nulls_last=True, maintain_order=True).with_columns(
        order=pl.int_range(pl.len()).over(among)
    )
    return data.join(ranked.drop("best"), on=["model", *among], nulls_equal=True, maintain_order="left")


def _chart(title: str, neutral: float | None, *, log: bool, several: bool, references: bool) -> alt.LayerChart:
    line, order = ("line", "place") if references else ("label", "order")
    y = alt.Y(f"{line}:N", title=None, sort=alt.EncodingSortField(order, op="min"), axis=alt.Axis(labelLimit=0, grid=False))
    x = alt.X("value:Q", title=title, scale=scale(log=log), axis=axis(title))
    about = {"model": "model", "template": "template"}
    overall, single = "datum.overall", "!datum.overall"
    if references:
        overall = f"{overall} && !datum.reference"
    tips = [*tooltip(about), number_of()]
    layers = lines_at(x=neutral)
    if several:
        circles = base().mark_point(size=36, filled=False, strokeWidth=1.2).transform_filter(single)
        layers.append(circles.encode(x=x, y=y, color=alt.value("gray"), tooltip=tips))
    if references:
        muted = base().transform_filter("datum.reference")
        apart = muted.transform_filter(f"{BESIDE} === '{NAMED}'").mark_rule(strokeWidth=1.5, opacity=0.6)
        layers += [
            apart.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y, color=alt.value("gray"), tooltip=tips),
            muted.mark_point(size=60, filled=True, opacity=0.6).encode(x=x, y=y, color=alt.value("gray"), tooltip=tips),
        ]
    lines = base().mark_rule(strokeWidth=2).transform_filter(overall)
    points = base().mark_point(size=70, filled=True, opacity=1, shape="diamond").transform_filter(overall)
    absent = base().mark_text(align="left", fontSize=11).transform_filter(f"{overall} && !isValid(datum.value)")
    layers += [
        lines.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y, tooltip=tips),
        points.encode(x=x, y=y, tooltip=tips),
        absent.encode(x=alt.value(4), y=y, text=alt.value(UNDEFINED)),
    ]
    chart = layered(*layers)
    if references:
        shared = f"datum.reference && {BESIDE} === '{TOGETHER}'"
        chart = chart.transform_calculate(
            line=f"{shared} ? datum.together : datum.label", place=f"{shared} ? 1e6 : datum.order"
        )
    return chart
