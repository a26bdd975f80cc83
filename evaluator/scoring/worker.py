"""The work inside a replica's process, one call after the other: fetch the weights, load an engine, score chunks, close it."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaluator.journal import Journal
from evaluator.scoring.score import Scored, StoredAnswers, score_chunk
from evaluator_serving.chats import AnswerStore
from evaluator_serving.checks.verify import TOLERANCE, is_checked, needs_weights, verify_engine
from evaluator_serving.chunks import Chunk, cut
from evaluator_serving.engine import DeviceKind, Engine, EngineOptions
from evaluator_serving.errors import EngineError, InputError, UnexpectedError, in_words
from evaluator_serving.models import resolving
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine
from evaluator_serving.rows import Row, Workload
from evaluator_serving.table import EncodedTable

UNPROVEN = TOLERANCE["bfloat16"]
"""Largest |Δ log P| between two starts of a server whose dtype nothing proves."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a replica is to load: the engine's arguments (`rows` are some of the run's own), and whether to verify it.

    `journal` is the file for answers that cost money, which are kept one by one; on a machine without its folder they are kept
    a chunk at a time, as all others are. `earlier`: what a server's model is asked again. `table`: what is
    to be cut into chunks of so many tokens (`chunk_tokens`: kind of device → number).
    """

    engine: str
    source: ModelSource
    options: EngineOptions
    rows: tuple[Row, ...]
    workload: Workload | None
    verify: bool
    journal: Path | None = None
    earlier: StoredAnswers = field(default_factory=StoredAnswers)
    table: EncodedTable | None = None
    chunk_tokens: Mapping[DeviceKind, int] = field(default_factory=dict)

    def cut(self, device: DeviceKind) -> list[Sequence[int]]:
        """The table in chunks for this kind of device; none where no table is given."""
        return [] if self.table is None else cut(self.table, self.chunk_tokens[device])


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a replica says when it has loaded.

    Attributes:
        device_kind, details: the engine's own, the latter for the run's record.
        verified: how it was verified, False where it wasn't and should be, None where it is the oracle.
        seconds: what the start took, by part.
        process: the process's id; node: the id of its machine in a cluster; reused: whether it had held another model before.
        cut: see `Load.cut`.
    """

    device_kind: DeviceKind
    details: dict[str, Any]
    verified: str | bool | None
    seconds: dict[str, float] = field(default_factory=dict)
    process: int = 0
    node: str = ""
    reused: bool = False
    cut: Sequence[Sequence[int]] = ()


class Worker:
    """One process's engine, and after it the next one.

    Raises InputError or EngineError and nothing else (but interruptions): what libraries throw is told in a line, and may not
    survive the way to another process.
    """

    machine = ""
    """This machine's name in messages, where there are several."""
    node = ""
    """The machine's id in its cluster."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._kept: AnswerStore | None = None
        self._weights = contextlib.ExitStack()
        self._source: ModelSource | None = None
        self._loaded: Loaded | None = None
        self._fetched = 0.0
        self._before = 0

    def fetch(self, load: Load) -> None:
        """Bring the weights of what is to be loaded to this machine, where they are kept until `close`."""
        with wrap_errors():
            begun = time.perf_counter()
            self._source = load.source
            # Its own code makes a model's config, on this machine anew.
            if load.source.code or needs_weights(load.engine, load.source, load.options, verify=load.verify):
                self._source = self._weights.enter_context(resolving.weights_here(load.source, self.machine))
                self.spread(self._source, load.options)
            self._fetched = time.perf_counter() - begun

    def spread(self, source: ModelSource, options: EngineOptions) -> None:
        """Have the weights on the other machines of this replica too. A replica in one process has none."""

    def load(self, load: Load) -> Loaded:
        """Load what was fetched into an engine, and verify it on some of the run's rows.

        An engine that wasn't closed stays, for a model with the same weights.
        """
        if self._engine is not None:
            return self._reuse(load)
        source = self._source
        assert source is not None, "fetch comes first"
        with wrap_errors():
            begun = time.perf_counter()
            self._engine = open_engine(load.engine, source, load.options, load.rows, load.workload)
            details = self._engine.details()
            self._keep(load.journal)
            opened = time.perf_counter()
            verified: str | bool | None = None
            chats_alone = bool(load.rows) and all(row.chat is not None for row in load.rows)
            exact = False
            if is_checked(load.engine, load.options.dtype) and not chats_alone:
                found = verify_engine(self._engine, source, load.options, load.rows) if load.verify else None
                verified, exact = str(found) if found else False, found is not None and found.by_oracle
            load.earlier.check(self._engine, min(TOLERANCE[load.options.dtype], UNPROVEN) if exact else UNPROVEN)
            seconds = {"fetch": self._fetched, "engine": opened - begun, "verify": time.perf_counter() - opened}
            kind, reused = self._engine.device_kind, self._before > 0
            self._before += 1
            self._loaded = Loaded(kind, details, verified, seconds, os.getpid(), self.node, reused)
            return replace(self._loaded, cut=load.cut(kind))

    def _reuse(self, load: Load) -> Loaded:
        """Use the loaded engine for another model with the same weights."""
        assert self._loaded is not None, "an engine is loaded"
        with wrap_errors():
            begun = time.perf_counter()
            self._keep(load.journal)
            seconds = {"fetch": 0.0, "engine": time.perf_counter() - begun, "verify": 0.0}
            return replace(self._loaded, seconds=seconds, reused=True, cut=load.cut(self._loaded.device_kind))

    def _keep(self, journal: Path | None) -> None:
        """Where the engine's answers cost something they are kept one by one in this file."""
        assert self._engine is not None, "it is loaded"
        there = journal is not None and self._engine.costs and journal.parent.parent.is_dir()
        self._kept = Journal(journal) if there and journal else None

    def score(self, chunk: Chunk) -> Scored:
        """Score one chunk."""
        assert self._engine is not None, "load comes first"
        with wrap_errors():
            return score_chunk(self._engine, chunk, self._kept)

    def close(self) -> bool:
        """Close the engine and let go of its weights; they may be evicted now. Says whether another model can be loaded."""
        engine, self._engine, self._source, self._kept, self._loaded = self._engine, None, None, None, None
        with wrap_errors(), self._weights:
            if engine is not None:
                engine.close()
        return True


@contextlib.contextmanager
def wrap_errors() -> Iterator[None]:
    """Turn any error, and a library's attempt to end the process, into one that says it in a line."""
    try:
        yield
    except (InputError, EngineError):
        raise
    except (Exception, SystemExit) as error:
        raise UnexpectedError(in_words(error)) from error
