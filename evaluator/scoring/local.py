"""Replicas in this process: one at a time, its models one after the other in their order."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from evaluator.scoring.replica import ActiveReplica, Assignment, Call, LoopState, Replica
from evaluator.scoring.score import Scored
from evaluator.scoring.worker import Load, Loaded, Worker
from evaluator_serving.checks.verify import needs_weights
from evaluator_serving.chunks import Chunk
from evaluator_serving.engine import EngineOptions
from evaluator_serving.weights.cache import readable
from evaluator_serving.weights.hub import HubModel, missing_bytes

Value = TypeVar("Value")


class Later(Generic[Value]):
    """A call that runs when its result is requested: nothing runs beside the loop, and Ctrl-C interrupts it."""

    def __init__(self, function: Callable[..., Value], *arguments: Any) -> None:
        self._function = function
        self._arguments = arguments

    def result(self) -> Value:
        """Make the call."""
        return self._function(*self._arguments)


class LocalReplica:
    """This process as a replica; `sizes` are those of the options of the model that it takes."""

    where = "this process"

    def __init__(self, worker: Worker, sizes: Mapping[str, Any]) -> None:
        self._worker = worker
        self.placement = sizes

    def options(self, asked: EngineOptions) -> EngineOptions:
        """Unchanged."""
        return asked

    def fetch(self, load: Load) -> Call[None]:
        """See `Worker.fetch`."""
        return Later(self._worker.fetch, load)

    def load(self, load: Load) -> Call[Loaded]:
        """See `Worker.load`."""
        return Later(self._worker.load, load)

    def score(self, chunk: Chunk) -> Call[Scored]:
        """See `Worker.score`."""
        return Later(self._worker.score, chunk)

    def close(self) -> Call[bool]:
        """See `Worker.close`."""
        return Later(self._worker.close)


class ThisProcess:
    """The source of the one replica that this process is."""

    depth = 1
    start_deadline = float("inf")

    def __init__(self) -> None:
        self._worker = Worker()

    def next_assignments(self, state: LoopState) -> Sequence[Assignment]:
        """The next model with work, while none is at work."""
        return [] if state.active_replicas else self._following(state)

    def _following(self, state: LoopState) -> list[Assignment]:
        model = next((m for m in state.models.values() if m.has_work), None)
        if model is None:
            return []
        return [Assignment(model.name, LocalReplica(self._worker, model.prepared.spec.options.sizes()))]

    def wait(self, calls: Sequence[Call[Any]]) -> Call[Any] | None:
        """The first one: asking for its result makes the call."""
        return calls[0] if calls else None

    def fetch_note(self, load: Load) -> str:
        """How much is fetched from the hub."""
        origin = load.source.origin
        if not isinstance(origin, HubModel) or not needs_weights(load.engine, load.source, load.options, verify=load.verify):
            return ""
        missing = missing_bytes(origin)
        return f"fetching {readable(missing)} of weights from the hub" if missing else ""

    def loaded(self, active: ActiveReplica, state: LoopState) -> None:
        """Nothing is prefetched."""

    def reuse(self, active: ActiveReplica, model: str, state: LoopState) -> Replica:
        """This process."""
        return LocalReplica(self._worker, state.models[model].prepared.spec.options.sizes())

    def reassign(self, active: ActiveReplica, state: LoopState, *, free: bool) -> Assignment | None:
        """The next model with work."""
        return next(iter(self._following(state)), None)

    def preempted(self) -> Sequence[ActiveReplica]:
        """None: there is one replica."""
        return []

    def reschedule(self, active: ActiveReplica, state: LoopState) -> None:
        """Never called: this process cannot be lost."""

    def infeasible(self, state: LoopState) -> Mapping[str, Exception]:
        """None."""
        return {}

    def end(self, replica: Replica) -> None:
        """Close the engine. Errors here are suppressed: the error that came before is the one to report."""
        with contextlib.suppress(Exception):
            self._worker.close()

    def close(self) -> None:
        """There are no pending requests."""
