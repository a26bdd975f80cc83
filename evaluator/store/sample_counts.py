"""The samples of a task that a model was scored on, as recorded in run.json. Pure functions.

A model's entry has, by task, {"limit": N or null, "seed": …, "samples": number of samples}. If the model cannot score some
samples, the entry also has "skipped", their number, and "reason", the reason for the first one.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from evaluator.vocabulary import ORDER

SampleCounts = Mapping[str, Any]


def merge_counts(known: Mapping[str, Any], now: Mapping[str, SampleCounts]) -> dict[str, SampleCounts]:
    """Merge the samples requested `now` into those recorded in a model's entry (`known`), by task.

    A smaller limit removes nothing. Older versions recorded no limits: while a limit is set, everything that such a model has
    answered counts.
    """
    merged = dict(known.get("asked", {}))
    for task, new in now.items():
        old = merged.get(task)
        if old is None:
            if task not in known.get("heads_used", {}) or new["limit"] is None:
                merged[task] = new
        elif new["limit"] is None or (old["limit"] is not None and new["limit"] >= old["limit"]):
            merged[task] = new
    return merged


def limited_rows(table: pl.DataFrame, entry: Mapping[str, Any], task: str) -> pl.DataFrame:
    """The rows of a task's table for the samples in this model's entry."""
    limit = entry.get("asked", {}).get(task, {}).get("limit")
    if ORDER not in table.columns:
        return table
    return (table if limit is None else table.filter(pl.col(ORDER) < limit)).drop(ORDER)
