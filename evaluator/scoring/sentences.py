"""Which sentences are complete while answers come in any order."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import polars as pl

Sentence = tuple[str, str]
"""A task and one of its samples."""


class Sentences:
    """The sentences of one model whose answers aren't all there yet."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], answered: Collection[str]) -> None:
        """`tables`: task → its requests (columns sample, request); `answered`: requests that have an answer already."""
        self._of: dict[str, list[Sentence]] = {}
        for task, table in tables.items():
            for sample, request in table.select(pl.col("sample").cast(pl.String), "request").unique().iter_rows():
                if request not in answered:
                    self._of.setdefault(request, []).append((task, sample))
        self._missing = Counter(sentence for sentences in self._of.values() for sentence in sentences)

    def answered(self, requests: Iterable[str]) -> int:
        """These requests have an answer now. Returns how many sentences that completes."""
        complete = 0
        for request in requests:
            for sentence in self._of.pop(request, ()):
                self._missing[sentence] -= 1
                complete += not self._missing[sentence]
        return complete
