"""Models by what is known of them: a measure against the number of parameters, and over the checkpoints of a training."""

from collections.abc import Iterator
from dataclasses import asdict

import altair as alt
import polars as pl

from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import (
    alt_text,
    axis,
    base,
    bounds,
    chosen,
    finished,
    layered,
    lines_at,
    logarithmic,
    number_of,
    scale,
    sentences,
    shown,
    told_apart,
    tooltip,
    with_labels,
)
from evaluator.reports.overall import choices, wholes
from evaluator.reports.report import Section
from evaluator.vocabulary import Overview

HEIGHT = 380
TUNED, BASE, UNKNOWN = "instruction-tuned", "base model", "unknown"
_FACTS = pl.Schema(
    {
        "model": pl.String(),
        "parameters": pl.Float64(),
        "family": pl.String(),
        "tuned": pl.Boolean(),
        "base": pl.String(),
        "release": pl.String(),
        "series": pl.String(),
        "step": pl.Float64(),
    }
)


def sizes(section: Section) -> Iterator[Figure]:
    """For each measure that models are compared by: against parameters and over checkpoints, where known of two."""
    facts = pl.DataFrame([{"model": name, **asdict(known)} for name, known in section.models.items()], schema=_FACTS)
    for each in section.layout.overview:
        rows = wholes(section, each.measure).filter("overall").drop_nulls("value")
        known = with_labels(rows.drop("overall")).join(facts, on="model", maintain_order="left")
        if known["language"].n_unique() > 1:
            continue
        sized = known.filter(pl.col("parameters") > 0).drop("step", "series")
        if sized["model"].n_unique() > 1:
            yield _against_parameters(section, each, sized, known["model"].n_unique() - sized["model"].n_unique())
        trained = known.drop_nulls(["series", "step"])
        if trained["model"].n_unique() > 1:
            yield _over_checkpoints(section, each, trained)


def _against_parameters(section: Section, each: Overview, data: pl.DataFrame, missing: int) -> Figure:
    measure = section.layout.shown(each.measure)
    title, name = f"{measure} by number of parameters", slug(section.task, each.measure, "parameters")
    here = set(data["model"])
    joined = [base if base in here else model for model, base in data.select("model", "base").iter_rows()]
    kinds = {True: TUNED, False: BASE, None: UNKNOWN}
    data = data.with_columns(
        pl.col("family").fill_null(UNKNOWN),
        kind=pl.Series([kinds[tuned] for tuned in data["tuned"]], dtype=pl.String),
        pair=pl.Series(joined, dtype=pl.String),
    )
    log = logarithmic(section, [*bounds(data, "value", "low", "high"), each.neutral])
    y = alt.Y("value:Q", title=shown(measure, log=log), scale=scale(log=log), axis=axis(shown(measure, log=log)))
    x = alt.X(
        "parameters:Q",
        title="parameters (log axis)",
        scale=alt.Scale(type="log", nice=False, padding=20),
        axis=alt.Axis(format="~s", labelExpr="replace(datum.label, 'G', 'B')", tickCount=6, labelOverlap=True, grid=False),
    )
    colour = alt.Color("family:N", title="family", legend=alt.Legend(symbolOpacity=1))
    names = {"model": "model", "family": "family", "kind": "kind", "release": "release", "parameters": "parameters"}
    tips = [*tooltip(names, ("parameters", "value", "low", "high")), number_of()]
    known_kinds = [kind for kind in (BASE, TUNED, UNKNOWN) if kind in set(data["kind"])]
    shapes = {BASE: "circle", TUNED: "triangle-up", UNKNOWN: "diamond"}
    shape = alt.Shape(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=known_kinds, range=[shapes[kind] for kind in known_kinds]),
        legend=alt.Legend(symbolOpacity=1) if len(known_kinds) > 1 else None,
    )
    chart = layered(
        *lines_at(y=each.neutral),
        base()
        .mark_line(strokeWidth=1, strokeDash=[2, 2])
        .encode(x=x, y=y, detail="pair:N", color=colour, order="parameters:Q"),
        base().mark_rule(opacity=0.6).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour, tooltip=tips),
        base().mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ).properties(height=HEIGHT)
    templates = choices(data)
    chart = chosen(chart, "template", "Template", templates)
    caption = sentences(
        "Error bars: 95% intervals. Dotted lines connect a base model with the models tuned from it.",
        f"{missing} models are omitted because their number of parameters is unknown (see --models)." if missing else None,
        f"Dashed line: {each.neutral:g}, unbiased." if each.neutral is not None else None,
    )
    return Figure(name, title, caption, data, finished(chart), f"{title}: {alt_text(data, measure, templates)}")


def _over_checkpoints(section: Section, each: Overview, data: pl.DataFrame) -> Figure:
    measure = section.layout.shown(each.measure)
    title, name = f"{measure} over checkpoints", slug(section.task, each.measure, "checkpoints")
    data = data.select("label", "model", "language", "template", "series", "step", "value", "low", "high", "n")
    log = logarithmic(section, [*bounds(data, "value", "low", "high"), each.neutral])
    label = shown(measure, log=log)
    y = alt.Y("value:Q", title=label, scale=scale(log=log), axis=axis(label))
    x = alt.X("step:Q", title="training step", axis=alt.Axis(format=",", tickCount=6, labelOverlap=True))
    style = told_apart("series", data["series"].unique(maintain_order=True).to_list())
    colour = style["color"]
    tips = [*tooltip({"model": "model", "series": "series", "step": "step"}, ("step", "value", "low", "high")), number_of()]
    chart = layered(
        *lines_at(y=each.neutral),
        base().mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, order="step:Q"),
        base().mark_rule(opacity=0.6).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour, tooltip=tips),
        base().mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, **style, tooltip=tips),
    ).properties(height=HEIGHT)
    templates = choices(data)
    chart = chosen(chart, "template", "Template", templates)
    caption = sentences(
        "Error bars: 95% intervals.",
        f"Dashed line: {each.neutral:g}, unbiased." if each.neutral is not None else None,
    )
    return Figure(name, title, caption, data, finished(chart), f"{title}: {alt_text(data, measure, templates)}")
