"""Plots of the HTML report, from a section's rows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl

from evaluator.reports.blocks import UNDEFINED, detail_groups, interval_kinds, language_extent, ordered_groups, with_interval
from evaluator.reports.report import Section
from evaluator.reports.svg import Axis, Drawing, axis_over
from evaluator.vocabulary import Overview

ROW = 18.0
_PANEL = 230.0
_SPACE = 26.0
_PER_LINE = 4
"""Panels side by side before the next line begins."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture with its title and a sentence on how to read it; without a picture the sentence says why."""

    title: str
    caption: str
    svg: str


def plots(section: Section) -> Iterator[Plot]:
    """All plots of a section: models side by side, then by group for each model, ranks, correlations."""
    for overview in section.layout.overview:
        yield from _overview(section, overview)
    for overview in section.layout.by_language:
        yield from _heat(section, overview)
    for measure in section.layout.details:
        rows = section.rows.filter(pl.col("measure") == measure, pl.col("group").is_not_null(), pl.col("group") != "all")
        if rows.height and detail_groups(section, rows)[0]:
            for (model,), part in rows.partition_by("model", as_dict=True, maintain_order=True).items():
                yield _intervals(section, measure, str(model), part)
    for measure in section.layout.ranks:
        yield from _ranks(section, measure)
    for measure in section.layout.pairs:
        yield from _pairs(section, measure)


def _said(row: Mapping[str, Any]) -> str:
    """A value with its interval and n, for the pointer."""
    return f"{with_interval(row, 3)}, n = {row['n']}"


def _nothing(title: str) -> Plot:
    return Plot(title, f"Nothing to draw: every value is {UNDEFINED}.", "")


def _drawn(drawing: Drawing, axis: Axis, row: Mapping[str, Any], y: float, kind: str, name: str) -> None:
    """A value with its interval at height y, or a word that there is none."""
    if row["value"] is None:
        drawing.text(axis.start + 4, y + 4, UNDEFINED, "tick")
        return
    if row["low"] is not None and row["high"] is not None:
        drawing.line(axis(row["low"]), y, axis(row["high"]), y, f"{kind}-line")
    drawing.marker(axis(row["value"]), y, 4.2, kind, f"{name}: {_said(row)}")


