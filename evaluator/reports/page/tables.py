"""Tables for a page: each row says all that it is about, so that it can be sorted and filtered apart from its neighbours."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from evaluator.reports.blocks import UNDEFINED, Block, TableRow

_NUMBER = re.compile(rf"[-−]?\d.*|{UNDEFINED}.*|")


@dataclass(frozen=True, slots=True)
class Flat:
    """A table without headings among its rows; `numeric` says of each column whether it holds numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    numeric: tuple[bool, ...]


def flat(block: Block) -> Flat:
    """A block with its headings as a column, and with models that stand side by side below each other."""
    columns, rows = _stacked(block) if any("\n" in name for name in block.columns) else _headed(block)
    used = [any(row[at] for row in rows) or bool(name) for at, name in enumerate(columns)]
    columns = tuple(name for name, kept in zip(columns, used, strict=True) if kept)
    rows = [tuple(cell for cell, kept in zip(row, used, strict=True) if kept) for row in rows]
    numeric = tuple(
        any(row[at] for row in rows) and all(_NUMBER.fullmatch(row[at]) for row in rows) for at in range(len(columns))
    )
    return Flat(block.title, columns, tuple(rows), block.notes, numeric)


def _headed(block: Block) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Rows with the heading that they stand under in front."""
    rows = [(heading, row.label, *row.cells) for heading, row in _under(block)]
    return (block.headings if any(row[0] for row in rows) else "", *block.columns), rows


def _under(block: Block) -> Iterator[tuple[str, TableRow]]:
    heading = ""
    for row in block.rows:
        if row.heading:
            heading = row.label
        else:
            yield heading, row


def _stacked(block: Block) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """One row per model and row of a block whose columns are models' places, in two lines."""
    named = [tuple(name.split("\n", 1)) for name in block.columns[1:]]
    places = list(dict.fromkeys(place for _, *rest in named for place in rest))
    rows = []
    for model, group in groupby(enumerate(named), key=lambda each: each[1][0]):
        at = {name[-1]: index for index, name in group}
        for heading, row in _under(block):
            rows.append((model, heading, row.label, *(row.cells[at[place]] if place in at else "" for place in places)))
    headings = block.headings if any(row[1] for row in rows) else ""
    return ("model", headings, block.columns[0], *places), rows
