"""Answers that have arrived and are not on disk yet: they are written together, in few files and at the same time."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from evaluator.scoring.encodings import LOOK_SECONDS
from evaluator.scoring.replica import ActiveReplica
from evaluator.scoring.score import Scored
from evaluator.store.errors import StoreError
from evaluator.store.run import MANY_PARTS, Run
from evaluator.store.settings import seconds
from evaluator_serving.chunks import Chunk
from evaluator_serving.registry import engine_class

VARIABLE = "EVALUATOR_COMMIT"
"""Environment variable: seconds between two commits, 0 for one after each chunk."""
SECONDS = 5.0
"""The default: about the work of one chunk, which a killed process loses in any case."""
BYTES = 32 << 20
"""Of answers that wait at most, in memory."""
AT_ONCE = 16
"""Models whose answers are written at the same time."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A chunk that a replica has scored."""

    active: ActiveReplica
    chunk: Chunk
    scored: Scored


@dataclass(slots=True)
class Commits:
    """What waits to be written, for at most `seconds`. Raises InputError where the variable holds no number."""

    run: Run
    seconds: float = field(default_factory=lambda: seconds(VARIABLE, SECONDS, least=0))
    _waiting: dict[str, list[Arrival]] = field(default_factory=dict)
    _written: deque[tuple[list[Arrival], Future[float]]] = field(default_factory=deque)
    _timings: list[dict[str, Any]] = field(default_factory=list)
    _size: int = 0
    _paid: bool = False
    _last: float = field(default_factory=lambda: time.monotonic())
    _commits: int = 0

    def add(self, arrival: Arrival) -> None:
        """A chunk has been scored."""
        model = arrival.active.model
        if model.name not in self._waiting:
            self._paid |= engine_class(model.prepared.info.engine).costs
        self._waiting.setdefault(model.name, []).append(arrival)
        self._timings.append(arrival.scored.timing(model.name, str(arrival.active.number)))
        self._size += sum(int(frame.estimated_size()) for frame in arrival.scored.answers.values())

    @property
    def due(self) -> bool:
        """Whether to write now: so much or so long has waited, or answers that were paid for (a kill must not lose them)."""
        if not self._waiting:
            return False
        return self._paid or self._size >= BYTES or time.monotonic() - self._last >= self.seconds

    def write(self) -> Iterator[tuple[list[Arrival], Future[float]]]:
        """Write what waits. Yields each model's arrivals and how long writing them took, or the error that it ended with.

        The models' parts are written at the same time: the file system makes them durable together, and a storage gets them at
        once. How long the chunks of all of them took is written first: no stored answer is without its time. What an
        interruption leaves is yielded by the next call.
        """
        self._size, self._paid, self._last = 0, False, time.monotonic()
        if self._timings:
            with contextlib.suppress(StoreError):  # then answers can't be written either, which ends their models
                self.run.add_timings(self._timings)
            self._timings = []
            self._commits += 1
            if self._commits % MANY_PARTS == 0:
                self.run.merge_timings()
        if self._waiting:
            self.run = self.run.snapshot()  # run.json names the folders, which don't change: it is read once
            pool = ThreadPoolExecutor(AT_ONCE, "commit")
            for model, arrivals in list(self._waiting.items()):
                self._written.append((arrivals, pool.submit(self._write, arrivals)))
                del self._waiting[model]
            pool.shutdown(wait=False)
        while self._written:
            if wait([self._written[0][1]], LOOK_SECONDS).done:
                yield self._written.popleft()

    def _write(self, arrivals: list[Arrival]) -> float:
        """Write a model's answers, a part for each kind of request. Those that cost something survive a power failure.

        Returns the seconds that this took.
        """
        begun = time.perf_counter()
        model = arrivals[0].active.model
        frames: dict[str, list[pl.DataFrame]] = {}
        for arrival in arrivals:
            for kind, frame in arrival.scored.answers.items():
                frames.setdefault(kind, []).append(frame)
        answers = {kind: pl.concat(parts) for kind, parts in frames.items()}
        paid = engine_class(model.prepared.info.engine).costs
        self.run.add_answers(self.run.answers_folder(model.name), answers, durable=paid)
        if self._commits % MANY_PARTS == 1:  # the first one finds the parts of earlier commands
            self.run.merge_answers(model.name, finished=False)
        return time.perf_counter() - begun