def _bounds(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Everything that is drawn of these rows: none of it where there is no value."""
    return [row[k] for row in rows if row["value"] is not None for k in ("value", "low", "high") if row[k] is not None]


def _group_label(section: Section, group: str) -> str:
    """`9 self-confident (m)`: polarity is told by the label, by the marker's shape and by its colour."""
    pole = section.layout.polarity.get(group)
    return section.layout.named(group) + (f" {section.layout.mark(pole)}" if pole else "")


def _label_room(labels: Sequence[str]) -> float:
    return 12 + 7.2 * max(map(len, labels), default=0)


def _intervals(section: Section, measure: str, model: str, rows: pl.DataFrame) -> Plot:
    """A panel a template: groups from top to bottom, value and interval of each, one axis for all panels."""
    groups, _ = detail_groups(section, rows)
    rows = rows.filter(pl.col("group").is_in(groups))
    labels = [_group_label(section, g) for g in groups]
    left = _label_room(labels)
    several = section.rows["language"].n_unique() > 1
    panels = [
        (place, list(part)) for place, part in groupby(rows.iter_rows(named=True), key=lambda row: _panel_name(row, several))
    ]
    values = _bounds(list(rows.iter_rows(named=True)))
    if not values:
        return _nothing(f"{measure} by group, {model}")
    lines = -(-len(panels) // _PER_LINE)
    height = ROW * len(groups) + 78
    width = left + min(len(panels), _PER_LINE) * (_PANEL + _SPACE)
    drawing = Drawing(width, height * lines, f"{measure} of {model} by group with 95% intervals")
    for index, (name, part) in enumerate(panels):
        x = left + index % _PER_LINE * (_PANEL + _SPACE)
        y = index // _PER_LINE * height + 24
        bottom = y + ROW * len(groups)
        axis = axis_over(values, x, x + _PANEL, log=section.layout.log_axis)
        drawing.text(x + _PANEL / 2, y - 9, name, "panel", "middle")
        drawing.x_axis(axis, y, bottom, measure + (" (log axis)" if axis.log else ""))
        found = {row["group"]: row for row in part}
        for position, group in enumerate(groups):
            middle = y + ROW * (position + 0.5)
            kind = section.layout.side(group)
            if index % _PER_LINE == 0:
                drawing.text(left - 8, middle + 4, labels[position], f"label {kind}-text", "end")
            if position and kind != section.layout.side(groups[position - 1]):
                drawing.line(x, middle - ROW / 2, x + _PANEL, middle - ROW / 2, "between")
            row = found.get(group)
            if row is not None:
                _drawn(drawing, axis, row, middle, kind, labels[position])
    caption = " ".join(filter(None, [_shapes(section), section.layout.notes.get(measure), *interval_kinds(rows)]))
    return Plot(f"{measure} by group, {model}", caption, drawing.markup())


def _shapes(section: Section) -> str:
    """What the markers' shapes say."""
    layout = section.layout
    if not layout.polarity:
        return ""
    first, second = (f"{layout.mark(pole)}: {pole} groups" for pole in layout.poles)
    return f"Circles {second}; squares {first}."


def _panel_name(row: Mapping[str, Any], several: bool) -> str:
    """`template 1` or a template's own name, with the language in front where there are several."""
    template = row["template"] or ""
    shown = f"template {template}" if template.isdigit() else template
    return " ".join(text for text in (row["language"] if several else None, shown) if text)


def _overview(section: Section, overview: Overview) -> Iterator[Plot]:
    """Models from top to bottom by their overall value; templates as small marks, the overall value with its interval."""
    rows = section.rows.filter(pl.col("measure") == overview.measure, pl.col("group").is_null() | (pl.col("group") == "all"))
    for (language,), part in rows.partition_by("language", as_dict=True, maintain_order=True).items():
        models = {str(model): list(group) for model, group in groupby(part.iter_rows(named=True), key=lambda row: row["model"])}
        # the overall row is the last of a model's rows: `all`, `overall`, or its only template
        overalls = {model: group[-1]["value"] for model, group in models.items()}
        order = sorted(models, key=lambda m: (overalls[m] is not None, overalls[m] or 0.0), reverse=True)
        labels = [m if len(m) <= 48 else m[:47] + "…" for m in order]
        left, top, span = _label_room(labels), 10.0, 560.0
        values = _bounds([row for group in models.values() for row in group])
        title = f"{overview.measure} of all models" + (f", {language}" if rows["language"].n_unique() > 1 else "")
        if not values:
            yield _nothing(title)
            continue
        if overview.neutral is not None:
            values.append(overview.neutral)
        axis = axis_over(values, left, left + span, log=section.layout.log_axis)
        marks = _marks([row["template"] or "" for group in models.values() for row in group[:-1]])
        bottom = top + ROW * 1.2 * len(order)
        drawing = Drawing(left + span + 20, bottom + 42, f"{overview.measure} of all models with 95% intervals")
        drawing.x_axis(axis, top, bottom, overview.measure + (" (log axis)" if axis.log else ""))
        if overview.neutral is not None:
            drawing.line(axis(overview.neutral), top, axis(overview.neutral), bottom, "neutral")
        for position, model in enumerate(order):
            middle = top + ROW * 1.2 * (position + 0.5)
            drawing.text(left - 8, middle + 4, labels[position], "label", "end")
            *templates, overall = models[model]
            for row in templates:
                if row["value"] is None:
                    continue
                name = f"{model}, template {row['template']}: {_said(row)}"
                drawing.text(axis(row["value"]), middle + 4, marks[row["template"] or ""], "numeral", "middle")
                drawing.marker(axis(row["value"]), middle, 6.5, "template", name)
            _drawn(drawing, axis, overall, middle, "other", model)
        named = ", ".join(f"{mark} {name}" for name, mark in marks.items() if name != mark) or "single templates"
        places = "Diamonds: the overall value with its 95% interval" + (f"; in circles: {named}." if marks else ".")
        neutral = f" Dashed line: {overview.neutral:g}, unbiased." if overview.neutral is not None else ""
        yield Plot(title, " ".join([places + neutral, *interval_kinds(part)]), drawing.markup())


_CELL = 46.0
_STEPS = 9
"""Shades on either side of the unbiased value."""


def _heat(section: Section, overview: Overview) -> Iterator[Plot]:
    """Languages from top to bottom, models from left to right; the darker a cell, the farther from the unbiased value."""
    rows = section.rows.filter(pl.col("measure") == overview.measure, pl.col("template") == "all")
    if rows.is_empty():
        return
    title = f"{overview.measure} by language and model"
    if rows["value"].null_count() == rows.height:
        yield _nothing(title)
        return
    models = rows["model"].unique(maintain_order=True).to_list()
    languages = rows["language"].unique(maintain_order=True).to_list()
    extent = language_extent(section)
    labels = [f"{language} {extent[language]}" if language in extent else language for language in languages]
    left, top = _label_room(labels), 14.0 + 14.0 * len(models)
    neutral = overview.neutral or 0.0
    found = {(row["language"], row["model"]): row for row in rows.iter_rows(named=True)}
    away = {key: _away(row["value"], neutral, log=section.layout.log_axis) for key, row in found.items()}
    farthest = max((abs(v) for v in away.values() if v is not None), default=0.0) or 1.0
    drawing = Drawing(left + _CELL * len(models) + 220, top + ROW * len(languages) + 10, title)
    for column, model in enumerate(models):
        x = left + _CELL * (column + 0.5)
        drawing.text(x, 14.0 * (column + 1), model if len(model) <= 40 else model[:39] + "…", "label")
        drawing.line(x - 4, 14.0 * (column + 1), x - 4, top, "grid")
    for line, language in enumerate(languages):
        y = top + ROW * line
        drawing.text(left - 8, y + ROW / 2 + 4, labels[line], "label", "end")
        for column, model in enumerate(models):
            row = found.get((language, model))
            if row is None:
                continue
            x, far = left + _CELL * column, away[language, model]
            if far is not None:
                side = "first" if far > 0 else "second"
                shade = round(_STEPS * abs(far) / farthest)
                drawing.bar(x, y, _CELL - 1, ROW - 1, f"{side} heat{shade}", f"{model}, {labels[line]}: {_said(row)}")
            drawing.text(x + _CELL / 2, y + ROW / 2 + 4, UNDEFINED if far is None else f"{row['value']:.2f}", "label", "middle")
    caption = (
        f"Cells: {overview.measure}, {neutral:g} is unbiased; one colour stands for more, the other for less, the stronger the "
        "farther. Beside a language: how much of the data it has, and which share of that are pairs."
    )
    yield Plot(title, caption, drawing.markup())


def _away(value: float | None, neutral: float, *, log: bool) -> float | None:
    """How far a value is from the unbiased one; ratios on a logarithmic scale."""
    if value is None or (log and value <= 0):
        return None
    return math.log(value / neutral) if log else value - neutral


def _marks(templates: Sequence[str]) -> dict[str, str]:
    """What stands for each template in a small circle: numbers for themselves, letters for names."""
    names = sorted(set(templates))
    return {name: name if name.isdigit() else chr(ord("a") + index) for index, name in enumerate(names)}


def _ranks(section: Section, measure: str) -> Iterator[Plot]:
    """How often each group has each rank over all models and templates: the larger the mark, the more often."""
    rows = section.rows.filter(pl.col("measure") == measure)
    places = rows.select("model", "language", "template").n_unique() if rows.height else 0
    if places < 2:
        return
    groups = ordered_groups(section, rows)
    lowest, of = section.layout.lowest, (*section.layout.details, "value")[0]
    title = f"{lowest} ranks".lstrip()
    title = title[:1].upper() + title[1:]
    rows = rows.drop_nulls("value")
    if rows.is_empty():
        yield _nothing(title)
        return
    labels = [_group_label(section, g) for g in groups]
    left, top, step = _label_room(labels), 8.0, 26.0
    right = left + step * len(groups)
    bottom = top + ROW * len(groups)
    drawing = Drawing(right + 20, bottom + 42, f"distribution of {measure} by group")
    for rank in range(1, len(groups) + 1):
        x = left + step * (rank - 0.5)
        drawing.line(x, top, x, bottom, "grid")
        drawing.text(x, bottom + 14, str(rank), "tick", "middle")
    drawing.text((left + right) / 2, bottom + 30, f"{lowest} rank (1: lowest {of})".lstrip(), "axis", "middle")
    counts = {(g, v): n for g, v, n in rows.group_by("group", "value").len().iter_rows()}
    medians = dict(rows.group_by("group").agg(pl.col("value").median()).iter_rows())
    for position, group in enumerate(groups):
        middle = top + ROW * (position + 0.5)
        kind = section.layout.side(group)
        drawing.text(left - 8, middle + 4, labels[position], f"label {kind}-text", "end")
        for (name, rank), count in sorted(counts.items()):
            if name == group:
                size = 1.5 + 6.5 * (count / places) ** 0.5
                tip = f"{labels[position]}: rank {rank:g} in {count} of {places}"
                drawing.marker(left + step * (rank - 0.5), middle, size, f"{kind} soft", tip)
        if group in medians:
            x = left + step * (medians[group] - 0.5)
            drawing.line(x, middle - 8, x, middle + 8, "median")
        else:
            drawing.text(left + 4, middle + 4, UNDEFINED, "tick")
    caption = f"Over {places} pairs of model and template. The larger a mark, the more often; bars: medians. {_shapes(section)}"
    yield Plot(title, caption, drawing.markup())


def _pairs(section: Section, measure: str) -> Iterator[Plot]:
    """Histogram of correlations over pairs, in bins of 0.05."""
    rows = section.rows.filter(pl.col("measure") == measure, pl.col("model") != "all")
    if rows.height < 2:
        return
    rows = rows.drop_nulls("value")
    if rows.is_empty():
        yield _nothing(f"Correlations: {measure}")
        return
    size = 0.05
    bins: dict[int, int] = {}
    for value in rows["value"]:
        index = min(max(int((value + 1) // size), 0), round(2 / size) - 1)
        bins[index] = bins.get(index, 0) + 1
    first = min(bins)
    axis = axis_over([first * size - 1, 1.0], 40.0, 440.0, log=False)
    top, bottom, most = 10.0, 110.0, max(bins.values())
    drawing = Drawing(460, bottom + 42, f"histogram of {measure}")
    drawing.x_axis(axis, top, bottom, f"{measure} (Pearson)")
    for index, count in sorted(bins.items()):
        low, high = axis(index * size - 1), axis((index + 1) * size - 1)
        height = (bottom - top) * count / most
        tip = f"{index * size - 1:.2f} to {(index + 1) * size - 1:.2f}: {count} pairs"
        drawing.bar(low + 0.5, bottom - height, high - low - 1, height, "other soft", tip)
    drawing.text(34, top + 8, str(most), "tick", "end")
    drawing.text(34, bottom, "0", "tick", "end")
    mean = float(rows["value"].mean())  # type: ignore[arg-type]
    drawing.line(axis(mean), top, axis(mean), bottom, "median")
    caption = f"{rows.height} pairs, mean {mean:.2f} (bar)."
    yield Plot(f"Correlations: {measure}", caption, drawing.markup())
