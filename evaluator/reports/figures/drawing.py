"""What the figures share: columns of their data, axes, selectors, and how a chart becomes a figure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import altair as alt
import polars as pl

from evaluator.reports.blocks import UNDEFINED, number
from evaluator.reports.figure import Figure
from evaluator.reports.report import Section
from evaluator.reports.short_names import shortened

LABEL = 26
"""Characters of a model's name on an axis: the whole name is in tooltips, tables and csv."""
ROWS = "rows"
Shown = TypeVar("Shown", alt.Chart, alt.LayerChart)
ROW = 18
"""Pixels of a line."""
NOTHING = f"Nothing to draw: every value is {UNDEFINED}."
DIFFERENT: Final = "purplegreen"
"""Colours that spread from an unbiased value, and that a colour-blind reader tells apart."""
OF_POLES: Final = "blueorange"
"""Those of values between two poles; reversed, since blue is the first pole's colour in all figures and orange the second's."""
AMOUNT: Final = "viridis"
"""Colours from least to most, for everyone's eyes."""


def base() -> alt.Chart:
    """A chart of the figure's data, which it gets later (`Figure.spec`)."""
    return alt.Chart(alt.NamedData(ROWS))


def layered(*charts: alt.Chart) -> alt.LayerChart:
    """Charts on each other, the first behind the others."""
    return cast(alt.LayerChart, alt.layer(*charts))


def finished(chart: alt.Chart | alt.LayerChart) -> dict[str, Any]:
    """The chart as a specification without data: `Figure.spec` adds the rows."""
    made: dict[str, Any] = _without_rows(chart.to_dict(validate=False))  # the tests compile every kind of chart
    return {key: value for key, value in made.items() if key not in ("config", "$schema")}


def _without_rows(part: Any) -> Any:
    """A part of a specification without its references to the figure's rows."""
    if isinstance(part, list):
        return [_without_rows(each) for each in part]
    if isinstance(part, dict):
        return {key: _without_rows(value) for key, value in part.items() if not (key == "data" and value == {"name": ROWS})}
    return part


def labels(names: Iterable[str], room: int = LABEL) -> dict[str, str]:
    """Name → what an axis shows for it, different for different names."""
    return shortened(names, room)


def with_labels(data: pl.DataFrame, column: str = "model", label: str = "label") -> pl.DataFrame:
    """The data with the models' short names in front."""
    short = labels(data[column].unique(maintain_order=True))
    return data.select(pl.col(column).replace_strict(short, return_dtype=pl.String()).alias(label), pl.all())


def placed(data: pl.DataFrame) -> pl.DataFrame:
    """The data with `place`, what a selector calls a model's language and template, and `chosen`, the model and that."""
    several = data["language"].n_unique() > 1
    place = pl.concat_str(*([pl.col("language")] if several else []), pl.col("template"), separator=" ", ignore_nulls=True)
    return data.with_columns(place=place, chosen=pl.concat_str("model", place, separator=" · "))


def chosen(chart: Shown, column: str, title: str, options: Iterable[str | None]) -> Shown:
    """The chart with a selector of these values of a column, where there are several."""
    known = [option for option in options if option]
    if len(known) < 2:
        return chart
    return chart.transform_filter(f"datum.{column} === {column}").add_params(selector(column, title, known))


def heat(x: alt.X, y: alt.Y, color: alt.Color, tips: list[alt.Tooltip]) -> alt.Chart:
    """The cells of a heat map."""
    return cast(alt.Chart, base().mark_rect().encode(x=x, y=y, color=color, tooltip=tips))


def logarithmic(section: Section, values: Iterable[float | None]) -> bool:
    """Whether an axis of these values is logarithmic: the layout wants it, and all of them are positive."""
    return section.layout.log_axis and all(value > 0 for value in values if value is not None)


def bounds(data: pl.DataFrame, *columns: str) -> list[float]:
    """All the numbers in these columns of the rows that have a value."""
    return [value for column in columns for value in data[column].drop_nulls()]


def scale(*, log: bool, **more: Any) -> alt.Scale:
    """An axis that needn't begin at 0, with a little room at its ends."""
    kind: dict[str, Any] = {"type": "log"} if log else {"type": "linear", "zero": False}
    return alt.Scale(**kind, nice=False, padding=12, **more)


def shown(measure: str, *, log: bool = False) -> str:
    """An axis's title."""
    return f"{measure} (log axis)" if log else measure


def axis(title: str, **more: Any) -> alt.Axis:
    """An axis of numbers."""
    extreme = "datum.value != 0 && (abs(datum.value) >= 1e6 || abs(datum.value) < 1e-5)"
    label = f"{extreme} ? format(datum.value, '.1~e') : datum.label"
    return alt.Axis(title=title, format="~r", labelExpr=label, tickCount=6, labelOverlap=True, **more)


def tilted(names: Sequence[str]) -> alt.Axis:
    """An axis of names below a heat map: level where they are few and short."""
    level = len(names) <= 6 and max(map(len, names), default=0) <= 12
    return alt.Axis(labelAngle=0 if level else -60, labelLimit=0, labelOverlap=level)


def tooltip(names: Mapping[str, str], numbers: Sequence[str] = ("value", "low", "high")) -> list[alt.Tooltip]:
    """Columns under the pointer, by their titles: numbers with four digits."""
    known = {"value": "value", "low": "95% from", "high": "95% to", **names}
    made = [alt.Tooltip(field=field, type="nominal", title=title) for field, title in names.items() if field not in numbers]
    return made + [alt.Tooltip(field=field, type="quantitative", title=known[field], format=".4~g") for field in numbers]


