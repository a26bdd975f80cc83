"""The observed state of a sweep, for the policy and the pool: which devices are in use, how fast models are. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ray.util.placement_group import PlacementGroup

from evaluator.scoring.replica import ActiveReplica, LoopState, ModelState, Replica
from evaluator.sweep.on_ray.replica import RayReplica
from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import width
from evaluator.sweep.planning.policy import PlannedReplica, Progress, Running

MEASURED = 2
"""Chunks after which a replica's speed counts as known."""
SLOW = (0.5, 2.0)
"""Between these a measured load counts against the estimate: beyond them it says more of a download, or of a process that had
its libraries already, than of the model."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingReplica:
    """A replica whose placement group is pending: `ready` is Ray's reference to `group.ready()`."""

    start: PlannedReplica
    group: PlacementGroup
    ready: Any

    @property
    def model(self) -> str:
        """The model's name."""
        return self.start[0]

    @property
    def allocation(self) -> Allocation:
        """On which devices."""
        return self.start[1]


def ray_replica(replica: Replica) -> RayReplica:
    """A replica of the pool's as what it is."""
    assert isinstance(replica, RayReplica), "all replicas come from the pool"
    return replica


def allocation_of(active: ActiveReplica) -> Allocation:
    """A replica's allocation."""
    return ray_replica(active.replica).allocation


def node_of(active: ActiveReplica) -> str:
    """The id of a loaded replica's machine."""
    return active.loaded.node if active.loaded is not None else ""


def holders(
    active_replicas: Sequence[ActiveReplica], pending: Sequence[PendingReplica]
) -> list[ActiveReplica | PendingReplica]:
    """Replicas that hold devices or wait for some. Two replicas that share devices count once, as the later one.

    A draining replica does not count.
    """
    by_group = {ray_replica(m.replica).device_group: m for m in active_replicas}
    return [*(m for m in by_group.values() if not m.draining), *pending]


def start_of(holder: ActiveReplica | PendingReplica) -> PlannedReplica:
    """A replica's model and allocation."""
    return holder.start if isinstance(holder, PendingReplica) else (holder.model.name, allocation_of(holder))


def running(holder: ActiveReplica | PendingReplica, ratio: float, now: float) -> Running:
    """A replica for the plan made again; `longer`: see `Progress.load_ratio`."""
    name, allocation = start_of(holder)
    begun = now if isinstance(holder, PendingReplica) else holder.started_at
    loaded = isinstance(holder, ActiveReplica) and holder.loaded is not None
    return Running(name, allocation, None if loaded else begun + allocation.load * ratio)


def devices_in_use(starts: Sequence[PlannedReplica], family: str) -> float:
    """Devices of a family that are in use or asked for."""
    return sum(width(allocation) for _, allocation in starts if allocation.family == family)


def rate(active: ActiveReplica, now: float) -> float:
    """Parts of its model's work a second: as measured since it loaded, before that as planned."""
    if active.scored < MEASURED:
        return 1 / max(allocation_of(active).score, 1e-9)
    return active.scored / active.model.chunks / max(now - active.loaded_at, 1e-9)


def rates(active_replicas: Sequence[ActiveReplica], now: float) -> dict[str, float]:
    """Parts of each model's work a second, by all its loaded replicas."""
    found: dict[str, float] = defaultdict(float)
    for active in active_replicas:
        if active.loaded is not None:
            found[active.model.name] += rate(active, now)
    return found


def load_ratio(loaded: Sequence[ActiveReplica]) -> float:
    """Measured over estimated seconds of a model's loads, 1 where none is known."""
    planned = sum(allocation_of(m).load for m in loaded)
    return min(max(sum(m.loaded_at - m.started_at for m in loaded) / planned, SLOW[0]), SLOW[1]) if planned else 1.0


def progress(model: ModelState, state: LoopState, pending: Sequence[PendingReplica], now: float) -> Progress:
    """A model with work left, as the policy sees it."""
    active_replicas = [m for m in state.replicas_of(model) if not m.draining]
    loaded = [m for m in active_replicas if m.loaded is not None]
    measured = sum(rate(m, now) for m in loaded)
    planned = sum(1 / max(allocation_of(m).score, 1e-9) for m in loaded)
    loading = [(m.started_at, allocation_of(m)) for m in active_replicas if m.loaded is None]
    loading += [(now, a.allocation) for a in pending if a.model == model.name]
    ratio = load_ratio(loaded)
    return Progress(
        remaining=model.remaining,
        at=now,
        rate=measured,
        loading=[(begun + allocation.load * ratio, 1 / max(allocation.score, 1e-9)) for begun, allocation in loading],
        replicas=len(loaded) + len(loading),
        speed_ratio=measured / planned if planned else 1.0,
        load_ratio=ratio,
        measured=any(m.scored >= MEASURED for m in loaded),
    )
