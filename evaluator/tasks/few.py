"""Warnings of numbers that rest on few samples: one line per task, however many groups it has."""

from collections.abc import Sequence

import polars as pl

from evaluator.vocabulary import Layout

FEW = 20
"""Fewer samples than this are warned of: with 20, a percentile bootstrap of a mean is 9% narrower than Student's interval."""
_NAMED = 8
"""Of more groups than this only the smallest are named."""


def few_samples(counts: Sequence[tuple[str, int]], what: str = "groups") -> tuple[str, ...]:
    """A line on those of the (name, samples) that have fewer than FEW samples; nothing if none has."""
    few = sorted((count for count in counts if count[1] < FEW), key=lambda count: count[1])
    if not few:
        return ()
    named = ", ".join(f"{name}: {n}" for name, n in few[:_NAMED])
    more = f" and {len(few) - _NAMED} more" if len(few) > _NAMED else ""
    return (
        f"{len(few)} of {len(counts)} {what} have fewer than {FEW} samples ({named}{more}): their values are "
        "unreliable, and their bootstrap intervals too narrow",
    )


def few_by_group(rows: pl.DataFrame, layout: Layout) -> tuple[str, ...]:
    """`few_samples` of the groups of the measures that the layout shows in detail, each where it has the fewest."""
    detailed = rows.filter(pl.col("measure").is_in(layout.details), pl.col("group").is_not_null(), pl.col("group") != "all")
    least = detailed.group_by("group", maintain_order=True).agg(pl.col("n").min()).drop_nulls()
    return few_samples([(layout.named(group), n) for group, n in least.iter_rows()])
