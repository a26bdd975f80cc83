"""Ranks of the groups over models and templates: points, or box plots where there are enough."""

from collections.abc import Iterator

import altair as alt
import polars as pl

from evaluator.reports.blocks import ordered_groups
from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import base, finished, group_label, nothing, poles, sentences, side, tall, with_labels
from evaluator.reports.report import Section

BOXES = 5
"""Values from which on a box says more than they do."""


def ranks(section: Section) -> Iterator[Figure]:
    """A figure for each measure whose distribution over models and templates is shown."""
    for measure in section.layout.ranks:
        rows = section.rows.filter(pl.col("measure") == measure)
        places = rows.select("model", "language", "template").n_unique() if rows.height else 0
        if places > 1:
            yield _figure(section, measure, rows, places)


def _figure(section: Section, measure: str, rows: pl.DataFrame, places: int) -> Figure:
    lowest, of = section.layout.lowest, (*section.layout.details, "value")[0]
    title = "Feminine ranks" if lowest == "feminine" else f"Ranks (1: most {lowest})" if lowest else "Ranks"
    order = ordered_groups(section, rows)
    named = {group: group_label(section, group) for group in order}
    sides = {group: side(section, group) for group in order}
    data = with_labels(rows.select("model", "language", "template", "group", "value")).with_columns(
        name=pl.col("group").replace_strict(named, return_dtype=pl.String()),
        pole=pl.col("group").replace_strict(sides, return_dtype=pl.String()),
    )
    name = slug(section.task, measure)
    if data["value"].null_count() == data.height:
        return nothing(name, title, data)
    known, colours, _ = poles(section)
    present = [each for each in known if each in set(data["pole"])]
    label = f"{lowest} rank (1: lowest {of})".lstrip()
    boxes = places >= BOXES
    marked = (
        base().mark_boxplot(extent="min-max", size=11, median=alt.MarkConfig(color="white", strokeWidth=2))
        if boxes
        else base().mark_point(filled=True, size=70, opacity=0.6)
    )
    chart = marked.encode(
        x=alt.X(
            "value:Q",
            title=label,
            scale=alt.Scale(domain=[0.5, len(order) + 0.5], nice=False, zero=False),
            axis=alt.Axis(format="d", tickMinStep=1, title=label),
        ),
        y=alt.Y("name:N", title=None, sort=list(named.values()), axis=alt.Axis(labelLimit=0)),
        color=alt.Color(
            "pole:N",
            scale=colours,
            legend=alt.Legend(title=None, values=present, symbolOpacity=1) if len(present) > 1 else None,
        ),
    ).properties(height=tall(data, "name"))
    caption = sentences(
        f"Over {places} pairs of model and template. "
        + ("Boxes: quartiles and median; whiskers: minimum and maximum." if boxes else "Each point is one pair."),
        section.layout.notes.get(measure),
    )
    return Figure(name, title, caption, data, finished(chart), f"{title} by group over {places} pairs of model and template.")
