"""Pearson correlations between columns of a long frame, for pairs of templates or models."""

from collections.abc import Sequence

import polars as pl

from evaluator.measures.ordered import pearson

LEAST_POINTS = 4
"""Fewest points of a correlation. Two always lie on a line, half of all unrelated triples have |r| above 0.7, and the
standard error of Fisher's z, 1/√(n − 3), exists from four on."""


def pairwise(rates: pl.LazyFrame, item: str, within: Sequence[str], over: str, value: str) -> pl.LazyFrame:
    """Pearson correlation of `value` for each pair of `item`s, matched on `over`.

    Args:
        rates: a row for each `within` × `item` × `over`.
        item: what is paired; each pair appears once, the smaller name first.
        within: columns that both of a pair share (a null equals a null).
        over: the column whose values are the points of the correlation.
        value: what is correlated.

    Returns: columns `within`, `item`, `other` (the second of the pair), `value`, `n` (common points); `value` is null with
    fewer than LEAST_POINTS of them or where one side doesn't vary.
    """
    keys = [*within, over]
    columns = rates.select(*keys, item, value)
    pairs = columns.join(columns, on=keys, how="inner", nulls_equal=True, suffix="_other").filter(
        pl.col(item) < pl.col(f"{item}_other")
    )
    correlated = (
        pairs.sort(over)
        .group_by(*within, item, pl.col(f"{item}_other").alias("other"), maintain_order=True)
        .agg(pearson(pl.col(value), pl.col(f"{value}_other")).alias("value"), pl.len().cast(pl.Int64).alias("n"))
    )
    defined = (pl.col("n") >= LEAST_POINTS) & pl.col("value").is_finite()
    return correlated.with_columns(pl.when(defined).then("value"))
