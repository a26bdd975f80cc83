"""Replicas on Ray as the loop sees them: an actor on the devices of a placement group, called from the driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, remove_placement_group

from evaluator.scoring.replica import Call, LostError
from evaluator.scoring.score import Scored
from evaluator.scoring.worker import Load, Loaded
from evaluator.sweep.on_ray.placement_groups import actor_options
from evaluator.sweep.on_ray.tables import SharedTables
from evaluator.sweep.on_ray.worker import RayWorker
from evaluator.sweep.planning.fit import Allocation
from evaluator_serving.chunks import Chunk
from evaluator_serving.engine import EngineOptions
from evaluator_serving.weights.access import HubAccess

Value = TypeVar("Value")

_ACTOR_CLASS: Any = ray.remote(RayWorker)  # each made anew would be pickled and exported anew


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
class DeviceGroup:
    """The devices of one placement group and the processes on them.

    Usually there is one process. While the last chunks of a model are scored, the next model may start beside it; the process
    that finishes first stays idle until it is needed again.

    Attributes:
        group: Ray's.
        cuda: whether the devices are GPUs.
        access, tables: of all groups.
        replicas: those at work; idle: the one with nothing loaded.
        holder: the process that holds the devices to Ray; the other one uses them too.
    """

    group: PlacementGroup
    cuda: bool
    access: HubAccess
    tables: SharedTables
    replicas: list["RayReplica"] = field(default_factory=list)
    idle: "RayReplica | None" = None
    holder: Any = None

    def allocate(self, allocation: Allocation) -> "RayReplica":
        """A replica in a process of its own, or in the idle one."""
        actor = self.idle.actor if self.idle is not None else self._process(allocation)
        self.idle = None
        self.replicas.append(RayReplica(allocation, self, actor))
        return self.replicas[-1]

    def _process(self, allocation: Allocation) -> Any:
        beside = self.holder is not None
        options = actor_options(allocation.placement, self.group, cuda=self.cuda, beside=beside)
        actor = _ACTOR_CLASS.options(**options).remote(self.access)
        self.holder = self.holder or actor
        return actor

    def _kill(self, replica: "RayReplica") -> None:
        ray.kill(replica.actor)
        if self.holder is replica.actor:
            self.holder = None

    def reassign(self, replica: "RayReplica", allocation: Allocation, *, free: bool) -> "RayReplica":
        """The next model's replica in place of one: in the same process if it is `free`, else in a new one."""
        if not free:
            self._kill(replica)
        self.replicas.remove(replica)
        self.replicas.append(RayReplica(allocation, self, replica.actor if free else self._process(allocation)))
        return self.replicas[-1]

    def release(self, replica: "RayReplica", *, keep_idle: bool = False) -> None:
        """A replica ends; its process waits for another model with `keep_idle`. The last one gives the devices back."""
        self.replicas.remove(replica)
        if keep_idle and self.idle is None:
            self.idle = replica
        else:
            self._kill(replica)
        if not self.replicas:
            if self.idle is not None:
                self._kill(self.idle)
            remove_placement_group(self.group)


@dataclass(frozen=True, slots=True, eq=False)
class RayReplica:
    """A replica: a process on the devices of a `device_group`, used in this `allocation`."""

    allocation: Allocation
    device_group: DeviceGroup
    actor: Any

    @property
    def where(self) -> str:
        """The family of machines."""
        return self.allocation.family

    @property
    def placement(self) -> Mapping[str, Any]:
        """The devices that the plan chose."""
        return self.allocation.placement.record()

    def options(self, pending: EngineOptions) -> EngineOptions:
        """With the sizes that the plan chose."""
        return self.allocation.placement.options(pending)

    def fetch(self, load: Load) -> Call[None]:
        """See `Worker.fetch`."""
        return RayCall(self.actor.fetch.remote(self._shared(load)))

    def load(self, load: Load) -> Call[Loaded]:
        """See `Worker.load`."""
        return RayCall(self.actor.load.remote(self._shared(load)))

    def score(self, chunk: Chunk) -> Call[Scored]:
        """See `Worker.score`."""
        return RayCall(self.actor.score.remote(replace(chunk, of=self.device_group.tables.share(chunk.of))))

    def close(self) -> Call[bool]:
        """See `Replica.close`."""
        return RayCall(self.actor.close.remote())

    def _shared(self, load: Load) -> Load:
        return load if load.table is None else replace(load, table=self.device_group.tables.share(load.table))
