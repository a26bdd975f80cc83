"""Unicode normal forms of a data set: an accented letter is one character (NFC) or two, which gives different tokens.

Texts are not normalized, because it depends on the model which form is right.
"""

from unicodedata import is_normalized

import polars as pl
from polars import selectors


def normal_forms(frame: pl.DataFrame) -> dict[str, int]:
    """Number of rows with characters beyond ASCII: entirely in normal form NFC (`nfc`), or not (`other`)."""
    texts = selectors.string() | selectors.by_dtype(pl.List(pl.String))
    columns = [
        pl.col(name).list.join(" ") if kind == pl.List else pl.col(name) for name, kind in frame.select(texts).schema.items()
    ]
    if not columns:
        return {"nfc": 0, "other": 0}
    rows = frame.select(pl.concat_str(columns, separator=" ", ignore_nulls=True).alias("text"))["text"]
    non_ascii = rows.filter(rows.str.contains(r"[^\x00-\x7F]"))
    nfc = sum(is_normalized("NFC", text) for text in non_ascii)
    return {"nfc": nfc, "other": non_ascii.len() - nfc}
