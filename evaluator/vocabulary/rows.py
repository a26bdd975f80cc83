"""Frames that travel between packages, by their columns: per-sample scores, and the rows of a report."""

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
"""Columns and types of per-sample scores (natural log). A task may carry further columns behind these."""

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
"""Columns and types of every report row; null where a column does not apply.

`interval` says how `low` and `high` were made (names in `evaluator.measures.intervals`), null where there are none; `pole` is
the name of the pole that a GEST-like measure's group, or its rate over groups (q_f, q_m, q_family), belongs to; `other` is the
template or model that a correlation of pairs is with; `protocol` is how the models were asked, `condition` the name of
the system prompt under which this one was (null where none was chosen); reports fill both in.
"""


def tidy(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with exactly the columns TIDY, in their order and types; a column that they lack is null.

    Every number is finite or null: a value that isn't (a mean over nothing, the exponential of too much) is not defined and
    becomes null with its interval, a bound that isn't becomes null alone.
    """
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in TIDY.items() if name not in rows.columns]
    rows = rows.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in TIDY.items())
    defined = pl.col("value").is_null() | pl.col("value").is_finite()
    numbers = [pl.when(defined & pl.col(c).is_finite()).then(c).alias(c) for c in ("value", "low", "high")]
    whole = pl.col("low").is_not_null() & pl.col("high").is_not_null()
    return rows.with_columns(numbers).with_columns(pl.when(whole).then("interval").alias("interval"))
