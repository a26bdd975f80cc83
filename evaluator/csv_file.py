"""Read CSV files row by row, with errors that name the line and a remedy."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluator.text_file import SAVE, no_nul, opened
from evaluator_serving.errors import InputError


def parsed(lines: Iterable[str], path: Path, delimiter: str = ",", remedy: str = SAVE) -> Iterator[tuple[int, list[str]]]:
    """(first line number, fields) of each row that is not blank, including the header; a quoted field may span lines.

    Raises InputError for wrong quotation marks, for rows whose length differs from the first, and (with `remedy`) for NUL
    characters.
    """
    rows = csv.reader(lines, strict=True, delimiter=delimiter)
    line, width = 1, None
    try:
        for row in rows:
            width = width or len(row)
            if row:
                no_nul("".join(row), path, line, remedy)
                if len(row) != width:
                    fields = f"{len(row)} field{'s' if len(row) > 1 else ''}"
                    remedy = "put double quotes around text with commas" if len(row) > width else "complete or delete the row"
                    raise InputError(f"{path}, line {line}: {fields} instead of {width}: {remedy}")
                yield line, row
            line = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {line}: not valid CSV ({error}): check the quotation marks") from None


def read_columns(
    path: Path, columns: Sequence[str], wanted: str = "give a CSV file", remedy: str = SAVE, encoding: str | None = None
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line number, values of these columns) of each row below the header, streamed; other columns are ignored.

    Raises InputError for a missing file (with `wanted`), for another encoding (with `remedy`, see `text_file`), and for a
    file that is not CSV or does not have each column exactly once.
    """
    with opened(path, remedy, wanted=wanted, encoding=encoding) as file:
        rows = parsed(file, path, remedy=remedy)
        _, header = next(rows, (1, []))
        indices = [_index(path, header, column) for column in columns]
        for line, row in rows:
            yield line, tuple(row[index] for index in indices)


def columns_of(path: Path, wanted: str = "give a CSV file") -> tuple[str, ...]:
    """The unique column names of a file. Raises InputError as `read_columns` does."""
    with opened(path, wanted=wanted) as file:
        _, header = next(parsed(file, path), (1, []))
    for name in header:
        _index(path, header, name)
    return tuple(header)


def read_as(path: Path, encoding: str, delimiter: str = ",") -> dict[str, Any]:
    """`Samples.facts` on how a user's file was decoded; they are recorded in run.json and shown in reports."""
    return {"read_as": {path.name: {"encoding": encoding, "delimiter": delimiter}}}


def _index(path: Path, header: list[str], name: str) -> int:
    if header.count(name) != 1:
        columns = repr(",".join(header))[:100]
        what = "no" if name not in header else "more than one"
        raise InputError(f"{path}: {what} column {name!r} in line 1 (found: {columns}): the header must name it once")
    return header.index(name)
