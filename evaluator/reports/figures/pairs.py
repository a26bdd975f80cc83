"""Correlations of pairs as heat maps: of templates with each other, of models with each other."""

from collections.abc import Iterator

import altair as alt
import polars as pl

from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import (
    base,
    chosen,
    finished,
    heat,
    labels,
    layered,
    nothing,
    number_of,
    sentences,
    shades,
    tall,
    tooltip,
)
from evaluator.reports.report import Section

CELL = 44
"""Pixels of a template's row, which also holds its number."""


def pairs(section: Section) -> Iterator[Figure]:
    """A figure for each kind of correlation: between templates (mean over the models) or between models."""
    for measure in section.layout.pairs:
        rows = section.rows.filter(pl.col("measure") == measure, pl.col("model") != "all", pl.col("other").is_not_null())
        if rows.is_empty():
            continue
        of_models = not set(rows["other"]).isdisjoint(section.rows["model"])
        if rows["value"].null_count() == rows.height:
            yield nothing(slug(section.task, measure), f"Correlations: {measure}", rows.select("model", "other", "value"))
        elif of_models:
            yield _models(section, measure, rows)
        else:
            yield _templates(section, measure, rows)


def _templates(section: Section, measure: str, rows: pl.DataFrame) -> Figure:
    means = rows.group_by("template", "other", maintain_order=True).agg(
        value=pl.col("value").mean(),
        least=pl.col("value").min(),
        most=pl.col("value").max(),
        n=pl.col("value").count().cast(pl.Int64),
    )
    mirrored = means.select(template="other", other="template", value="value", least="least", most="most", n="n")
    data = pl.concat([means, mirrored])
    title = f"Correlations of templates ({measure})"
    if means.height == 1:
        return _single(section, measure, title, means, ["template", "other"])
    _, key = shades(data["value"], "Pearson correlation", middle=None)
    colour = _from_minus_one(data["value"])
    x, y = (alt.X("template:N", title="template", axis=alt.Axis(labelAngle=0)), alt.Y("other:N", title="template"))
    tips = tooltip({"template": "template", "other": "with", "value": "mean", "least": "lowest", "most": "highest"}, NUMBERS)
    cells = heat(x, y, alt.Color("value:Q", scale=colour, legend=key), [*tips, number_of("models")])
    texts = (
        base()
        .mark_text(fontWeight="bold")
        .encode(
            x=x,
            y=y,
            text=alt.Text("value:Q", format=".2f"),
            color=alt.condition("datum.value > 0.4 || datum.value < -0.8", alt.value("black"), alt.value("white")),
        )
    )
    chart = layered(cells, texts).properties(height=tall(data, "other", row=CELL))
    caption = sentences(f"Mean over {rows['model'].n_unique()} models.", section.layout.notes.get(measure))
    return Figure(slug(section.task, measure), title, caption, data, finished(chart), _alt_text(title, data))


NUMBERS = ("value", "least", "most")


def _models(section: Section, measure: str, rows: pl.DataFrame) -> Figure:
    names = [name for name in section.rows["model"].unique(maintain_order=True) if name != "all"]
    place = {name: index for index, name in enumerate(names)}
    short = labels(names)
    swap = pl.col("model").replace_strict(place, default=0) > pl.col("other").replace_strict(place, default=0)
    data = rows.select("model", "other", "language", "template", "value", "n").with_columns(
        model=pl.when(swap).then("other").otherwise("model"), other=pl.when(swap).then("model").otherwise("other")
    )
    data = data.with_columns(
        label=pl.col("model").replace_strict(short, return_dtype=pl.String()),
        other_label=pl.col("other").replace_strict(short, return_dtype=pl.String()),
    )
    title = f"Correlations of models ({measure})"
    if data.select("model", "other").unique().height == 1:
        return _single(section, measure, title, data, ["model", "other"])
    _, key = shades(data["value"], "Pearson correlation", middle=None)
    order = [short[name] for name in names]
    tips = tooltip({"model": "model", "other": "with", "template": "template", "value": "correlation"}, ("value",))
    chart = heat(
        alt.X("label:N", title=None, sort=order, axis=alt.Axis(labelAngle=-60, labelLimit=0, labelOverlap=True)),
        alt.Y("other_label:N", title=None, sort=order, axis=alt.Axis(labelLimit=0)),
        alt.Color("value:Q", scale=_from_minus_one(data["value"]), legend=key),
        [*tips, number_of("groups")],
    ).properties(height=tall(data, "other_label", "template"))
    chart = chosen(chart, "template", "Template", data["template"].unique(maintain_order=True))
    caption = sentences("Empty cell: no correlation.", section.layout.notes.get(measure))
    return Figure(slug(section.task, measure), title, caption, data, finished(chart), _alt_text(title, data))


def _single(section: Section, measure: str, title: str, data: pl.DataFrame, pair: list[str]) -> Figure:
    """The correlation of the only pair as a number, for each template where it is one of models."""
    first, second = data.select(pair).row(0)
    defined = data.drop_nulls("value")
    values = ", ".join(
        f"{row['value']:.2f}" + (f" (template {row['template']})" if pair[0] == "model" and row["template"] else "")
        for row in defined.iter_rows(named=True)
    )
    over = f" (mean of {data['n'][0]} models)" if pair[0] == "template" and data["n"][0] > 1 else ""
    caption = sentences(f"{first} and {second}: {values}{over}.", section.layout.notes.get(measure))
    return Figure(slug(section.task, measure), title, caption, data, None)


def _from_minus_one(values: pl.Series) -> alt.Scale:
    """Colours up to 1 from the least correlation, at least from 0.5 on, so that a colour means the same in most reports."""
    least = min((value for value in values.drop_nulls()), default=0.0)
    return alt.Scale(scheme="viridis", domain=[min(0.0, least), 1.0])


def _alt_text(title: str, data: pl.DataFrame) -> str:
    defined = data["value"].drop_nulls()
    return f"{title}: from {min(defined):.2f} to {max(defined):.2f}."
