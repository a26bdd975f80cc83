"""Score chunks with one engine and store what comes out. The same steps run in this process and in a Ray actor."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.store.answers import frames_by_kind
from evaluator_serving.answers import Values, assemble
from evaluator_serving.chats import AnswerStore
from evaluator_serving.chunks import Chunk, make_chunk
from evaluator_serving.engine import Engine
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.memory import peak_memory
from evaluator_serving.rows import Encoded, Row


@dataclass(frozen=True, slots=True)
class Scored:
    """A chunk's answers by kind of request, as they are stored (see `frames_by_kind`), the number of its requests, and what
    they took (seconds, peak bytes of host and device memory so far)."""

    requests: int
    answers: Mapping[str, pl.DataFrame]
    seconds: float
    rows: int
    tokens: int
    host_memory: int
    device_memory: int

    def timing(self, model: str, worker: str) -> dict[str, Any]:
        """The row for RUN/timings."""
        return {
            "model": model,
            "worker": worker,
            "finished": time.time(),
            "requests": self.requests,
            "rows": self.rows,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "host_memory": self.host_memory,
            "device_memory": self.device_memory,
        }


@dataclass(frozen=True, slots=True)
class StoredAnswers:
    """Requests of log-probabilities that a server's model has answered, with what it said per candidate and token.

    The model is known by its name alone: whether the same weights are behind the name is seen by asking again.
    """

    items: tuple[Encoded, ...] = ()
    logprobs: tuple[tuple[tuple[float, ...], ...], ...] = ()

    def check(self, engine: Engine, tolerance: float) -> None:
        """Raise InputError where the engine says something else now than it did.

        Rounding moves few numbers as far as `tolerance`: on average they stay within a quarter of it.
        """
        if not self.items:
            return
        chunk = make_chunk(self.items)
        now = assemble(chunk, engine.score(chunk.rows))
        pairs = [
            (x, y)
            for then, answer in zip(self.logprobs, now, strict=True)
            for a, b in zip(then, answer.logprobs, strict=True)
            for x, y in zip(a, b, strict=True)
        ]
        before, after = max(pairs, key=lambda pair: abs(pair[0] - pair[1]))
        average = sum(abs(x - y) for x, y in pairs) / len(pairs)
        if not (abs(before - after) <= tolerance and average <= tolerance / 4):
            raise InputError(
                f"the server's model is not the one that answered this run so far: log P of a token was {before:.4f} and is "
                f"{after:.4f}, the largest difference among {len(pairs)} that were scored again (tolerance {tolerance:g}; on "
                f"average {average:.4f}, tolerance {tolerance / 4:g}); serve the earlier weights in the same dtype, or use "
                "another --out folder"
            )


def start_record(
    replica: int, where: str, placement: Mapping[str, Any], seconds: Mapping[str, float], *, reused: bool = False
) -> dict[str, Any]:
    """What run.json says of the start of a replica: on which machines and devices, and what it took by part."""
    return {
        "replica": replica,
        "on": where,
        "placement": dict(placement),
        "reused_process": reused,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def _device_memory() -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.max_memory_allocated()) if torch is not None and torch.cuda.is_available() else 0


def _numbers(engine: Engine, rows: Sequence[Row], kept: AnswerStore | None) -> list[NDArray[np.floating]]:
    """What the engine gives for rows without chats. Raises EngineError where that can't be stored."""
    found = engine.score_kept(rows, kept)
    for row, numbers in zip(rows, found, strict=True):
        if len(numbers) != len(row.lookups):  # the next rows would be read from wrong places
            wanted = len(row.lookups)
            raise EngineError(f"the {engine.name} engine gave {len(numbers)} log-probabilities where {wanted} were asked for")
    if not np.isfinite(np.concatenate(found)).all():
        index = next(index for index, numbers in enumerate(found) if not np.isfinite(numbers).all())
        raise EngineError(f"row {index}: the {engine.name} engine gave a log-probability that is not finite", index)
    return found


def _values(engine: Engine, rows: Sequence[Row], kept: AnswerStore | None) -> list[Values]:
    """What the engine gives for every row: numbers, or words for those that are chats."""
    values: list[Values | None] = [None] * len(rows)
    for chats in (False, True):
        indices = [index for index, row in enumerate(rows) if (row.chat is not None) == chats]
        if not indices:
            continue
        mine = [rows[index] for index in indices]
        try:
            raw: Sequence[Values] = engine.generate(mine, kept) if chats else _numbers(engine, mine, kept)
        except EngineError as error:
            if error.row is not None:
                error.row = indices[error.row]
            raise
        for index, value in zip(indices, raw, strict=True):
            values[index] = value
    return [value for value in values if value is not None]


def score_chunk(engine: Engine, chunk: Chunk, kept: AnswerStore | None = None) -> Scored:
    """Score one chunk. EngineError carries the index of the merged row at fault, if known. `kept`: see `Engine.generate`."""
    begun = time.perf_counter()
    values = _values(engine, chunk.rows, kept)
    seconds = time.perf_counter() - begun
    return Scored(
        requests=len(chunk.which),
        answers=frames_by_kind(assemble(chunk, values)),
        seconds=seconds,
        rows=len(chunk.rows),
        tokens=chunk.tokens,
        host_memory=peak_memory(),
        device_memory=_device_memory(),
    )


def requests_of_row(chunk: Chunk, row: int) -> list[str]:
    """Ids of the chunk's requests that read from merged row `row`."""
    return [
        item.request
        for item, spots in zip(chunk.encoded, chunk.merged.places, strict=True)
        if any(index == row for index, _ in spots)
    ]
