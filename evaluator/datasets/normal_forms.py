"""Unicode normal forms of a data set: a letter with an accent is one character (NFC) or two, and other tokens in either case.

Nothing is normalized: which form a model has learnt from is for the user to say.
"""

from unicodedata import is_normalized

import polars as pl
from polars import selectors


def normal_forms(frame: pl.DataFrame) -> dict[str, int]:
    """How many rows hold letters beyond ASCII, all of them in normal form NFC (`nfc`), or some of them not (`other`)."""
    texts = selectors.string() | selectors.by_dtype(pl.List(pl.String))
    columns = [
        pl.col(name).list.join(" ") if kind == pl.List else pl.col(name) for name, kind in frame.select(texts).schema.items()
    ]
    if not columns:
        return {"nfc": 0, "other": 0}
    rows = frame.select(pl.concat_str(columns, separator=" ", ignore_nulls=True).alias("text"))["text"]
    beyond = rows.filter(rows.str.contains(r"[^\x00-\x7F]"))
    nfc = sum(is_normalized("NFC", text) for text in beyond)
    return {"nfc": nfc, "other": beyond.len() - nfc}
