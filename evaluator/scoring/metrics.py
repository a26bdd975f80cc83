"""Every metric that a scoring command has. Names, kinds and labels stand here alone: exporters and dashboards follow.

Counters begin at 0 with each command. A name is what Prometheus shows of a command with `--metrics-port`; Ray's exporter puts
`ray_` before it, and labels of its own beside.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from evaluator.scoring.replica import ActiveReplica, LoopState
from evaluator.scoring.score import Scored
from evaluator.scoring.sentences import Sentences
from evaluator_serving.chunks import Chunk

PUBLISH_EVERY = 1.0
"""Least seconds between two hand-overs to the exporters."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; a counter's name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ("run", "model")


SENTENCES = Metric("evaluator_sentences_total", "counter", "Sentences (a task's samples) whose last answer was stored.")
REQUESTS = Metric("evaluator_requests_total", "counter", "Requests whose answers were stored.")
ROWS = Metric("evaluator_rows_total", "counter", "Token rows that were scored.")
TOKENS = Metric("evaluator_tokens_total", "counter", "Tokens that were scored.")
LEFT = Metric("evaluator_requests_left", "gauge", "Requests that have neither an answer nor failed.")
FAILURES = Metric("evaluator_request_failures_total", "counter", "Requests that failed.")
CHUNKS = Metric("evaluator_chunks", "gauge", "Chunks of work by state: waiting, in_flight.", ("run", "model", "state"))
CHUNK_FAILURES = Metric("evaluator_chunk_failures_total", "counter", "Chunks that failed or whose replica died.")
REPLICAS = Metric("evaluator_replicas", "gauge", "Active replicas of the model, including loading ones.")
RESTARTS = Metric("evaluator_replica_restarts_total", "counter", "Replicas that died or failed to load and were restarted.")
STAGES = Metric(
    "evaluator_stage_seconds_total",
    "counter",
    "Seconds by stage, summed over replicas: load (fetch and verification included), encode, forward, write.",
    ("run", "model", "stage"),
)
DEVICE_MEMORY = Metric(
    "evaluator_device_memory_peak_bytes",
    "gauge",
    "Peak device memory of a replica's process, 0 without a GPU.",
    ("run", "model", "replica"),
)
HOST_MEMORY = Metric(
    "evaluator_host_memory_peak_bytes",
    "gauge",
    "Peak memory of a replica's process.",
    ("run", "model", "replica"),
)
PROGRESS = Metric("evaluator_last_progress_timestamp_seconds", "gauge", "Unix time of the last progress.", ("run",))

METRICS = (
    SENTENCES,
    REQUESTS,
    ROWS,
    TOKENS,
    LEFT,
    FAILURES,
    CHUNKS,
    CHUNK_FAILURES,
    REPLICAS,
    RESTARTS,
    STAGES,
    DEVICE_MEMORY,
    HOST_MEMORY,
    PROGRESS,
)

Values = Mapping[tuple[Metric, tuple[str, ...]], float]
"""What is known at a moment: metric and its labels' values → its value."""


class Exporter(Protocol):
    """Where readings go."""

    def publish(self, values: Values) -> None:
        """Take all values as they are now. The mapping isn't changed afterwards."""


class Meter:
    """The readings of one command. The loop tells it what happens."""

    def __init__(self, run: str, exporters: Sequence[Exporter] = ()) -> None:
        self._run = run
        self._exporters = exporters
        self._values: dict[tuple[Metric, tuple[str, ...]], float] = {}
        self._sentences: dict[str, Sentences] = {}
        self._published = 0.0

    def begin(self, state: LoopState) -> None:
        """The models are known: counters stand at 0, so that their first step is a rate already."""
        for name, model in state.models.items():
            for metric in METRICS:
                if metric.kind == "counter" and metric is not STAGES:
                    self._add(metric, 0, model=name)
            for stage in ("load", "forward", "write"):
                self._add(STAGES, 0, model=name, stage=stage)
            self._add(STAGES, model.prepared.encode_seconds, model=name, stage="encode")
        self.progress()
        self.look(state, now=True)

    def loaded(self, active: ActiveReplica) -> None:
        """A replica has loaded its model."""
        assert active.loaded is not None
        self._add(STAGES, sum(active.loaded.seconds.values()), model=active.model.name, stage="load")
        self.progress()

    def stored(self, active: ActiveReplica, chunk: Chunk, scored: Scored, seconds: float) -> None:
        """A chunk's answers were stored, which took `seconds`."""
        name, prepared = active.model.name, active.model.prepared
        if self._exporters:
            if name not in self._sentences:
                self._sentences[name] = Sentences(prepared.tables, prepared.encoded.requests, prepared.answered)
            self._add(SENTENCES, self._sentences[name].answered(chunk.which), model=name)
        self._add(REQUESTS, scored.requests, model=name)
        self._add(ROWS, scored.rows, model=name)
        self._add(TOKENS, scored.tokens, model=name)
        self._add(STAGES, scored.seconds, model=name, stage="forward")
        self._add(STAGES, seconds, model=name, stage="write")
        self._set(DEVICE_MEMORY, scored.device_memory, model=name, replica=str(active.number))
        self._set(HOST_MEMORY, scored.host_memory, model=name, replica=str(active.number))
        self.progress()

    def chunk_failed(self, model: str) -> None:
        """A chunk came back with an error, or its replica died."""
        self._add(CHUNK_FAILURES, 1, model=model)

    def requests_failed(self, model: str, count: int) -> None:
        """Requests were given up."""
        self._add(FAILURES, count, model=model)
        self.progress()

    def restarted(self, model: str) -> None:
        """A replica was lost and is asked for again."""
        self._add(RESTARTS, 1, model=model)

    def progress(self) -> None:
        """Something was done that needn't be done again."""
        self._set(PROGRESS, time.time())

    def look(self, state: LoopState, *, now: bool = False) -> None:
        """Read what is waiting and at work, and hand everything to the exporters, at most once a second unless `now`."""
        if not self._exporters or not (now or time.monotonic() - self._published >= PUBLISH_EVERY):
            return
        for name, model in state.models.items():
            active_replicas = state.replicas_of(model)
            self._set(CHUNKS, len(model.work.waiting) if model.work else 0, model=name, state="waiting")
            self._set(CHUNKS, sum(len(m.in_flight) for m in active_replicas), model=name, state="in_flight")
            self._set(REPLICAS, len(active_replicas), model=name)
            prepared = model.prepared
            settled = len(prepared.answered) + len(prepared.given_up) + self._get(REQUESTS, name) + self._get(FAILURES, name)
            self._set(LEFT, prepared.total - settled, model=name)
        self._published = time.monotonic()
        values = dict(self._values)
        for exporter in self._exporters:
            exporter.publish(values)

    def _key(self, metric: Metric, labels: Mapping[str, str]) -> tuple[Metric, tuple[str, ...]]:
        return metric, tuple({"run": self._run, **labels}[label] for label in metric.labels)

    def _get(self, metric: Metric, model: str) -> float:
        return self._values.get(self._key(metric, {"model": model}), 0)

    def _add(self, metric: Metric, amount: float, **labels: str) -> None:
        key = self._key(metric, labels)
        self._values[key] = self._values.get(key, 0) + amount

    def _set(self, metric: Metric, value: float, **labels: str) -> None:
        self._values[self._key(metric, labels)] = value
