"""A replica on Ray as the loop sees it: an actor in a placement group, asked from the driver."""

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """A replica's place: the devices of `group`, used in this `way`, and the `actor` on them."""

    way: Way
    group: PlacementGroup
    actor: Any

    @classmethod
    def take(cls, way: Way, group: PlacementGroup, access: HubAccess, *, cuda: bool) -> "Seat":
        """The devices are there: start a process on them."""
        options = actor_options(way.placement, group, cuda=cuda)
        return cls(way, group, ray.remote(Replica).options(**options).remote(access))

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

    def end(self) -> None:
        """End the process and give the devices back."""
        ray.kill(self.actor)
        remove_placement_group(self.group)
