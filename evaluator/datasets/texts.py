"""The text of a sample in one string, for lists of samples. Pure functions."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from evaluator.datasets.word_filling import SENTENCES


def texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns `sample` and `text` of a data set's frame (`Samples.frame`)."""
    lines = [_text(row) for row in frame.iter_rows(named=True)]
    return pl.DataFrame({"sample": frame["sample"], "text": pl.Series(lines, dtype=pl.String)})


def _text(row: Mapping[str, Any]) -> str:
    """The sample's sentence, or its sentences separated by slashes."""
    for columns, make in _KINDS:
        if all(column in row for column in columns):
            return make(row)
    return " / ".join(str(value) for name, value in row.items() if name not in ("sample", "id") and isinstance(value, str))


def _with_words(row: Mapping[str, Any]) -> str:
    """WinoBias: the sentence with the differing words of both versions."""
    pairs = zip(row["male"], row["female"], row["parts"][1:], strict=True)
    return str(row["parts"][0]) + "".join(f"[{male}/{female}]{part}" for male, female, part in pairs)


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
"""Columns of a kind of data set, and a function from its rows to texts."""
