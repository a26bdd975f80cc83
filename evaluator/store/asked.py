"""What models were asked of a task, as run.json tells it: pure.

{"limit": N or null, "seed": …, "samples": how many it comes to for this model}, by task in a model's entry. Where samples
can't be asked of the model: also "skipped", how many of them, and "reason", why the first one can't.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from evaluator.vocabulary import ORDER

Asked = Mapping[str, Any]


def widened(known: Mapping[str, Any], now: Mapping[str, Asked]) -> dict[str, Asked]:
    """What a model (`known`: its entry) has been asked by task, when it is asked `now` besides.

    A smaller limit takes nothing back. An older version recorded no limits: as long as a limit is asked, all that such a model
    has answered counts.
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


def asked_rows(table: pl.DataFrame, entry: Mapping[str, Any], task: str) -> pl.DataFrame:
    """The rows of a task's table that the model of this entry was asked."""
    limit = entry.get("asked", {}).get(task, {}).get("limit")
    if ORDER not in table.columns:
        return table
    return (table if limit is None else table.filter(pl.col(ORDER) < limit)).drop(ORDER)
