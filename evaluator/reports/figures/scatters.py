"""Two measures against each other: one point per model, and a language where there are several."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import polars as pl

from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import (
    axis,
    base,
    bounds,
    finished,
    layered,
    lines_at,
    nothing,
    number_of,
    sentences,
    told_apart,
    tooltip,
    with_labels,
)
from evaluator.reports.overall import compared
from evaluator.reports.report import Section
from evaluator.vocabulary import Scatter

HEIGHT = 420
FEW = 8
"""Colours that are told apart; more models have one colour, and names under the pointer."""
_NUMBERS = ("x", "x_low", "x_high", "y", "y_low", "y_high")


def scatters(section: Section) -> Iterator[Figure]:
    """A figure for each pair of measures that the layout plots against each other."""
    for each in section.layout.scatters:
        data = _data(section, each)
        if data.height:
            yield _figure(section, each, data)


def _data(section: Section, each: Scatter) -> pl.DataFrame:
    """Models, languages and templates that have both: of a model over all templates where it has such a row."""
    x, y = (_side(section, measure, group, name) for measure, group, name in _sides(each))
    keys = ["model", "language", "template"]
    both = x.join(y, on=keys, nulls_equal=True, maintain_order="left")
    return with_labels(both.filter(compared()))


def _sides(each: Scatter) -> tuple[tuple[str, str | None, str], tuple[str, str | None, str]]:
    return (each.x, each.x_group, "x"), (each.y, each.y_group, "y")


def _side(section: Section, measure: str, group: str | None, name: str) -> pl.DataFrame:
    mine = pl.col("group") == group if group else pl.col("group").is_null() | (pl.col("group") == "all")
    numbers = [pl.col("value").alias(name), pl.col("low", "high").name.prefix(f"{name}_")]
    rows = section.rows.filter(pl.col("measure") == measure, mine)
    return rows.select("model", "language", "template", *numbers, *([pl.col("n")] if name == "x" else []))


def _figure(section: Section, each: Scatter, data: pl.DataFrame) -> Figure:
    x, y = (f"{measure} {group}" if group else measure for measure, group, _ in _sides(each))
    title, name = f"{y} against {x}", slug(section.task, each.y, each.y_group, each.x, each.x_group)
    data = data.filter(pl.col("x").is_not_null() | pl.col("y").is_not_null())
    if data.drop_nulls(["x", "y"]).is_empty():
        return nothing(name, title, data)
    if data["language"].n_unique() > 1:
        data = data.with_columns(mark=pl.Series(_apart(data), dtype=pl.String))
    chart = points_chart(data, x, y, each)
    caption = sentences(
        "Error bars: 95% intervals.",
        "Grey line: both are equal." if each.identity else None,
        each.note,
        "Dashed lines: unbiased." if any(value is not None for value in each.neutral) else None,
    )
    return Figure(name, title, caption, data, finished(chart), f"{title}: {data.height} points, listed in the tables below.")


def points_chart(data: pl.DataFrame, x: str, y: str, each: Scatter) -> alt.LayerChart:
    """Points with both intervals; `data`: label, model, x, x_low, x_high, y, y_low, y_high, maybe language, template, n,
    mark (a text beside the point)."""
    ends = {"x": bounds(data, "x", "x_low", "x_high"), "y": bounds(data, "y", "y_low", "y_high")}
    if each.identity:
        both = ends["x"] + ends["y"]
        ends = {"x": both, "y": both}
    for channel, neutral in zip("xy", each.neutral, strict=True):
        ends[channel] = ends[channel] if neutral is None else [*ends[channel], neutral]
    domain = {channel: _room(values) for channel, values in ends.items()}
    scales = {channel: alt.Scale(domain=limits, nice=False, zero=False) for channel, limits in domain.items()}
    at_x = alt.X("x:Q", title=x, scale=scales["x"], axis=axis(x))
    at_y = alt.Y("y:Q", title=y, scale=scales["y"], axis=axis(y))
    names = {"model": "model"} | {key: key for key in ("language", "template") if key in data.columns}
    titles = {"x": x, "x_low": f"{x} from", "x_high": f"{x} to", "y": y, "y_low": f"{y} from", "y_high": f"{y} to"}
    tips = [*tooltip(names | titles, _NUMBERS), *([number_of()] if "n" in data.columns else [])]
    style: dict[str, Any] = {}
    if 1 < data["model"].n_unique() <= FEW:
        style = told_apart("label", data["label"].unique(maintain_order=True).to_list())
    lines = {key: value for key, value in style.items() if key == "color"}
    marks = [
        base().mark_rule(opacity=0.6).encode(x=alt.X("x_low:Q"), x2="x_high:Q", y=at_y, tooltip=tips, **lines),
        base().mark_rule(opacity=0.6).encode(y=alt.Y("y_low:Q"), y2="y_high:Q", x=at_x, tooltip=tips, **lines),
        base().mark_point(filled=True, size=80, opacity=1).encode(x=at_x, y=at_y, tooltip=tips, **style),
    ]
    if "mark" in data.columns:
        marks.append(base().mark_text(dx=9, dy=-8, fontSize=11).encode(x=at_x, y=at_y, text="mark:N", **lines))
    elif data.height <= FEW and not style:
        marks.append(base().mark_text(dx=9, align="left", fontSize=11).encode(x=at_x, y=at_y, text="label:N"))
    behind = [*lines_at(x=each.neutral[0], y=each.neutral[1])]
    if each.identity:
        behind.append(_identity(max(domain["x"][0], domain["y"][0]), min(domain["x"][1], domain["y"][1])))
    behind += _contours(each, domain)
    return layered(*behind, *marks).properties(height=HEIGHT)


def _room(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return [low - room, high + room]


def _apart(data: pl.DataFrame) -> list[str]:
    """The languages that can stand beside their points without lying on each other, also in a narrow figure; else nothing."""
    wide, high = 260 / _extent(data["x"]), HEIGHT / _extent(data["y"])
    taken: list[tuple[float, float]] = []
    made = []
    for language, x, y in data.select("language", "x", "y").iter_rows():
        free = x is not None and y is not None
        free = free and not any(abs(x - a) * wide < 22 and abs(y - b) * high < 13 for a, b in taken)
        if free:
            taken.append((x, y))
        made.append(language if free else "")
    return made


def _extent(values: pl.Series) -> float:
    defined = values.drop_nulls()
    return (max(defined) - min(defined)) * 1.3 or 1.0


def _identity(low: float, high: float) -> alt.Chart:
    ends = alt.InlineData(values=[{"at": low}, {"at": high}])
    line: alt.Chart = alt.Chart(ends).mark_line(color="gray", strokeWidth=1, clip=True)
    return line.encode(x="at:Q", y="at:Q")


def _contours(each: Scatter, domain: dict[str, list[float]]) -> list[alt.Chart]:
    """The lines within the picture, each named at its right end there."""
    points, names = [], []
    for contour in each.contours:
        inside = [(x, y) for x, y in contour.points if all(domain[at][0] < v < domain[at][1] for at, v in (("x", x), ("y", y)))]
        if inside:
            points += [{"cx": x, "cy": y, "of": contour.label} for x, y in contour.points]
            names.append({"cx": inside[-1][0], "cy": inside[-1][1], "of": contour.label})
    if not points:
        return []
    lines = alt.Chart(alt.InlineData(values=points)).mark_line(color="gray", strokeWidth=1, opacity=0.7, clip=True)
    texts = alt.Chart(alt.InlineData(values=names)).mark_text(fontSize=10, align="right", dy=-5, opacity=0.9)
    return [
        lines.encode(x="cx:Q", y="cy:Q", detail="of:N", order="cx:Q"),
        texts.encode(x="cx:Q", y="cy:Q", text="of:N"),
    ]
