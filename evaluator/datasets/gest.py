"""Readers of GEST's CSV format: one sentence and its group a line."""

import csv
from collections.abc import Collection, Iterator
from pathlib import Path

import polars as pl

from evaluator_serving.errors import InputError

STEREOTYPES = tuple(str(i) for i in range(1, 17))
"""GEST's groups: 1-7 are female stereotypes, 8-16 male ones."""


def read_sentences(
    path: Path, sentence: str, group: str, groups: Collection[str], rows: Collection[int] | None = None
) -> pl.DataFrame:
    """Read a CSV with a header, a column of sentences and a column of groups; other columns are ignored.

    Repeated rows are kept and sentences are not changed in any way. Returns the columns `sample` (row from 0),
    `sentence`, `group`; with `rows` only these rows, however long the file is.

    Raises InputError, naming file, line and remedy: no such file, not UTF-8, not CSV, a column absent, a row with too
    few or too many fields, an empty sentence, a group that is not one of `groups`, no rows at all.
    """
    kept = [(number, *row) for number, row in enumerate(_rows(path, sentence, group, groups)) if rows is None or number in rows]
    schema = {"sample": pl.Int64, "sentence": pl.String, "group": pl.String}
    return pl.DataFrame(kept, schema=schema, orient="row")


def read_groups(path: Path, sentence: str, group: str, groups: Collection[str]) -> pl.Series:
    """Only the groups of all rows that `read_sentences` would return; everything is checked as there."""
    return pl.Series("group", [label for _, label in _rows(path, sentence, group, groups)], dtype=pl.String)


def _rows(path: Path, sentence: str, group: str, groups: Collection[str]) -> Iterator[tuple[str, str]]:
    """(sentence, group) of a row after the other; nothing else of the file is kept in memory."""
    line = 1
    found = False
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets put a byte-order mark in front
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            at, label_at = (_column(path, header, column) for column in (sentence, group))
            known = {label: label for label in groups}  # one string a group, not one a row
            line = rows.line_num + 1  # where the next row begins: a quoted field may span lines
            for row in rows:
                if row:  # a blank line is no row
                    if len(row) != len(header):
                        remedy = "put double quotes around a sentence with commas"
                        raise InputError(f"{path}, line {line}: {len(row)} fields instead of {len(header)}: {remedy}")
                    if not row[at].strip():
                        raise InputError(f"{path}, line {line}: the sentence is empty: fill it in or delete the row")
                    label = known.get(row[label_at].strip())
                    if label is None:
                        raise InputError(f"{path}, line {line}: {_unknown(row[label_at], group, groups)}")
                    yield row[at], label
                    found = True
                line = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {line}: not valid CSV ({error}): check the quotation marks") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}, line {_undecodable(path)}: not UTF-8: save the file as UTF-8") from None
    except FileNotFoundError:
        raise InputError(f"no such file: {path}: give a CSV file") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}: give a readable CSV file") from None
    if not found:
        raise InputError(f"{path}: no rows below the header: add sentences")


def _column(path: Path, header: list[str], name: str) -> int:
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


def _unknown(value: str, column: str, groups: Collection[str]) -> str:
    shown = "1 to 16" if tuple(groups) == STEREOTYPES else ", ".join(groups)
    return f"{column} {value!r} is not one of {shown}: correct the row"
