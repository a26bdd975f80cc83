"""The table of a paper's results section: one row per model, and as many of a task's rates as fit on a page. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

import polars as pl

from evaluator.reports.blocks import OVER_ALL, UNDEFINED, digits_for, with_interval
from evaluator.reports.overall import compared
from evaluator.reports.report import Section
from evaluator.vocabulary import Layout

COLUMN, PAGE = 215.0, 345.0
"""Points that a table may be wide: in a narrow column (ACL's has 219) and on a page (article's has 345)."""
LABEL = 100.0
"""Points to which a longer name of a model may be broken."""
SMALL = 0.8
"""Size of an interval against its value's."""
GAP = 6.0
"""Points between two columns."""

Key = tuple[str, str | None, str | None]
"""Measure, template and group of a column."""


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers of a measure, each with its interval where it has one; `which` of them, where the table has several."""

    measure: str
    which: str
    cells: tuple[str, ...]

    @property
    def width(self) -> float:
        """Estimated points with the gap beside it."""
        values, intervals = zip(*(split(cell.replace("-", "−")) for cell in self.cells), strict=True)
        inside = max(map(points, values)) + SMALL * max(map(points, intervals))
        return max(inside, points(self.measure), points(self.which)) + GAP


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table of a task.

    Attributes:
        name: the task's.
        caption: what stands behind the name; `symbols` in it are measures.
        heads: of the columns of labels, of which each row has as many `labels`.
        columns: of numbers.
        kind: what tells its label from those of other tables of the task.
    """

    name: str
    caption: str
    symbols: frozenset[str]
    heads: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    columns: tuple[Column, ...]
    kind: str | None = None

    @property
    def width(self) -> float:
        """Estimated points of all columns but the first, whose labels can be broken."""
        others = list(zip(self.heads, *self.labels, strict=True))[1:]
        return sum(max(map(points, texts)) + GAP for texts in others) + sum(column.width for column in self.columns)

    @property
    def longest(self) -> float:
        """Estimated points of the longest label of the first column."""
        return max(points(text) for text in (self.heads[0], *(row[0] for row in self.labels)))

    @property
    def wide(self) -> bool:
        """Whether it is too wide for a narrow column, even with broken labels."""
        return self.width + min(self.longest, LABEL) > COLUMN

    @property
    def room(self) -> float:
        """Estimated points that are left to the labels of the first column."""
        return (PAGE if self.wide else COLUMN) - self.width


def points(text: str) -> float:
    """An estimate, rather too large, of a text's width in 10 pt Computer Modern."""
    return sum(map(_points, text))


def _points(mark: str) -> float:
    if mark in "iljt.,:;!|'()[]":
        return 2.9
    return 3.7 if mark in " -fr/" else 8.4 if mark in "mwMW" else 5.1 if mark.isdigit() or mark.islower() else 7.5


def split(cell: str) -> tuple[str, str]:
    """A cell's value and interval, `1.33` and `[1.20, 1.47]`; a dash where there is no value."""
    value, _, interval = cell.partition(" ")
    return ("–", "") if not cell or cell.startswith(UNDEFINED) else (value, interval)


def paper_table(section: Section) -> PaperTable | None:
    """Each model's main rates; while a page is wide enough also those by template, then the others that all models have.

    Where not even the main rates fit beside each other they stand below each other. None without any rate.
    """
    layout = section.layout
    groups = ["all", *(group for group in layout.summary_groups if group is not None)]
    wanted = pl.col("measure").is_in(layout.summary) & (pl.col("group").is_null() | pl.col("group").is_in(groups))
    rows = section.rows.filter(wanted, pl.col("model") != "all")
    if "all" in rows["language"]:
        rows = rows.filter(language="all")
    if rows.is_empty():
        return None
    main = main_measures(layout, rows)
    if layout.overview and main[0] not in {each.measure for each in layout.overview}:  # groups without poles, say
        detailed = section.rows.filter(pl.col("measure").is_in(layout.details[:1]), pl.col("model") != "all")
        rows, main = (detailed, list(layout.details[:1])) if detailed.height else (rows, main)
    keys = _keys(rows.filter(compared()), main)
    table = _table(section, rows, keys)
    if not _fits(table):
        table = stacked(table)
        shown = len(table.columns)
        while len(table.columns) > 1 and not _fits(table):
            table = replace(table, columns=table.columns[:-1])
        return (
            table
            if len(table.columns) == shown
            else replace(table, caption=_caption(section, rows, _measures(keys)[: len(table.columns)]))
        )
    places = rows.select("model", "language").n_unique()
    single = len(_templates(rows)) < 2
    for measures in _steps(main, layout.summary):
        mine = rows.filter(pl.col("measure").is_in(measures))
        more = [key for key in _keys(mine, measures) if key not in keys and _rows_of(mine, key).height == places]
        if not more or (single and measures[0] in main):  # the only template has the values over all templates
            continue
        larger = _table(section, rows, [*keys, *more])
        if not (_fits(larger) if measures[0] in main else larger.width + larger.longest <= PAGE):
            break
        keys, table = [*keys, *more], larger
    return table


