"""Columns of the frames exchanged between packages: per-sample scores, and report rows."""

import polars as pl

SCORES: dict[str, pl.DataType] = {
    "model": pl.String(),
    "task": pl.String(),
    "language": pl.String(),
    "template": pl.String(),
    "sample": pl.Int64(),
    "group": pl.String(),
    "score": pl.Float64(),
}
"""Columns and types of per-sample scores (natural log). A task may append further columns."""

TIDY: dict[str, pl.DataType] = {
    "model": pl.String(),
    "task": pl.String(),
    "language": pl.String(),
    "template": pl.String(),
    "measure": pl.String(),
    "group": pl.String(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "n": pl.Int64(),
    "scale": pl.String(),
    "interval": pl.String(),
    "pole": pl.String(),
    "other": pl.String(),
    "protocol": pl.String(),
    "condition": pl.String(),
}
"""Columns and types of report rows; null if a column does not apply.

- `interval`: method of `low` and `high` (names in `evaluator.measures.intervals`).
- `pole`: pole of a GEST-like measure's group, or of a rate over groups (q_f, q_m, q_family).
- `other`: the second template or model of a correlation.
- `protocol`, `condition`: the run's protocol, and the name of the model's system prompt; filled in by reports.
"""


def tidy(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with exactly the columns TIDY, in order and type; missing columns are null.

    Numbers that are not finite become null: a value (an empty mean, an overflow) together with its interval, a bound alone.
    """
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in TIDY.items() if name not in rows.columns]
    rows = rows.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in TIDY.items())
    defined = pl.col("value").is_null() | pl.col("value").is_finite()
    numbers = [pl.when(defined & pl.col(c).is_finite()).then(c).alias(c) for c in ("value", "low", "high")]
    whole = pl.col("low").is_not_null() & pl.col("high").is_not_null()
    return rows.with_columns(numbers).with_columns(pl.when(whole).then("interval").alias("interval"))
