"""What a command needs to know of a model's encoded requests besides their ids: found where they were encoded."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from evaluator.scoring.coverage import tokens_of_task
from evaluator.store.answers import CHAT
from evaluator_serving.checks.verify import sample_passes, sample_rows
from evaluator_serving.rows import Row, Workload
from evaluator_serving.table import EncodedTable

SEVERAL = 1000
"""Candidates of several tokens that are listed at most."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """How much work one model still has.

    Attributes:
        requests: distinct requests; forwards: forward passes, after de-duplication.
        tokens: that the forward passes compute; longest: of the longest forward pass.
        several: candidates that are several tokens under this tokenizer, as text, with their token counts.
    """

    requests: int
    forwards: int
    tokens: int
    longest: int
    several: tuple[tuple[str, int], ...] = ()

    def scaled(self, divisor: float) -> "TokenCounts":
        """With tokens divided by this."""
        return replace(self, tokens=round(self.tokens / divisor), longest=round(self.longest / divisor))


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one model's encoded requests.

    Attributes:
        text_tokens: task → how much of its texts the tokenizer knows (see `evaluator.scoring.coverage`).
        counts: of the requests without an answer.
        rows, workload: what engines are loaded with: some of the rows, and the size of all, without requests given up.
        chats: whether there are chats among them.
    """

    text_tokens: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: TokenCounts = TokenCounts(0, 0, 0, 0)
    rows: tuple[Row, ...] = ()
    workload: Workload = Workload(0, 0, 1)  # noqa: RUF009
    chats: bool = False


def summarize(
    table: EncodedTable, tasks: Mapping[str, pl.DataFrame], answered: Set[str] = frozenset(), given_up: Set[str] = frozenset()
) -> Summary:
    """The summary of a table, and of the tasks (name → `Rendered.table`) whose requests it holds."""
    passes = _without(table, given_up).forwards
    return Summary(
        text_tokens={task: tokens_of_task(rendered, table) for task, rendered in tasks.items()},
        counts=_token_counts(_without(table, answered)),
        rows=tuple(sample_passes(passes)),
        workload=passes.workload,
        chats=CHAT in table.columns.kinds,
    )


def sizing(summaries: Sequence[Summary]) -> tuple[tuple[Row, ...], Workload]:
    """What an engine that scores all these models is loaded with."""
    sizes = [summary.workload for summary in summaries]
    rows = sample_rows([row for summary in summaries for row in summary.rows])
    return tuple(rows), Workload(sum(s.rows for s in sizes), sum(s.tokens for s in sizes), max(s.longest for s in sizes))


def _without(table: EncodedTable, settled: Set[str]) -> EncodedTable:
    return table.only([request for request in table.requests if request not in settled]) if settled else table


def _token_counts(table: EncodedTable) -> TokenCounts:
    passes, candidates = table.forwards, table.columns.tokens
    several: dict[str, int] = {}
    for candidate in (candidates[i] for i in np.flatnonzero(candidates.lengths > 1).tolist()):
        several[" ".join(map(str, candidate))] = len(candidate)
        if len(several) == SEVERAL:
            break
    longest = int(passes.length.max(initial=0))
    return TokenCounts(len(table), len(passes), passes.computed, longest, tuple(several.items()))