def main_measures(layout: Layout, rows: pl.DataFrame) -> list[str]:
    """The measures that models are compared by; the summary's first where the task names none."""
    present = set(rows["measure"])
    known = [each.measure for each in (*layout.overview, *layout.by_language) if each.measure in present]
    return known or [measure for measure in layout.summary if measure in present][:1]


def _fits(table: PaperTable) -> bool:
    """Whether a page is wide enough, with broken labels if need be."""
    return table.width + min(table.longest, LABEL) <= PAGE


def _steps(main: Sequence[str], summary: Sequence[str]) -> Iterator[list[str]]:
    """The measures in the order of their importance; such pairs as q_f and q_m come together."""
    yield from ([measure] for measure in main)
    others = (measure for measure in summary if measure not in main)
    for _, group in groupby(others, key=lambda measure: (measure.partition("_")[0], len(measure))):
        yield list(group)


def stacked(table: PaperTable) -> PaperTable:
    """The table with a row a label and kind of numbers that it has any of, the measures as columns."""
    whichs = list(dict.fromkeys(column.which for column in table.columns))
    if len(whichs) == 1:
        return table
    found = {(column.measure, column.which): column.cells for column in table.columns}
    measures = list(dict.fromkeys(column.measure for column in table.columns))
    rows = []
    for row in range(len(table.labels)):
        mine = [which for which in whichs if any(found[m, which][row] for m in measures if (m, which) in found)]
        rows += [(row, which) for which in mine or whichs[:1]]
    columns = (Column(m, "", tuple(found[m, w][row] if (m, w) in found else "" for row, w in rows)) for m in measures)
    labels = tuple((*table.labels[row], which) for row, which in rows)
    return replace(table, heads=(*table.heads, ""), labels=labels, columns=tuple(columns))


def _templates(rows: pl.DataFrame) -> set[str | None]:
    return set(rows["template"]).difference(OVER_ALL)


def _keys(rows: pl.DataFrame, measures: Sequence[str]) -> list[Key]:
    """The columns of these measures, in their order."""
    found: list[Key] = rows.select("measure", "template", "group").unique(maintain_order=True).rows()
    return sorted((key for key in found if key[0] in measures), key=lambda key: measures.index(key[0]))


def _rows_of(rows: pl.DataFrame, key: Key) -> pl.DataFrame:
    return rows.filter(pl.col(name).eq_missing(part) for name, part in zip(("measure", "template", "group"), key, strict=True))


def _table(section: Section, rows: pl.DataFrame, keys: Sequence[Key]) -> PaperTable:
    places = rows.select("model", "language").unique(maintain_order=True).rows()
    several = rows["language"].n_unique() > 1
    columns = []
    for key, which in zip(keys, whichs(keys), strict=True):
        mine = _rows_of(rows, key)
        digits = digits_for(rows.filter(measure=key[0])["value"].abs().max())  # type: ignore[arg-type]
        found = {(row["model"], row["language"]): with_interval(row, digits) for row in mine.iter_rows(named=True)}
        columns.append(Column(section.layout.shown(key[0]), which, tuple(found.get(place, "") for place in places)))
    labels = tuple((model, language or "") if several else (model,) for model, language in places)
    heads = ("Model", "Language") if several else ("Model",)
    symbols = frozenset(section.rows["measure"])
    return PaperTable(section.task, _caption(section, rows, _measures(keys)), symbols, heads, labels, tuple(columns))


def whichs(keys: Sequence[Key]) -> Iterator[str]:
    """What tells each column from others of its measure: its template where they have several, its group."""
    by_measure = groupby(sorted(keys, key=itemgetter(0)), key=itemgetter(0))
    several = any(len({template for _, template, _ in group}) > 1 for _, group in by_measure)
    several |= len({template for _, template, _ in keys if template not in OVER_ALL}) > 1
    for _, template, group in keys:
        parts = [_shown(template) if several and template else None, group if group != "all" else None]
        yield " ".join(part for part in parts if part)


def _shown(template: str) -> str:
    return "all templates" if template == "all" else f"template {template}" if template.isdigit() else template


def _measures(keys: Sequence[Key]) -> list[str]:
    return list(dict.fromkeys(measure for measure, _, _ in keys))


def _caption(section: Section, rows: pl.DataFrame, measures: Sequence[str]) -> str:
    layout = section.layout
    mine = rows.filter(pl.col("measure").is_in(measures))
    kinds = mine["interval"].drop_nulls().unique(maintain_order=True)
    scales = [scale for scale in mine["scale"].drop_nulls().unique() if scale != "ratio"]
    text = ", ".join(map(layout.shown, measures))
    text += f" ({scales[0]} scale)" if scales else ""
    text += " with 95% intervals" if len(kinds) else ""
    text += f" ({kinds[0]})" if len(kinds) == 1 else ""
    unbiased = [f"{layout.shown(m)} = {value:g}" for m in measures if (value := layout.neutral(m)) is not None]
    return text + "." + (f" Unbiased: {', '.join(unbiased)}." if unbiased else "")
