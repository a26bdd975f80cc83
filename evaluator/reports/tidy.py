"""Tidy rows as CSV and JSON: exactly the columns TIDY, in that order, nothing rounded."""

import json

import polars as pl


def csv_text(rows: pl.DataFrame) -> str:
    """CSV with a header; a null is an empty field."""
    return rows.write_csv()


def json_text(rows: pl.DataFrame) -> str:
    """A JSON array with one object per row."""
    return json.dumps(rows.to_dicts(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
