"""Answers: per-token log-probabilities of each candidate of a request, or what was said to a chat."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.chats import Reply
from evaluator_serving.rows import Chunk


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one request.

    Attributes:
        request: the request's id.
        tokens: token ids of each candidate.
        logprobs: log P (natural log) of each of these tokens, same lengths.
        replies: generated answers; only for chats, which have no candidates.
    """

    request: str
    tokens: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[float, ...], ...]
    replies: tuple[Reply, ...] = ()


Values = NDArray[np.floating] | tuple[Reply, ...]
"""What an engine gives for a row: a number a lookup, or the replies to a chat."""


def assemble(chunk: Chunk, values: Sequence[Values]) -> Iterator[Answer]:
    """Convert an engine's output for merged rows into answers to the chunk's requests."""
    for item, spots in zip(chunk.encoded, chunk.merged.places, strict=True):
        logprobs = []
        for candidate in item.candidates:
            numbers = []
            for read in candidate.reads:
                row, lookups = spots[read.row]
                numbers.append(float(values[row][lookups[read.lookup]]))  # type: ignore[arg-type]
            logprobs.append(tuple(numbers))
        said = [
            reply for row, (index, _) in zip(item.rows, spots, strict=True) if row.chat for reply in _replies(values[index])
        ]
        yield Answer(item.request, tuple(c.tokens for c in item.candidates), tuple(logprobs), tuple(said))


def _replies(values: Values) -> tuple[Reply, ...]:
    assert isinstance(values, tuple), "a chat is answered in words"
    return values
