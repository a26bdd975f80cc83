"""Which sentences are complete while answers come in any order."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import polars as pl

from evaluator_serving.table import Ragged, offsets_of


class Sentences:
    """The sentences (a task's samples) of one model whose answers aren't all there yet."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], requests: Sequence[str], answered: Collection[str]) -> None:
        """`tables`: task → its requests (columns sample, request); `requests`: all that are encoded; `answered`: those that
        have an answer already."""
        columns = pl.col("sample").cast(pl.String), pl.col("request")
        of = pl.concat([table.select(pl.lit(task).alias("task"), *columns) for task, table in tables.items()])
        missing = of.unique().filter(~pl.col("request").is_in(list(answered)))
        sentences = missing.group_by("task", "sample").agg("request").with_row_index("sentence")
        self._missing = sentences["request"].list.len().to_numpy().astype(np.int64)
        places = pl.DataFrame({"request": requests}, schema={"request": pl.String}).with_row_index("place")
        read = places.join(sentences.explode("request"), on="request").sort("place")
        self._of = Ragged(read["sentence"].to_numpy(), offsets_of(np.bincount(read["place"], minlength=len(requests))))

    def answered(self, places: Sequence[int]) -> int:
        """These requests (by their places among all) have an answer now. Returns how many sentences that completes."""
        sentences, answers = np.unique(self._of.take(np.asarray(places, dtype=np.intp)).flat, return_counts=True)
        self._missing[sentences] -= answers
        return int(np.count_nonzero(self._missing[sentences] == 0))