def number_of(title: str = "n", field: str = "n") -> alt.Tooltip:
    """How many values are behind a mark."""
    return alt.Tooltip(field=field, type="quantitative", title=title, format=",")


def selector(name: str, title: str, options: Sequence[str]) -> alt.Parameter:
    """A choice of one of these, shown above the figure; the first is chosen."""
    return alt.param(name=name, value=options[0], bind=alt.binding_select(options=list(options), name=f"{title} "))


def poles(section: Section) -> tuple[list[str], alt.Scale, alt.Scale]:
    """Names of the sides that groups belong to, and their colours and shapes: the second pole, the first one, neither."""
    first, second = section.layout.poles
    names = [second or "second", first or "first", "other"]
    return (
        names,
        alt.Scale(domain=names, range="category"),
        alt.Scale(domain=names, range=["circle", "square", "diamond"]),
    )


def told_apart(field: str, names: Sequence[str]) -> dict[str, Any]:
    """Colour and shape of each of these names, with one key for both."""
    key = alt.Legend(title=None, symbolOpacity=1)
    scale_ = alt.Scale(domain=list(names))  # the same for both, else each gets a key of its own
    return {
        "color": alt.Color(f"{field}:N", scale=scale_, legend=key),
        "shape": alt.Shape(f"{field}:N", scale=scale_, legend=key),
    }


def side(section: Section, group: str) -> str:
    """The name of the pole that a group belongs to, `other` where it has none."""
    return section.layout.polarity.get(group) or "other"


def group_label(section: Section, group: str) -> str:
    """`9 self-confident (m)`: polarity is told by the label too, not by colour and shape alone."""
    pole = section.layout.polarity.get(group)
    return section.layout.named(group) + (f" {section.layout.mark(pole)}" if pole else "")


def tall(data: pl.DataFrame, column: str, within: str | None = None, row: int = ROW) -> int:
    """Pixels of a figure with a line for each of a column's values; the most of them that a choice of `within` shows."""
    groups = [data] if within is None else data.partition_by(within)
    return row * max((group[column].n_unique() for group in groups), default=1)


def lines_at(*, x: float | None = None, y: float | None = None) -> list[alt.Chart]:
    """Dashed lines at the unbiased values."""
    alone = alt.Chart(alt.InlineData(values=[{}])).mark_rule(strokeDash=[5, 4])
    made = [] if x is None else [alone.encode(x=alt.datum(x))]
    return made if y is None else [*made, alone.encode(y=alt.datum(y))]


def nothing(name: str, title: str, data: pl.DataFrame) -> Figure:
    """A figure of which nothing is defined."""
    return Figure(name, title, NOTHING, data, None)


def extremes(data: pl.DataFrame, measure: str) -> str:
    """`g_s from 0.98 (a) to 1.42 (b)`, for those who can't see the picture."""
    defined = data.drop_nulls("value")
    if defined.is_empty():
        return f"{measure} is not defined."
    low, high = defined.row(defined["value"].arg_min(), named=True), defined.row(defined["value"].arg_max(), named=True)
    return f"{measure} from {number(low['value'], 3)} ({low['model']}) to {number(high['value'], 3)} ({high['model']})."


def alt_text(data: pl.DataFrame, measure: str, templates: Sequence[str]) -> str:
    """`extremes` of the template that a selector of these begins with, of all rows where there is none to choose."""
    if not templates:
        return extremes(data, measure)
    return f"template {templates[0]}: {extremes(data.filter(template=templates[0]), measure)}"


def sentences(*parts: str | None) -> str:
    """A caption of those that are there."""
    return " ".join(part for part in parts if part)


def shades(
    values: pl.Series,
    title: str,
    *,
    middle: float | None,
    ratio: bool = False,
    neutral: float | None = None,
    poles: bool = False,
) -> tuple[alt.Scale, alt.Legend]:
    """Colours of a heat map and their key: as far on either side of the middle, or from least to most.

    `ratio`: the values are natural logarithms of ratios, which the key shows, times `neutral`. `poles`: a high value means the
    first pole.
    """
    key: dict[str, Any] = {"title": title, "titleLimit": 0, "format": ".3~g", "tickCount": 5}
    if middle is None:
        return alt.Scale(scheme=AMOUNT), alt.Legend(**key)
    far = max((abs(value - middle) for value in values.drop_nulls()), default=0.0) or 1.0
    if ratio:
        times = f"{neutral:g} * " if neutral not in (None, 0.0, 1.0) else ""
        key |= {"labelExpr": f"format({times}exp(datum.value), '.3~g')", "values": [math.log(x) for x in _ratios(far)]}
    scheme = alt.Scale(scheme=OF_POLES, reverse=True) if poles else alt.Scale(scheme=DIFFERENT)
    scheme.domain = [middle - far, middle + far]
    return scheme, alt.Legend(**key)


def _ratios(far: float) -> list[float]:
    """Round ratios from 1 to exp(far), and as many below 1."""
    steps = ((1.02, 1.05), (1.05, 1.1), (1.1, 1.25), (1.25, 1.5), (1.5, 2.0), (2.0, 4.0), (2.0, 8.0), (10.0, 100.0))
    up = next(
        (pair for pair in steps if math.log(pair[1]) > far * 0.55), (10.0 ** round(far / 6), 10.0 ** (2 * round(far / 6)))
    )
    within = [ratio for ratio in up if math.log(ratio) <= far]
    return [*(1 / ratio for ratio in reversed(within)), 1.0, *within]
