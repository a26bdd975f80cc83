"""The interface between the scoring loop (`loop`) and what scores: replicas and their source, this process (`local`) or Ray.

A replica is a process that holds one loaded model at a time. Its methods return a `Call` at once. Replicas of one source run in
parallel; the calls of one replica run one after the other, in order.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from evaluator.scoring.pending_chunks import PendingChunks
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.score import Scored
from evaluator.scoring.summary import sizing
from evaluator.scoring.worker import Load, Loaded
from evaluator_serving.chunks import Chunk
from evaluator_serving.engine import EngineOptions
from evaluator_serving.rows import Row, Workload

Value = TypeVar("Value", covariant=True)


class LostError(Exception):
    """The process of a replica is gone; the message says how."""


class Call(Protocol[Value]):
    """A future result."""

    def result(self) -> Value:
        """The result, once `ReplicaSource.wait` named this call. Raises what the call raised, LostError without an answer."""


class Replica(Protocol):
    """A process with its own devices. The order of calls is: fetch, load, score for each chunk, close.

    Before it closes it can load another model with the same weights, which then stay in memory.
    """

    @property
    def where(self) -> str:
        """For the run's record: which machines it is on."""

    @property
    def placement(self) -> Mapping[str, Any]:
        """For the run's record: its devices."""

    def options(self, asked: EngineOptions) -> EngineOptions:
        """A model's options with the sizes of this replica."""

    def fetch(self, load: Load) -> Call[None]:
        """Bring the weights to the replica's machine."""

    def load(self, load: Load) -> Call[Loaded]:
        """Load what was fetched."""

    def score(self, chunk: Chunk) -> Call[Scored]:
        """Score a chunk."""

    def close(self) -> Call[bool]:
        """Close the engine. Says whether its memory has come back, so that another model can be loaded."""


@dataclass(slots=True)
class ModelState:
    """A model in the loop: its work and the state of that work.

    Attributes:
        rows, workload: what engines are loaded with; set when its first replica starts.
        work: its chunks, as the first replica to load cut them; chunks: their number.
        replicas_started: number of replicas started for it so far.
        start_failures: failed starts since a replica last loaded.
        failed: number of requests that were given up.
        error: the error that ended it.
    """

    prepared: PreparedModel
    rows: tuple[Row, ...] = ()
    workload: Workload | None = None
    work: PendingChunks | None = None
    chunks: int = 0
    replicas_started: int = 0
    start_failures: int = 0
    failed: int = 0
    error: Exception | None = None

    @property
    def name(self) -> str:
        """Its name in the run."""
        return self.prepared.name

    @property
    def has_work(self) -> bool:
        """Whether a replica of it would find something to do."""
        return self.error is None and (bool(self.prepared.encoded) if self.work is None else bool(self.work.waiting))

    def begin(self, cut: Iterable[Sequence[int]]) -> None:
        """Its work is known: its pending requests, `cut` for the kind of device that its first replica is on."""
        self.work = PendingChunks.of(self.prepared.pending_chunks(cut))
        self.chunks = len(self.work.waiting)

    @property
    def remaining(self) -> float:
        """The share of its chunks that no replica has taken."""
        return 1.0 if self.work is None else len(self.work.waiting) / max(1, self.chunks)


@dataclass(slots=True, eq=False)
class ActiveReplica:
    """A replica that is assigned to a model. Times are monotonic seconds.

    Attributes:
        number: its number among the replicas of its model.
        started_at: when it was told to fetch the weights.
        deadline: when the current call must have returned.
        loaded: the result of loading; loaded_at: when it came.
        scored: number of chunks that it has scored.
        draining: it finishes the chunks that it holds and then ends, although its model has more.
        in_flight: chunks that it holds, with their calls.
        pending_call: the other call that it is running: fetch, load or close.
    """

    model: ModelState
    replica: Replica
    number: int
    started_at: float
    deadline: float = float("inf")
    loaded: Loaded | None = None
    loaded_at: float = 0.0
    scored: int = 0
    draining: bool = False
    in_flight: deque[tuple[Call[Scored], Chunk]] = field(default_factory=deque)
    pending_call: tuple[str, Call[Any]] | None = None

    @property
    def call(self) -> Call[Any]:
        """The call whose result comes next."""
        if self.in_flight:
            return self.in_flight[0][0]
        assert self.pending_call is not None, "an active replica always has a call"
        return self.pending_call[1]


@dataclass(slots=True)
class LoopState:
    """The models by name, and the active replicas. A replica source reads it; only the loop changes it."""

    models: dict[str, ModelState]
    active_replicas: list[ActiveReplica] = field(default_factory=list)

    def replicas_of(self, model: ModelState) -> list[ActiveReplica]:
        """The active replicas of a model."""
        return [active for active in self.active_replicas if active.model is model]

    def sharing_weights(self, model: ModelState) -> list[ModelState]:
        """The model and the others that load the same weights: a replica of one of them can score the next."""
        return [other for other in self.models.values() if other.prepared.load_key == model.prepared.load_key]

    def size(self, model: ModelState) -> None:
        """Say what an engine is loaded with: room for all models that it may score."""
        alike = [other for other in self.sharing_weights(model) if other.has_work]
        rows, workload = sizing([other.prepared.summary for other in alike])
        for other in alike:
            other.rows, other.workload = rows, workload

    def next_sharing_weights(self, model: ModelState) -> ModelState | None:
        """The next model with the same weights, one without an active replica first; None if there is none."""
        waiting = [other for other in self.sharing_weights(model) if other is not model and other.has_work]
        return min(waiting, key=lambda other: len(self.replicas_of(other)), default=None)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A replica that is to start on a model."""

    model: str
    replica: Replica


class ReplicaSource(Protocol):
    """Where replicas come from, and which model each takes."""

    depth: int
    """Chunks that a replica holds: the one that it scores, and others so that it never idles."""
    start_deadline: float
    """Seconds that a replica may take to load."""

    def next_assignments(self, state: LoopState) -> Sequence[Assignment]:
        """Replicas that can start on a model now."""

    def wait(self, calls: Sequence[Call[Any]]) -> Call[Any] | None:
        """Wait until one of these calls (there may be none) has returned. Returns None after a while without one."""

    def fetch_note(self, load: Load) -> str:
        """The progress line while weights are fetched; empty if nothing is fetched."""

    def loaded(self, active: ActiveReplica, state: LoopState) -> None:
        """Called when a replica has loaded: the source can prefetch the next model on its machine."""

    def reuse(self, active: ActiveReplica, model: str, state: LoopState) -> Replica:
        """The replica with its loaded weights, for another model that has the same weights."""

    def reassign(self, active: ActiveReplica, state: LoopState, *, free: bool) -> Assignment | None:
        """The next model for the devices of a replica that has closed its engine; None if the replica is to end.

        `free`: the engine's memory has been freed, so that the same process can load another model.
        """

    def preempted(self) -> Sequence[ActiveReplica]:
        """Replicas to end now although their models have work, which other replicas do. Each is returned once."""

    def reschedule(self, active: ActiveReplica, state: LoopState) -> None:
        """Called when a replica was lost and its model still has work: the model comes first in the queue."""

    def infeasible(self, state: LoopState) -> Mapping[str, Exception]:
        """Models that no machine can run any more, with the errors that say why."""

    def end(self, replica: Replica) -> None:
        """End a replica, whatever it is doing, and free its devices."""

    def close(self) -> None:
        """Called when the loop has ended: cancel pending requests for devices."""
