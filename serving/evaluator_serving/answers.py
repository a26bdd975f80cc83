"""Answers: per-token log-probabilities of each candidate of a request, or what was said to a chat."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.chats import Reply
from evaluator_serving.chunks import Chunk


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one request.

    Attributes:
        request: the request's id.
        tokens: token ids of each candidate.
        logprobs: log P (natural log) of each of these tokens, same lengths.
        replies: generated answers; only for chats, which have no candidates.
        kind: the request's kind.
    """

    request: str
    tokens: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[float, ...], ...]
    replies: tuple[Reply, ...] = ()
    kind: str = ""


Values = NDArray[np.floating] | tuple[Reply, ...]
"""What an engine gives for a row: a number a lookup, or the replies to a chat."""


def assemble(chunk: Chunk, values: Sequence[Values]) -> Iterator[Answer]:
    """Convert an engine's output for a chunk's rows into answers to its requests."""
    columns, passes = chunk.table.columns, chunk.table.forwards
    numbers = [np.zeros(0) if isinstance(value, tuple) else value for value in values]
    flat = np.concatenate([np.zeros(0), *numbers])
    ends = np.cumsum([len(each) for each in numbers], dtype=np.intp)
    start = np.empty(len(passes), dtype=np.intp)
    start[chunk.order] = ends - [len(each) for each in numbers]
    # A candidate's reads name rows and lookups of its request, which are numbered within it.
    asker = np.repeat(np.arange(len(columns.requests)), columns.candidate_count)
    before = np.cumsum(columns.row_count) - columns.row_count
    row = np.repeat(before[asker], columns.reads.lengths) + columns.reads.flat
    lookup = columns.at.offsets[row] + columns.lookups.flat
    found = iter(flat[start[passes.of_row[row]] + passes.reads.spot[lookup]].tolist())
    logprobs = iter([tuple(islice(found, length)) for length in columns.reads.lengths.tolist()])
    tokens = map(tuple, columns.tokens.lists())
    said: dict[int, tuple[Reply, ...]] = {}
    place = {number: i for i, number in enumerate(chunk.order)}
    for at in sorted(columns.chats):
        replies = values[place[int(passes.of_row[at])]]
        assert isinstance(replies, tuple), "a chat is answered in words"
        whose = int(passes.request[at])
        said[whose] = said.get(whose, ()) + replies
    counts = columns.candidate_count.tolist()
    for i, (request, kind, count) in enumerate(zip(columns.requests, columns.kinds, counts, strict=True)):
        yield Answer(request, tuple(islice(tokens, count)), tuple(islice(logprobs, count)), said.get(i, ()), kind)
