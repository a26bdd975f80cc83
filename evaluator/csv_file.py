"""CSV files of publishers and users: read row by row; what is wrong with one is said with its line and what to do."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluator.text_file import SAVE, no_nul, opened
from evaluator_serving.errors import InputError


def parsed(lines: Iterable[str], path: Path, delimiter: str = ",", remedy: str = SAVE) -> Iterator[tuple[int, list[str]]]:
    """(line where it begins, fields) of each row that isn't blank, the header's first; a quoted field may span lines.

    Raises InputError, in which `path` is named, for wrong quotation marks and rows of another length than the first, and with
    the remedy for a field with the character NUL.
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
                    remedy = "put double quotes around a text with commas" if len(row) > width else "complete or delete the row"
                    raise InputError(f"{path}, line {line}: {fields} instead of {width}: {remedy}")
                yield line, row
            line = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {line}: not valid CSV ({error}): check the quotation marks") from None


def read_columns(
    path: Path, columns: Sequence[str], wanted: str = "give a CSV file", remedy: str = SAVE, encoding: str | None = None
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, the values of these columns) of each row below the header; other columns are ignored, values kept as they stand.

    Nothing else of the file is kept in memory. Raises InputError, with what is `wanted`, where there is no such file, with the
    remedy where it is in another encoding (see `text_file`), and for a file that isn't CSV or hasn't each of the columns once.
    """
    with opened(path, remedy, wanted=wanted, encoding=encoding) as file:
        rows = parsed(file, path, remedy=remedy)
        _, header = next(rows, (1, []))
        places = [_place(path, header, column) for column in columns]
        for line, row in rows:
            yield line, tuple(row[place] for place in places)


def columns_of(path: Path, wanted: str = "give a CSV file") -> tuple[str, ...]:
    """The names in a file's header, each of which it has once. Raises InputError as `read_columns` does."""
    with opened(path, wanted=wanted) as file:
        _, header = next(parsed(file, path), (1, []))
    for name in header:
        _place(path, header, name)
    return tuple(header)


def read_as(path: Path, encoding: str, delimiter: str = ",") -> dict[str, Any]:
    """How a file of the user's was read, for `Samples.facts`; run.json keeps it and reports tell it."""
    return {"read_as": {path.name: {"encoding": encoding, "delimiter": delimiter}}}


def _place(path: Path, header: list[str], name: str) -> int:
    if header.count(name) != 1:
        found = repr(",".join(header))[:100]
        raise InputError(f"{path}: no column {name!r} in line 1 (found: {found}): the header must name it once")
    return header.index(name)
