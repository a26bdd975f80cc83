"""Languages side by side: a measure of each language and model as a heat map."""

import math
from collections.abc import Iterator
from typing import Any

import altair as alt
import polars as pl

from evaluator.reports.blocks import language_extent
from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import (
    extremes,
    finished,
    heat,
    logarithmic,
    nothing,
    number_of,
    sentences,
    shades,
    tall,
    tilted,
    tooltip,
    with_labels,
)
from evaluator.reports.report import Section
from evaluator.vocabulary import Overview


def languages(section: Section) -> Iterator[Figure]:
    """A figure for each measure that is compared between languages."""
    for each in section.layout.by_language:
        rows = section.rows.filter(pl.col("measure") == each.measure, pl.col("template") == "all")
        if rows.height:
            yield _figure(section, each, rows)


def _figure(section: Section, each: Overview, rows: pl.DataFrame) -> Figure:
    title = f"{section.layout.shown(each.measure)} by language and model"
    name = slug(section.task, each.measure, "languages")
    extent = language_extent(section)
    named = {
        language: f"{language} {extent[language]}" if language in extent else language for language in rows["language"].unique()
    }
    data = with_labels(rows.select("model", "language", "value", "low", "high", "n")).with_columns(
        name=pl.col("language").replace_strict(named, return_dtype=pl.String())
    )
    if data["value"].null_count() == data.height:
        return nothing(name, title, data)
    neutral = each.neutral or 0.0
    log = logarithmic(section, data["value"]) and neutral > 0
    data = data.with_columns(shade=(pl.col("value").log() - math.log(neutral)) if log else pl.col("value"))
    colour, key = shades(data["shade"], each.measure, middle=0.0 if log else neutral, ratio=log, neutral=neutral)
    beside = data["model"].n_unique() <= data["language"].n_unique()
    model: dict[str, Any] = {"field": "label", "type": "nominal", "title": None, "sort": None}
    language: dict[str, Any] = {"field": "name", "type": "nominal", "title": None, "sort": None}
    across, down = (model, language) if beside else (language, model)
    chart = heat(
        alt.X(**across, axis=tilted(data[across["field"]].unique().to_list())),
        alt.Y(**down, axis=alt.Axis(labelLimit=0)),
        alt.Color("shade:Q", title=each.measure, scale=colour, legend=key),
        [*tooltip({"model": "model", "name": "language"}), number_of()],
    ).properties(height=tall(data, down["field"]))
    extents = "Next to each language: its coverage of the data set and, in brackets, the share of pairs." if extent else None
    caption = sentences(
        f"{neutral:g} is unbiased; one colour is above it, the other below, and stronger colours are farther away.",
        extents,
        section.layout.notes.get(each.measure),
    )
    return Figure(name, title, caption, data, finished(chart), f"{title}: {extremes(data, each.measure)}")
