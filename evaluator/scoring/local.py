"""Replicas in this process: one at a time, its models one after the other in their order."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from evaluator.scoring.replica import ActiveReplica, Call, Offer, Replica, State
from evaluator.scoring.score import Scored
from evaluator.scoring.worker import Load, Loaded, Worker
from evaluator_serving.checks.verify import needs_weights
from evaluator_serving.engine import EngineOptions
from evaluator_serving.rows import Chunk
from evaluator_serving.weights.cache import readable
from evaluator_serving.weights.hub import HubModel, missing_bytes

Value = TypeVar("Value")


class Later(Generic[Value]):
    """A call that is made when its result is asked for: nothing runs beside the loop, and Ctrl-C stops it where it is."""

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
        """As they were asked."""
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
    """The supplier of the one replica that this process is."""

    depth = 1
    start_deadline = float("inf")

    def __init__(self) -> None:
        self._worker = Worker()

    def offers(self, state: State) -> Sequence[Offer]:
        """The next model with work, while none is at work."""
        return [] if state.active_replicas else self._following(state)

    def _following(self, state: State) -> list[Offer]:
        model = next((m for m in state.models.values() if m.has_work), None)
        if model is None:
            return []
        return [Offer(model.name, LocalReplica(self._worker, model.prepared.spec.options.sizes()))]

    def wait(self, calls: Sequence[Call[Any]]) -> Call[Any] | None:
        """The first one: asking for its result makes the call."""
        return calls[0] if calls else None

    def fetching(self, load: Load) -> str:
        """How much is fetched from the hub."""
        origin = load.source.origin
        if not isinstance(origin, HubModel) or not needs_weights(load.engine, load.source, load.options, verify=load.verify):
            return ""
        missing = missing_bytes(origin)
        return f"fetching {readable(missing)} of weights from the hub" if missing else ""

    def loaded(self, active: ActiveReplica, state: State) -> None:
        """Nothing is read ahead: there is nobody to do it."""

    def stay(self, active: ActiveReplica, model: str, state: State) -> Replica:
        """This process."""
        return LocalReplica(self._worker, state.models[model].prepared.spec.options.sizes())

    def follow(self, active: ActiveReplica, state: State, *, free: bool) -> Offer | None:
        """The next model with work."""
        return next(iter(self._following(state)), None)

    def released(self) -> Sequence[ActiveReplica]:
        """None is: there is one."""
        return []

    def again(self, active: ActiveReplica, state: State) -> None:
        """This process isn't lost while it can be asked."""

    def out_of_reach(self, state: State) -> Mapping[str, Exception]:
        """None is."""
        return {}

    def end(self, replica: Replica) -> None:
        """Close what is loaded; what went wrong before is what is told."""
        with contextlib.suppress(Exception):
            self._worker.close()

    def close(self) -> None:
        """Nothing was asked for."""
