"""Readers of GEST's CSV format: one sentence and its group per line."""

from collections.abc import Collection, Iterator
from pathlib import Path

import polars as pl

from evaluator.csv_file import read_columns
from evaluator.text_file import NAME_IT
from evaluator_serving.errors import InputError

STEREOTYPES = tuple(str(i) for i in range(1, 17))
"""GEST's groups: 1-7 are female stereotypes, 8-16 male ones."""


def read_sentences(
    path: Path,
    sentence: str,
    group: str,
    groups: Collection[str],
    rows: Collection[int] | None = None,
    encoding: str | None = None,
) -> pl.DataFrame:
    """Read a CSV with a header, a column of sentences and a column of groups; other columns are ignored.

    Repeated rows are kept, and sentences are not changed. Returns the columns `sample` (row from 0), `sentence`, `group`; only
    the rows in `rows` if given. `encoding`: see `text_file`.

    Raises InputError, with file, line and remedy, for a missing file, another encoding, invalid CSV, a missing column, a row
    with too few or too many fields, an empty sentence, an unknown group, and a file without rows.
    """
    selected = [
        (number, *row)
        for number, row in enumerate(_rows(path, sentence, group, groups, encoding))
        if rows is None or number in rows
    ]
    schema = {"sample": pl.Int64, "sentence": pl.String, "group": pl.String}
    return pl.DataFrame(selected, schema=schema, orient="row")


def read_groups(path: Path, sentence: str, group: str, groups: Collection[str], encoding: str | None = None) -> pl.Series:
    """The groups of all rows of `read_sentences`, with the same checks."""
    return pl.Series("group", [label for _, label in _rows(path, sentence, group, groups, encoding)], dtype=pl.String)


def _rows(path: Path, sentence: str, group: str, groups: Collection[str], encoding: str | None) -> Iterator[tuple[str, str]]:
    """(sentence, group) of each row, streamed."""
    known = {label: label for label in groups}  # one string per group instead of one per row
    empty = True
    for line, (text, written) in read_columns(path, (sentence, group), remedy=NAME_IT, encoding=encoding):
        if not text.strip():
            raise InputError(f"{path}, line {line}: the sentence is empty: fill it in or delete the row")
        label = known.get(written.strip())
        if label is None:
            raise InputError(f"{path}, line {line}: {_unknown(written, group, groups)}")
        yield text, label
        empty = False
    if empty:
        raise InputError(f"{path}: no rows below the header: add sentences")


def _unknown(value: str, column: str, groups: Collection[str]) -> str:
    shown = "1 to 16" if tuple(groups) == STEREOTYPES else ", ".join(groups)
    return f"{column} {value!r} is not one of {shown}: correct the row"
