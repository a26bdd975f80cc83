"""Readers of GEST's CSV format: one sentence and its group a line."""

import csv
import io
from collections.abc import Collection
from pathlib import Path

import polars as pl

from evaluator_serving.errors import InputError

STEREOTYPES = tuple(str(i) for i in range(1, 17))
"""GEST's groups: 1-7 are female stereotypes, 8-16 male ones."""


def read_gest(path: Path) -> pl.DataFrame:
    """GEST (1.0 or 1.1): the file, or a folder that holds it as `gest.csv`. See `read_sentences`."""
    file = path / "gest.csv" if path.is_dir() else path
    return read_sentences(file, "sentence", "stereotype", STEREOTYPES)


def read_sentences(path: Path, sentence: str, group: str, groups: Collection[str]) -> pl.DataFrame:
    """Read a CSV with a header, a column of sentences and a column of groups; other columns are ignored.

    Repeated rows are kept and sentences are not changed in any way. Returns the columns `sample` (row from 0),
    `sentence`, `group`.

    Raises InputError, naming file, line and remedy: no such file, not UTF-8, not CSV, a column absent, a row with too
    few or too many fields, an empty sentence, a group that is not one of `groups`, no rows at all.
    """
    rows = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    sentences, labels = [], []
    line = 1
    try:
        header = next(rows, [])
        for column in (sentence, group):
            if header.count(column) != 1:
                found = repr(",".join(header))[:100]
                raise InputError(f"{path}: no column {column!r} in line 1 (found: {found}): the header must name it once")
        at, label_at = header.index(sentence), header.index(group)
        line = rows.line_num + 1  # where the next row begins: a quoted field may span lines
        for row in rows:
            if row:  # a blank line is no row
                if len(row) != len(header):
                    remedy = "put double quotes around a sentence with commas"
                    raise InputError(f"{path}, line {line}: {len(row)} fields instead of {len(header)}: {remedy}")
                sentences.append(_sentence(row[at], f"{path}, line {line}"))
                labels.append(_group(row[label_at], group, groups, f"{path}, line {line}"))
            line = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {line}: not valid CSV ({error}): check the quotation marks") from None
    if not sentences:
        raise InputError(f"{path}: no rows below the header: add sentences")
    frame = pl.DataFrame({"sentence": sentences, "group": labels}, schema={"sentence": pl.String, "group": pl.String})
    return frame.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("sample"), "sentence", "group")


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"no such file: {path}: give a CSV file") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}: give a readable CSV file") from None
    try:
        return data.decode("utf-8-sig")  # spreadsheets put a byte-order mark in front
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8: save the file as UTF-8") from None


def _sentence(value: str, where: str) -> str:
    if not value.strip():
        raise InputError(f"{where}: the sentence is empty: fill it in or delete the row")
    return value


def _group(value: str, column: str, groups: Collection[str], where: str) -> str:
    label = value.strip()
    if label not in groups:
        shown = "1 to 16" if tuple(groups) == STEREOTYPES else ", ".join(groups)
        raise InputError(f"{where}: {column} {value!r} is not one of {shown}: correct the row")
    return label
