"""CSV files of publishers and users: read row by row; what is wrong with one is said with its line and what to do."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from evaluator_serving.errors import InputError


def parsed(lines: Iterable[str], path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """(line where it begins, fields) of each row that isn't blank, the header's first; a quoted field may span lines.

    Raises InputError, in which `path` is named, for wrong quotation marks and rows of another length than the first.
    """
    rows = csv.reader(lines, strict=True, delimiter=delimiter)
    line, width = 1, None
    try:
        for row in rows:
            width = width or len(row)
            if row:
                if len(row) != width:
                    remedy = "put double quotes around a text with commas"
                    raise InputError(f"{path}, line {line}: {len(row)} fields instead of {width}: {remedy}")
                yield line, row
            line = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {line}: not valid CSV ({error}): check the quotation marks") from None


def read_columns(path: Path, columns: Sequence[str], wanted: str = "give a CSV file") -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, the values of these columns) of each row below the header; other columns are ignored, values kept as they stand.

    Nothing else of the file is kept in memory. Raises InputError, with what is `wanted`, where there is no such file, and for
    a file that isn't UTF-8, isn't CSV or hasn't each of the columns once.
    """
    with _opened(path, wanted) as file:
        rows = parsed(file, path)
        _, header = next(rows, (1, []))
        places = [_place(path, header, column) for column in columns]
        for line, row in rows:
            yield line, tuple(row[place] for place in places)


def columns_of(path: Path, wanted: str = "give a CSV file") -> tuple[str, ...]:
    """The names in a file's header, each of which it has once. Raises InputError as `read_columns` does."""
    with _opened(path, wanted) as file:
        _, header = next(parsed(file, path), (1, []))
    for name in header:
        _place(path, header, name)
    return tuple(header)


@contextmanager
def _opened(path: Path, wanted: str) -> Iterator[TextIO]:
    """The file to read; what goes wrong with it meanwhile is an InputError."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets put a byte-order mark in front
            yield file
    except UnicodeDecodeError:
        raise InputError(f"{path}, line {_undecodable(path)}: not UTF-8: save the file as UTF-8") from None
    except FileNotFoundError:
        raise InputError(f"no such file: {path}: {wanted}") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}: {wanted}") from None


def _place(path: Path, header: list[str], name: str) -> int:
    if header.count(name) != 1:
        found = repr(",".join(header))[:100]
        raise InputError(f"{path}: no column {name!r} in line 1 (found: {found}): the header must name it once")
    return header.index(name)


def _undecodable(path: Path) -> int:
    """The first line (from 1) that is not UTF-8. No other character's bytes contain a line break's."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1
