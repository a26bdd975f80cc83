"""What a sample says, in one string: for lists of samples that people read. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

SENTENCES = ("s0", "s1", "s2", "s3")
"""Sentences of a word-filling sample."""


def texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns `sample` and `text` of a data set's frame (`Samples.frame`)."""
    said = [_text(row) for row in frame.iter_rows(named=True)]
    return pl.DataFrame({"sample": frame["sample"], "text": pl.Series(said, dtype=pl.String)})


def _text(row: Mapping[str, Any]) -> str:
    """The sample's own sentence, or its sentences with slashes between them."""
    for columns, make in _KINDS:
        if all(column in row for column in columns):
            return make(row)
    return " / ".join(str(value) for name, value in row.items() if name not in ("sample", "id") and isinstance(value, str))


def _with_words(row: Mapping[str, Any]) -> str:
    """WinoBias: the words of both sentences where they differ."""
    made = row["parts"][0]
    for male, female, part in zip(row["male"], row["female"], row["parts"][1:], strict=True):
        made += f"[{male}/{female}]{part}"
    return str(made)


def _context(row: Mapping[str, Any]) -> str:
    return " / ".join([row["context"], *row["sentences"]])


_KINDS: tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any]], str]], ...] = (
    (("more", "less"), lambda row: f"{row['more']} / {row['less']}"),
    (("masculine", "feminine"), lambda row: f"{row['masculine']} / {row['feminine']}"),
    (("sentence",), lambda row: str(row["sentence"])),
    (("context", "sentences"), _context),
    (("s0",), lambda row: " / ".join(row[name] for name in SENTENCES if row.get(name))),
    (("parts", "male", "female"), _with_words),
    (
        ("prefix", "male_word", "female_word", "suffix"),
        lambda row: f"{row['prefix']}[{row['male_word']}/{row['female_word']}]{row['suffix']}",
    ),
)
"""Columns that a kind of data set has, and how its text is made of them."""
