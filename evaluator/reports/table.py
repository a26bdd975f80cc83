"""The report for a terminal: plain aligned columns, 80 wide, wider tables cut into parts that each repeat the labels."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import polars as pl
from rich.text import Text

from evaluator.reports.beside import section_blocks
from evaluator.reports.blocks import Block
from evaluator.reports.local_paths import without_folders
from evaluator.reports.report import Report
from evaluator.reports.short_names import legend, shortened
from evaluator.store.remote import shown

WIDTH = 80
_GAP = 2


def render(report: Report, width: int = WIDTH, *, brief: bool = False) -> Iterator[Text]:
    """Lines of the report, none wider than `width` unless a single label and cell are; `brief`: each task's first table."""
    yield from (Text(line, style="yellow") for text in report.notes for line in _bullet("note: " + text, width))
    if report.notes:
        yield Text()
    for section in report.sections:
        lines = [f"{section.task} · {without_folders(shown(report.path))}", *report.choices]
        yield from (Text(line, style="bold") for text in lines for line in textwrap.wrap(text, width, subsequent_indent="  "))
        yield Text()
        made = section_blocks(section)
        if not made:
            yield from (Text("no scores yet"), Text())
        for block in made[:1] if brief else made:
            yield from block_lines(block, width)
        yield from (Text(line, style="yellow") for text in section.warnings for line in _bullet("warning: " + text, width))
        if section.warnings:
            yield Text()
    if brief:
        yield Text(f"by group, ranks, correlations: evaluator report {shown(report.path)}", style="dim")
    failed = report.failures.filter(
        (pl.col("kind") != "unaskable") | (pl.col("request") == "")
    ).height  # a note tells the others
    if failed:
        yield Text(f"{failed} failure{'s' if failed > 1 else ''}: evaluator status {shown(report.path)}", style="red")


def block_lines(block: Block, width: int) -> Iterator[Text]:
    """A table with its title and notes; names that don't fit are shortened, and told in full below it."""
    yield from (Text(line, style="bold") for line in textwrap.wrap(block.title, width, subsequent_indent="  "))
    labels = shortened([row.label for row in block.rows if row.cells], max(width // 2, len(block.columns[0])))
    headings = shortened([row.label for row in block.rows if row.heading], width)
    first = max(len(text) for text in (block.columns[0], *labels.values()))
    columns = [_column(block, i) for i in range(1, len(block.columns))]
    parts = list(_parts(columns, width - first)) if block.rows else []
    above = shortened(
        dict.fromkeys(c.above for c in columns if c.above), min((_narrowest(part) for part in parts), default=width)
    )
    for part in parts:
        yield from _part(block, first, part, {**labels, **headings}, above)
        yield Text()
    legend_lines = [line for names in (above, labels, headings) for line in legend(names)]
    yield from (
        Text(line, style="dim") for text in legend_lines for line in textwrap.wrap(text, width, subsequent_indent="    ")
    )
    if legend_lines:
        yield Text()
    for note in block.notes:
        yield from (Text(line, style="dim") for line in textwrap.wrap(note, width))
    if block.notes:
        yield Text()


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: `above` is the upper line of a two-line header, shared with neighbours."""

    above: str
    header: str
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        """Characters without the gap before it."""
        return max(map(len, (self.header, *self.cells)))


def _column(block: Block, index: int) -> _Column:
    above, _, header = block.columns[index].rpartition("\n")
    return _Column(above, header, tuple(row.cells[index - 1] if row.cells else "" for row in block.rows))


def _parts(columns: Sequence[_Column], room: int) -> Iterator[list[_Column]]:
    """Runs of columns that fit beside the labels, at least one each; a model's columns stay together where they fit."""
    part: list[_Column] = []
    for _, group in groupby(columns, key=lambda column: column.above or id(column)):
        together = list(group)
        if part and _needed(part + together) > room and _needed(together) <= room:
            yield part
            part = []
        for column in together:
            if part and _needed([*part, column]) > room:
                yield part
                part = []
            part.append(column)
    if part:
        yield part


def _needed(columns: Sequence[_Column]) -> int:
    return sum(_GAP + column.width for column in columns)


def _part(
    block: Block, first: int, part: Sequence[_Column], labels: Mapping[str, str], above: Mapping[str, str]
) -> Iterator[Text]:
    if any(column.above for column in part):
        yield Text(_models(part, first, above))
    yield Text(_line(block.columns[0].ljust(first), [c.header.rjust(c.width) for c in part]), style="underline")
    for index, row in enumerate(block.rows):
        cells = [column.cells[index].rjust(column.width) for column in part]
        if row.heading:
            yield Text(labels[row.label], style="bold")
        elif "".join(cells).strip():
            yield Text(_line(labels[row.label].ljust(first), cells))


def _line(label: str, cells: Sequence[str]) -> str:
    return (" " * _GAP).join([label, *cells]).rstrip()


def _models(part: Sequence[_Column], first: int, above: Mapping[str, str]) -> str:
    """The upper line of two-line headers, once above all neighbours that share it."""
    line = " " * first
    for name, group in groupby(part, key=lambda column: column.above):
        line += " " * _GAP + above.get(name, name).center(_needed(list(group)) - _GAP)
    return line.rstrip()


def _narrowest(part: Sequence[_Column]) -> int:
    """The room for the upper line of the narrowest run of columns that share it."""
    return min(_needed(list(group)) - _GAP for _, group in groupby(part, key=lambda column: column.above))


def _bullet(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ")
