"""Replicas on Ray as the loop sees them: actors in a placement group, asked from the driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, remove_placement_group

from evaluator.run.replica import Call, LostError
from evaluator.run.score import Scored
from evaluator.run.worker import Load, Loaded
from evaluator.sweep.fit import Way
from evaluator.sweep.groups import actor_options
from evaluator.sweep.replica import Replica
from evaluator_serving.engine import EngineOptions
from evaluator_serving.rows import Chunk
from evaluator_serving.weights.access import HubAccess

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, eq=False)
class RayCall(Generic[Value]):
    """A call of an actor's method: `ref` is Ray's reference to its result."""

    ref: Any

    def result(self) -> Value:
        """As `Call.result`."""
        try:
            value: Value = ray.get(self.ref)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except RayError as error:
            raise LostError(type(error).__name__) from error
        return value


@dataclass(slots=True, eq=False)
class Place:
    """The devices of one placement group and the processes on them.

    Mostly there is one. While the last chunks of a model are scored the next one may start beside it, and the process that was
    first done is parked until it is wanted again.

    Attributes:
        group: Ray's.
        cuda: whether the devices are GPUs.
        seats: the replicas at work; parked: the one that waits with nothing loaded.
        holder: the process that holds the devices to Ray; the other one uses them too.
    """

    group: PlacementGroup
    cuda: bool
    access: HubAccess
    seats: list["Seat"] = field(default_factory=list)
    parked: "Seat | None" = None
    holder: Any = None

    def sit(self, way: Way) -> "Seat":
        """A replica in a process of its own, or in the parked one."""
        actor = self.parked.actor if self.parked is not None else self._process(way)
        self.parked = None
        self.seats.append(Seat(way, self, actor))
        return self.seats[-1]

    def _process(self, way: Way) -> Any:
        beside = self.holder is not None
        options = actor_options(way.placement, self.group, cuda=self.cuda, beside=beside)
        actor = ray.remote(Replica).options(**options).remote(self.access)
        self.holder = self.holder or actor
        return actor

    def _kill(self, seat: "Seat") -> None:
        ray.kill(seat.actor)
        if self.holder is seat.actor:
            self.holder = None

    def follow(self, seat: "Seat", way: Way, *, free: bool) -> "Seat":
        """The next model's replica in place of one: in the same process if it is `free`, else in a new one."""
        if not free:
            self._kill(seat)
        self.seats.remove(seat)
        self.seats.append(Seat(way, self, seat.actor if free else self._process(way)))
        return self.seats[-1]

    def leave(self, seat: "Seat", *, park: bool = False) -> None:
        """A replica ends; its process waits for another model with `park`. The last one gives the devices back."""
        self.seats.remove(seat)
        if park and self.parked is None:
            self.parked = seat
        else:
            self._kill(seat)
        if not self.seats:
            if self.parked is not None:
                self._kill(self.parked)
            remove_placement_group(self.group)


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """A replica: a process on the devices of a `place`, used in this `way`."""

    way: Way
    place: Place
    actor: Any

    @property
    def where(self) -> str:
        """The family of machines."""
        return self.way.family

    @property
    def placement(self) -> Mapping[str, Any]:
        """The devices that the plan chose."""
        return self.way.placement.record()

    def options(self, asked: EngineOptions) -> EngineOptions:
        """With the sizes that the plan chose."""
        return self.way.placement.options(asked)

    def fetch(self, load: Load) -> Call[None]:
        """See `Worker.fetch`."""
        return RayCall(self.actor.fetch.remote(load))

    def load(self, load: Load) -> Call[Loaded]:
        """See `Worker.load`."""
        return RayCall(self.actor.load.remote(load))

    def score(self, chunk: Chunk) -> Call[Scored]:
        """See `Worker.score`."""
        return RayCall(self.actor.score.remote(chunk))

    def close(self) -> Call[bool]:
        """See `Replica.close`."""
        return RayCall(self.actor.close.remote())
