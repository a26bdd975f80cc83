"""Answers that have arrived and are not on disk yet: they are written together, in few files."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from evaluator.scoring.replica import ActiveReplica, ModelState
from evaluator.scoring.score import Scored
from evaluator.store.errors import StoreError
from evaluator.store.run import TIMINGS_APART, Run
from evaluator.store.settings import seconds
from evaluator_serving.registry import engine_class

VARIABLE = "EVALUATOR_COMMIT"
"""Environment variable: seconds between two commits, 0 for one after each chunk."""
SECONDS = 5.0
"""The default: about the work of one chunk, which a killed process loses in any case."""
BYTES = 32 << 20
"""Of answers that wait at most, in memory."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A chunk that a replica has scored, by its name."""

    active: ActiveReplica
    chunk: str
    scored: Scored


@dataclass(slots=True)
class Commits:
    """What waits to be written, for at most `seconds`. Raises InputError where the variable holds no number."""

    run: Run
    seconds: float = field(default_factory=lambda: seconds(VARIABLE, SECONDS, least=0))
    _waiting: dict[str, list[Arrival]] = field(default_factory=dict)
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

    def take(self) -> Iterator[tuple[ModelState, list[Arrival]]]:
        """What waits, by model; each is to be written, or lost. An interruption leaves the models that come after.

        How long the chunks of all of them took is written first: no stored answer is without its time.
        """
        self._size, self._paid, self._last = 0, False, time.monotonic()
        if self._timings:
            with contextlib.suppress(StoreError):  # then answers can't be written either, which ends their models
                self.run.add_timings(self._timings)
            self._timings = []
            self._commits += 1
            if self._commits % TIMINGS_APART == 0:
                self.run.merge_timings()
        while self._waiting:
            arrivals = self._waiting.pop(next(iter(self._waiting)))
            yield arrivals[0].active.model, arrivals

    def write(self, model: ModelState, arrivals: list[Arrival]) -> None:
        """Write a model's answers, a part for each kind of request. Those that cost something survive a power failure."""
        frames: dict[str, list[pl.DataFrame]] = {}
        for arrival in arrivals:
            for kind, frame in arrival.scored.answers.items():
                frames.setdefault(kind, []).append(frame)
        answers = {kind: pl.concat(parts) for kind, parts in frames.items()}
        paid = engine_class(model.prepared.info.engine).costs
        self.run.add_answers(self.run.answers_folder(model.name), answers, durable=paid)
