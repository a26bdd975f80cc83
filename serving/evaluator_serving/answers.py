"""Answers: per-token log-probabilities of each candidate of a request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.rows import Chunk


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says of one request.

    Attributes:
        request: the request's id.
        tokens: per candidate, its token ids.
        logprobs: per candidate, log P of each of these tokens (natural log), same lengths.
    """

    request: str
    tokens: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[float, ...], ...]


def assemble(chunk: Chunk, values: Sequence[NDArray[np.floating]]) -> Iterator[Answer]:
    """Turn an engine's arrays (one a merged row, one number a lookup) into the answers of the chunk's requests."""
    for item, spots in zip(chunk.encoded, chunk.merged.places, strict=True):
        logprobs = []
        for candidate in item.candidates:
            numbers = []
            for read in candidate.reads:
                row, lookups = spots[read.row]
                numbers.append(float(values[row][lookups[read.lookup]]))
            logprobs.append(tuple(numbers))
        yield Answer(item.request, tuple(c.tokens for c in item.candidates), tuple(logprobs))
