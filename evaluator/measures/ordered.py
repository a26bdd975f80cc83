"""Aggregations within a group whose last bits don't depend on the number of threads.

Polars adds the parts of a group up as its threads happen to have cut them; over a list it adds from first to last. Sort
the rows, group with `maintain_order=True`, and use these instead of `sum`, `mean` and `pl.corr`: then two reports of one
run are equal, not almost equal.
"""

import polars as pl


def total(values: pl.Expr) -> pl.Expr:
    """Sum of a group's values in their order."""
    return values.implode().list.sum()


def mean(values: pl.Expr) -> pl.Expr:
    """Mean of a group's values, added up in their order; null for none."""
    return values.implode().list.mean()


def pearson(x: pl.Expr, y: pl.Expr) -> pl.Expr:
    """Pearson correlation of a group's pairs; NaN where a side doesn't vary."""
    dx, dy = x - mean(x), y - mean(y)
    r = total(dx * dy) / (total(dx * dx) * total(dy * dy)).sqrt()
    # Equal values are seldom equal to their rounded mean: what is left would correlate with anything.
    varies = (x.min() < x.max()) & (y.min() < y.max())
    return pl.when(varies).then(r.clip(-1.0, 1.0)).otherwise(float("nan"))
