"""The replica source on Ray: placement groups on a fleet that changes, in the order of the policy.

Ray schedules placement groups and starts actors. This module decides which replica waits for devices, what starts on devices
whose model is done or nearly done, what is prefetched, and which models have become infeasible. `policy.Policy` decides which
replica starts next.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from evaluator.scoring.progress import ProgressView
from evaluator.scoring.replica import ActiveReplica, Assignment, Call, LoopState, Replica
from evaluator.scoring.worker import Load
from evaluator.sweep.hardware import Fleet, Node
from evaluator.sweep.on_ray.cluster import Cluster, ClusterLostError
from evaluator.sweep.on_ray.observation import (
    PendingReplica,
    allocation_of,
    devices_in_use,
    holders,
    node_of,
    progress,
    rates,
    ray_replica,
    running,
    start_of,
)
from evaluator.sweep.on_ray.placement_groups import ask
from evaluator.sweep.on_ray.replica import DeviceGroup, RayCall, RayReplica
from evaluator.sweep.on_ray.tables import SharedTables
from evaluator.sweep.on_ray.worker import ahead
from evaluator.sweep.planning.job import Job, width
from evaluator.sweep.planning.placement import Placement
from evaluator.sweep.planning.policy import Lines, PlannedReplica, Policy
from evaluator.sweep.planning.replan import Replanner
from evaluator.sweep.planning.schedule import Schedule
from evaluator_serving.errors import EngineError
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.weights.cache import readable
from evaluator_serving.weights.hub import HubModel

IN_FLIGHT = 2
"""Chunks a replica holds: one being scored, one waiting so that it never idles."""
SOON = 0.5
"""The part of a model's chunks that is left when it is first asked what could start beside it."""


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What the plan chose, and how replicas are started.

    Attributes:
        fleet: the machines that were planned for.
        jobs, lines, prices: the plan's, see `schedule`.
        replan: (machines, names of the models with work left) → jobs and schedule, asked when machines came or went.
        both_fit: whether two models, by name, fit on the same devices of a machine at the same time.
        start_deadline: seconds a replica may take to load, and a model may wait for a machine that it fits.
        access: how replicas reach the hub where their machines don't say it themselves.
    """

    fleet: Fleet
    jobs: Sequence[Job]
    lines: Lines
    prices: Mapping[str, float]
    replan: Callable[[Fleet, Sequence[str]], tuple[list[Job], Schedule]]
    both_fit: Callable[[str, str, Node, Placement], bool]
    start_deadline: float = 1800.0
    access: HubAccess = field(default_factory=HubAccess)

    @property
    def cuda(self) -> bool:
        """Whether a device is a GPU (else a CPU worker)."""
        return self.fleet.kind == "cuda"


class Pool:
    """The replica source of one sweep."""

    depth = IN_FLIGHT

    def __init__(self, view: ProgressView, cluster: Cluster, options: PoolOptions) -> None:
        self.start_deadline = options.start_deadline
        self._view = view
        self._cluster = cluster
        self._options = options
        self._fleet = options.fleet
        self._policy = Policy.of(options.jobs, options.lines)
        self._replanner = self._planner(options.prices)
        self._pending: list[PendingReplica] = []
        self._placed: list[PendingReplica] = []
        self._idle: set[RayReplica] = set()
        self._tables = SharedTables()
        self._preempted: list[ActiveReplica] = []
        self._prefetched: dict[str, tuple[str, Any]] = {}
        self._infeasible_since: dict[str, float] = {}
        self._cluster_lost = False

    # --- starting ------------------------------------------------------------------------------------------------

    def next_assignments(self, state: LoopState) -> Sequence[Assignment]:
        """Replicas whose placement groups are ready. One group a family is pending at a time: wide ones must not starve."""
        if fleet := self._cluster.changed(self._fleet):
            self._change_fleet(fleet, state)
        for pending in [a for a in self._pending if not state.models[a.model].has_work]:
            self._withdraw(pending)  # others have taken all that it was to do
        for family in self._fleet.families():
            if not any(a.allocation.family == family for a in self._pending):
                chosen = self._next_start(family, state)
                if chosen is not None:
                    self._policy.started(family, chosen)
                    self._request_group(chosen)
        placed, self._placed = self._placed, []
        for pending in [a for a in placed if not state.models[a.model].has_work]:
            placed.remove(pending)
            remove_placement_group(pending.group)
        assignments = [Assignment(a.model, self._device_group(a.group).allocate(a.allocation)) for a in placed]
        return [*assignments, *self._beside(state)]

    def _device_group(self, group: PlacementGroup) -> DeviceGroup:
        return DeviceGroup(group, self._options.cuda, self._options.access, self._tables)

    def _request_group(self, start: PlannedReplica) -> None:
        nodes = [node.id for node in self._fleet.families()[start[1].family] if node.id]
        group = ask(start[1].placement, nodes, cuda=self._options.cuda)
        self._pending.append(PendingReplica(start, group, group.ready()))

    def _withdraw(self, pending: PendingReplica) -> None:
        self._pending.remove(pending)
        remove_placement_group(pending.group)

    def _next_start(self, family: str, state: LoopState, but: ActiveReplica | None = None) -> PlannedReplica | None:
        """The replica that the policy starts next on a family; `but` is a replica that is about to end."""
        now = time.monotonic()
        nodes = self._fleet.families().get(family, [])  # none: its machines have just left
        holding = holders([active for active in state.active_replicas if active is not but], self._pending)
        working = [model for name, model in state.models.items() if model.has_work and name in self._policy.jobs]
        found = {model.name: progress(model, state, self._pending, now) for model in working}
        there = [running(h, found[name].load_ratio if (name := start_of(h)[0]) in found else 1.0, now) for h in holding]
        if new_plan := self._replanner.replan(found, there, now):
            self._policy.lines = new_plan.lines
            for holder in [holding[at] for at in new_plan.preempted]:
                holding.remove(holder)
                if isinstance(holder, PendingReplica):
                    self._withdraw(holder)
                else:
                    self._preempted.append(holder)
        free = sum(node.devices for node in nodes) - devices_in_use([start_of(h) for h in holding], family)
        return self._policy.next(family, found, now, lambda allocation: width(allocation) <= free + 1e-9)

    def _planner(self, prices: Mapping[str, float]) -> Replanner:
        machines = {family: [node.devices for node in nodes] for family, nodes in self._fleet.families().items()}
        return Replanner(self._policy.jobs, machines, prices)

    # --- the next model on the same devices ----------------------------------------------------------------------

    def reassign(self, active: ActiveReplica, state: LoopState, *, free: bool) -> Assignment | None:
        """The next model that wants the same devices: in the same process or, where its memory hasn't come back, a new one."""
        replica = ray_replica(active.replica)
        if len(replica.device_group.replicas) > 1:  # the next model has been started beside it
            if free:
                self._idle.add(replica)
            return None
        chosen = self._next_planned(active, state) or self._next_start(replica.allocation.family, state, active)
        if chosen is None or not self._can_replace(chosen, active, state):
            return None
        self._claim_devices(chosen)
        return Assignment(chosen[0], replica.device_group.reassign(replica, chosen[1], free=free))

    def reuse(self, active: ActiveReplica, model: str, state: LoopState) -> Replica:
        """In the same process and on the same devices; a start of that model that was planned is this one."""
        replica = ray_replica(active.replica)
        job = self._policy.jobs.get(model)
        own = replica.allocation
        others = job.on(own.family) if job else []
        allocation = next((other for other in others if other.placement == own.placement), own)
        self._claim_devices((model, allocation))
        return replica.device_group.reassign(replica, allocation, free=True)

    def _beside(self, state: LoopState) -> list[Assignment]:
        """The next model starts while the last chunks of the one before it are scored, where there is memory for both."""
        speed, found = rates(state.active_replicas, time.monotonic()), []
        for active in state.active_replicas:
            device_group, model = ray_replica(active.replica).device_group, active.model
            if (
                active.loaded is None
                or active.pending_call is not None
                or len(device_group.replicas) > 1
                or model.remaining > SOON
            ):
                continue
            if state.next_sharing_weights(model) is not None:
                continue  # it goes on with that one
            start = self._next_planned(active, state)
            if (
                start is not None
                and model.remaining <= start[1].load * speed[model.name]
                and self._both_fit(model.name, start, device_group)
            ):
                self._claim_devices(start)
                found.append(Assignment(start[0], device_group.allocate(start[1])))
                break  # the next one when this one is at work
        return found

    def _both_fit(self, model: str, start: PlannedReplica, device_group: DeviceGroup) -> bool:
        """Whether a model has room beside another one on its devices."""
        name, allocation = start
        nodes = self._fleet.families().get(allocation.family, [])
        if (
            device_group.cuda or not nodes
        ):  # engines take more of a card than they need, so that a plan can't say what is left of it
            return False
        return self._options.both_fit(model, name, min(nodes, key=lambda node: node.memory), allocation.placement)

    def _next_planned(self, active: ActiveReplica, state: LoopState) -> PlannedReplica | None:
        """What is next in line for a replica's devices, but before that what was read ahead on its machine."""
        family, begun = allocation_of(active).family, {m.model.name for m in state.active_replicas}
        pending = [a.start for a in self._pending if a.allocation.family == family]
        line = list(self._policy.lines.get(family, ()))
        here = {name for name, (node, _) in self._prefetched.items() if node == node_of(active) != ""}
        near = [start for start in pending + line if start[0] in here - begun]
        first = pending[:1] or [start for start in line[:1] if start[0] not in begun]
        return next((start for start in near + first if self._can_replace(start, active, state)), None)

    def _can_replace(self, start: PlannedReplica, active: ActiveReplica, state: LoopState) -> bool:
        """Whether a replica can start where one of another model is."""
        (name, allocation), own = start, allocation_of(active)
        same = allocation.family == own.family and allocation.placement == own.placement
        return same and name != active.model.name and state.models[name].has_work

    def _claim_devices(self, start: PlannedReplica) -> None:
        """A planned replica takes devices that are already allocated: it no longer waits for others."""
        line = self._policy.lines.get(start[1].family, deque())
        pending = next((a for a in self._pending if a.start == start), None)
        if pending is not None:
            self._withdraw(pending)
        elif start in line:
            line.remove(start)

    # --- ending replicas -----------------------------------------------------------------------------------------------

    def preempted(self) -> Sequence[ActiveReplica]:
        """Replicas of models that turned out fast, where others need the devices."""
        preempted, self._preempted = self._preempted, []
        return preempted

    def reschedule(self, active: ActiveReplica, state: LoopState) -> None:
        """Its model is first in its family's line; what waits for devices there waits behind it."""
        family = allocation_of(active).family
        self._policy.lines.setdefault(family, deque()).appendleft((active.model.name, allocation_of(active)))
        for other in [a for a in self._pending if a.allocation.family == family]:
            self._withdraw(other)
            self._policy.lines[family].insert(1, other.start)

    def end(self, replica: Replica) -> None:
        """End the process and release its devices, or keep it idle where the next model was started beside it.

        Skipped when the cluster is lost: Ray would wait for a minute.
        """
        replica = ray_replica(replica)
        if not self._cluster_lost:
            replica.device_group.release(replica, keep_idle=replica in self._idle)
        self._idle.discard(replica)

    def close(self) -> None:
        """Nothing waits for devices any more."""
        if not self._cluster_lost:
            for pending in [*self._pending, *self._placed]:
                remove_placement_group(pending.group)

    # --- waiting -------------------------------------------------------------------------------------------------

    def wait(self, calls: Sequence[Call[Any]]) -> Call[Any] | None:
        """The first call that comes back within a second. Raises ClusterLostError where none ever will."""
        own = {pending.ready: pending for pending in self._pending}
        theirs = {call.ref: call for call in calls if isinstance(call, RayCall)}
        ready: list[Any] = []
        if own or theirs:
            ready, _ = ray.wait([*theirs, *own], num_returns=1, timeout=1.0)
        else:
            time.sleep(1.0)  # until a machine comes that fits what is left
        try:
            self._cluster.check(idle=not ready)
        except ClusterLostError:
            self._cluster_lost = True
            raise
        for pending in [own[ref] for ref in ready if ref in own]:
            self._is_placed(pending)
        return next((theirs[ref] for ref in ready if ref in theirs), None)

    def _is_placed(self, pending: PendingReplica) -> None:
        self._pending.remove(pending)
        try:
            ray.get(pending.ready)
        except RayError:  # what waited for the group died, with a machine, say: it is asked for again
            with contextlib.suppress(RayError):
                remove_placement_group(pending.group)
            self._policy.lines.setdefault(pending.allocation.family, deque()).appendleft(pending.start)
        else:
            self._placed.append(pending)

    def fetch_note(self, load: Load) -> str:
        """What may have to be fetched: only the machine knows what is there."""
        origin = load.source.origin
        return f"weights ({readable(origin.size)}), from cache or hub" if isinstance(origin, HubModel) else ""

    def loaded(self, active: ActiveReplica, state: LoopState) -> None:
        """Have a replica's machine fetch and read the files of a model that starts soon: of each model one machine does.

        Another machine may be free first. But all of them fetching every model would be as many times the traffic.
        """
        if active.loaded is None:
            return
        family = allocation_of(active).family
        line = [a.model for a in self._pending if a.allocation.family == family]
        line += [name for name, _ in self._policy.lines.get(family) or ()]
        placed = {m.model.name for m in state.active_replicas}
        following = next((name for name in line if name not in placed and name not in self._prefetched), None)
        if following is None:
            return
        origins = [m.prepared.source.origin for m in state.models.values() if m.has_work]
        keep = frozenset(origin.key for origin in origins if isinstance(origin, HubModel))
        there = NodeAffinitySchedulingStrategy(active.loaded.node, soft=False)
        task = ray.remote(ahead).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        read = task.remote(state.models[following].prepared.source.origin, self._options.access, keep)
        self._prefetched[following] = active.loaded.node, read

    # --- machines that come and go -------------------------------------------------------------------------------

    def _change_fleet(self, fleet: Fleet, state: LoopState) -> None:
        """Machines came or went: what waits for devices asks again, by a new plan for what is left."""
        for pending in list(self._pending):
            self._withdraw(pending)
        self._fleet = fleet
        jobs, schedule = self._options.replan(fleet, [name for name, model in state.models.items() if model.has_work])
        lines: dict[str, list[PlannedReplica]] = {family: [] for family in schedule.lines}
        there = {name: len(state.replicas_of(model)) for name, model in state.models.items()}
        for family, line in schedule.lines.items():
            for name, allocation in line:
                if there[name] > 0:
                    there[name] -= 1  # one of its replicas is at work already
                else:
                    lines[family].append((name, allocation))
        self._policy = Policy.of(jobs, lines)
        self._replanner = self._planner(schedule.prices)

    def infeasible(self, state: LoopState) -> Mapping[str, Exception]:
        """Models that no machine has fitted for as long as a replica may take to load."""
        now, found = time.monotonic(), {}
        for name, model in state.models.items():
            if not model.has_work or name in self._policy.jobs:
                self._infeasible_since.pop(name, None)
            elif name not in self._infeasible_since:
                self._infeasible_since[name] = now
                self._view.state(name, "waiting", "waiting for a machine: no machine in the cluster is large enough")
            elif now - self._infeasible_since[name] > self._options.start_deadline:
                found[name] = EngineError(f"{name}: no machine that is large enough has joined the cluster again")
        return found
