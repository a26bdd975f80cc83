"""What the one loop (`loop`) asks of whatever scores: replicas and their supplier. This process is one (`local`), Ray another.

A replica is a process that holds one loaded model at a time. What it is asked returns at once with a `Call`; replicas of one
supplier work side by side, and the calls of one replica one after the other, in their order.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from evaluator.scoring.pending_chunks import PendingChunks
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.score import Scored
from evaluator.scoring.worker import Load, Loaded
from evaluator_serving.engine import EngineOptions
from evaluator_serving.rows import Chunk, Row, Workload

Value = TypeVar("Value", covariant=True)


class LostError(Exception):
    """The process of a replica is gone; the message says how."""


class Call(Protocol[Value]):
    """A result that comes later."""

    def result(self) -> Value:
        """The result, once `ReplicaSource.wait` named this call. Raises what the call raised, LostError without an answer."""


class Replica(Protocol):
    """A process on devices of its own. The order of calls is: fetch, load, score as often as there are chunks, close.

    Before it closes it may be asked to load for another model with the same weights: they stay.
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
class Model:
    """One model of the loop: its work, and how that went so far.

    Attributes:
        rows, workload: what engines are loaded with, known once a replica is asked for it.
        work: its chunks, cut when the first replica says where it computes; chunks: how many they were.
        numbers: replicas that were asked for it so far.
        start_failures: since one last loaded.
        failed: requests that are given up.
        error: what ended it.
    """

    prepared: PreparedModel
    rows: tuple[Row, ...] = ()
    workload: Workload | None = None
    work: PendingChunks | None = None
    chunks: int = 0
    numbers: int = 0
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

    @property
    def left(self) -> float:
        """The part of its chunks that nobody has begun."""
        return 1.0 if self.work is None else len(self.work.waiting) / max(1, self.chunks)


@dataclass(slots=True, eq=False)
class ActiveReplica:
    """A replica at work on a model.

    Attributes:
        number: which of its model's.
        begun: the monotonic moment when it was asked to fetch.
        deadline: when its present call must have come back.
        loaded: what it said when it had loaded; since: the moment.
        scored: chunks that it has scored.
        leaving: whether it ends when it has scored what it holds, although its model has more.
        flight: chunks that it holds; what else it was asked to do is `busy`.
    """

    model: Model
    replica: Replica
    number: int
    begun: float
    deadline: float = float("inf")
    loaded: Loaded | None = None
    since: float = 0.0
    scored: int = 0
    leaving: bool = False
    flight: deque[tuple[Call[Scored], Chunk]] = field(default_factory=deque)
    busy: tuple[str, Call[Any]] | None = None

    @property
    def call(self) -> Call[Any]:
        """The call whose result comes next."""
        if self.flight:
            return self.flight[0][0]
        assert self.busy is not None, "it is always asked for something"
        return self.busy[1]


@dataclass(slots=True)
class State:
    """What is going on: the models by name, and the replicas at work. A supplier reads it, the loop alone changes it."""

    models: dict[str, Model]
    active_replicas: list[ActiveReplica] = field(default_factory=list)

    def of(self, model: Model) -> list[ActiveReplica]:
        """The replicas at work on a model."""
        return [active for active in self.active_replicas if active.model is model]

    def alike(self, model: Model) -> list[Model]:
        """The model and the others for which the same is loaded: what scores one of them can score the next."""
        return [other for other in self.models.values() if other.prepared.load_key == model.prepared.load_key]

    def next_alike(self, model: Model) -> Model | None:
        """What a replica of a model goes over to when that has nothing left for it: one that nobody is at work on first."""
        waiting = [other for other in self.alike(model) if other is not model and other.has_work]
        return min(waiting, key=lambda other: len(self.of(other)), default=None)


@dataclass(frozen=True, slots=True)
class Offer:
    """A replica that is ready for a model: the supplier's word on what starts next."""

    model: str
    replica: Replica


class ReplicaSource(Protocol):
    """Where replicas come from, and which model each takes."""

    depth: int
    """Chunks that a replica holds: one that it scores, the others so that it never waits."""
    start_deadline: float
    """Seconds that a replica may take to load."""

    def offers(self, state: State) -> Sequence[Offer]:
        """Replicas that are ready to start on a model now."""

    def wait(self, calls: Sequence[Call[Any]]) -> Call[Any] | None:
        """Wait for one of these calls (there may be none) to come back; None where a while has passed without."""

    def fetching(self, load: Load) -> str:
        """What people are told while the weights come; empty if there is nothing to tell."""

    def loaded(self, active: ActiveReplica, state: State) -> None:
        """A replica has loaded: what comes next on its machine may be read ahead."""

    def stay(self, active: ActiveReplica, model: str, state: State) -> Replica:
        """The replica of a member, with what it has loaded, as that of another model with the same weights."""

    def follow(self, active: ActiveReplica, state: State, *, free: bool) -> Offer | None:
        """What a replica that has closed its engine takes next (`free`: in the same process), None if it is to end."""

    def released(self) -> Sequence[ActiveReplica]:
        """Replicas that are to end now although their models have work, which others of them do; each is named once."""

    def again(self, active: ActiveReplica, state: State) -> None:
        """A replica was lost, and its model still has work: it is wanted first."""

    def out_of_reach(self, state: State) -> Mapping[str, Exception]:
        """Models for which no replica can be had any more, and why."""

    def end(self, replica: Replica) -> None:
        """End a replica, whatever it is doing, and free its devices."""

    def close(self) -> None:
        """The loop has ended: nothing that was asked for is wanted any more."""
