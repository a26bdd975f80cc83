"""The supplier of replicas on Ray: placement groups on a fleet that changes, in the order that the policy says.

Ray places and starts; this module only decides what is asked of it: which model's replica waits for devices, what a process
takes that is done with its model, what is read ahead, what becomes of a model that no machine fits any more. Which replica
starts next is `policy.Policy`'s word.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from evaluator.run.progress import ProgressView
from evaluator.run.replica import Call, Member, Offer, Replica, State
from evaluator.run.worker import Load
from evaluator.sweep.cluster import Cluster, ClusterLostError
from evaluator.sweep.fit import Way
from evaluator.sweep.groups import ask
from evaluator.sweep.hardware import Fleet
from evaluator.sweep.job import Job, width
from evaluator.sweep.policy import Lines, Policy, Progress, Start
from evaluator.sweep.replan import Replanner
from evaluator.sweep.replica import ahead
from evaluator.sweep.schedule import Schedule
from evaluator.sweep.seat import RayCall, Seat
from evaluator_serving.errors import EngineError
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.weights.cache import readable
from evaluator_serving.weights.hub import HubModel

IN_FLIGHT = 2
"""Chunks a replica holds: one being scored, one waiting so that it never idles."""
MEASURED = 2
"""Chunks after which a replica's speed counts as known."""
SLOW = (0.5, 2.0)
"""Between these a measured load counts against the estimate: beyond them it says more of a download, or of a process that had
its libraries already, than of the model."""


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What the plan chose, and how replicas are started.

    Attributes:
        fleet: the machines that were planned for.
        jobs, lines, prices: the plan's, see `schedule`.
        replan: (machines, names of the models with work left) → jobs and schedule, asked when machines came or went.
        start_deadline: seconds a replica may take to load, and a model may wait for a machine that it fits.
        access: how replicas reach the hub where their machines don't say it themselves.
    """

    fleet: Fleet
    jobs: Sequence[Job]
    lines: Lines
    prices: Mapping[str, float]
    replan: Callable[[Fleet, Sequence[str]], tuple[list[Job], Schedule]]
    start_deadline: float = 1800.0
    access: HubAccess = field(default_factory=HubAccess)

    @property
    def cuda(self) -> bool:
        """Whether a device is a GPU (else a CPU worker)."""
        return self.fleet.kind == "cuda"


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A replica that waits for its devices: `ready` is Ray's reference to the moment when they are there."""

    model: str
    way: Way
    group: PlacementGroup
    ready: Any


class Pool:
    """The supplier. One instance serves one sweep."""

    depth = IN_FLIGHT

    def __init__(self, view: ProgressView, cluster: Cluster, options: PoolOptions) -> None:
        self.start_deadline = options.start_deadline
        self._view = view
        self._cluster = cluster
        self._options = options
        self._fleet = options.fleet
        self._policy = Policy.of(options.jobs, options.lines)
        self._replanner = self._planner(options.prices)
        self._asked: list[_Asked] = []
        self._placed: list[_Asked] = []
        self._ahead: dict[str, Any] = {}
        self._lonely: dict[str, float] = {}
        self._gone = False

    # --- starting ------------------------------------------------------------------------------------------------

    def offers(self, state: State) -> Sequence[Offer]:
        """Replicas whose devices are there; one placement group a family is kept pending, so that wide ones aren't starved."""
        if fleet := self._cluster.changed(self._fleet):
            self._move(fleet, state)
        for asked in [a for a in self._asked if not state.models[a.model].has_work]:
            self._withdraw(asked)  # others have taken all that it was to do
        for family in self._fleet.families():
            if not any(a.way.family == family for a in self._asked):
                chosen = self._next_start(family, state)
                if chosen is not None:
                    self._policy.started(family, chosen)
                    self._ask(*chosen)
        placed, self._placed = self._placed, []
        for asked in [a for a in placed if not state.models[a.model].has_work]:
            placed.remove(asked)
            remove_placement_group(asked.group)
        return [Offer(a.model, self._seat(a.way, a.group)) for a in placed]

    def _ask(self, model: str, way: Way) -> None:
        nodes = [node.id for node in self._fleet.families()[way.family] if node.id]
        group = ask(way.placement, nodes, cuda=self._options.cuda)
        self._asked.append(_Asked(model, way, group, group.ready()))

    def _seat(self, way: Way, group: PlacementGroup) -> Seat:
        return Seat.take(way, group, self._options.access, cuda=self._options.cuda)

    def _withdraw(self, asked: _Asked) -> None:
        self._asked.remove(asked)
        remove_placement_group(asked.group)

    def _next_start(self, family: str, state: State, but: Member | None = None) -> Start | None:
        """The policy's word on what starts next on a family; `but` is a replica that is about to end."""
        now = time.monotonic()
        nodes = self._fleet.families().get(family, [])  # none: its machines have just left
        running = [(m.model.name, _way(m)) for m in state.members if m is not but] + [(a.model, a.way) for a in self._asked]
        free = sum(node.devices for node in nodes) - sum(width(way) for _, way in running if way.family == family)
        progress = self._progress(state, now)
        if lines := self._replanner.lines(progress, running, now):
            self._policy.lines = lines
        return self._policy.next(family, progress, now, lambda way: width(way) <= free + 1e-9)

    def _planner(self, prices: Mapping[str, float]) -> Replanner:
        machines = {family: [node.devices for node in nodes] for family, nodes in self._fleet.families().items()}
        return Replanner(self._policy.jobs, machines, prices)

    def _progress(self, state: State, now: float) -> dict[str, Progress]:
        """Every model with work left, as the policy sees it."""
        found = {}
        for name, model in state.models.items():
            if not model.has_work or name not in self._policy.jobs:
                continue
            members = state.of(model)
            loaded = [m for m in members if m.loaded is not None]
            rate = sum(_rate(m, now) for m in loaded)
            planned = sum(1 / max(_way(m).score, 1e-9) for m in loaded)
            loading = [(m.begun, _way(m)) for m in members if m.loaded is None]
            loading += [(now, a.way) for a in self._asked if a.model == name]
            slow = _slow(loaded)
            found[name] = Progress(
                left=model.left,
                at=now,
                rate=rate,
                loading=[(begun + way.load * slow, 1 / max(way.score, 1e-9)) for begun, way in loading],
                members=len(loaded) + len(loading),
                pace=rate / planned if planned else 1.0,
                slow=slow,
                measured=any(m.scored >= MEASURED for m in loaded),
            )
        return found

    def follow(self, member: Member, state: State, *, free: bool) -> Offer | None:
        """The next model that wants the same devices: in the same process or, where its memory hasn't come back, a new one."""
        family, seat = _way(member).family, _seat(member.replica)
        waiting = next((a for a in self._asked if a.way.family == family), None)
        chosen = (waiting.model, waiting.way) if waiting is not None else self._next_start(family, state, member)
        if chosen is None or chosen[1].placement != seat.way.placement or not state.models[chosen[0]].has_work:
            return None
        if waiting is not None:
            self._withdraw(waiting)
        else:
            self._policy.started(family, chosen)
        name, way = chosen
        if free:
            return Offer(name, replace(seat, way=way))
        ray.kill(seat.actor)
        return Offer(name, self._seat(way, seat.group))

    def again(self, member: Member, state: State) -> None:
        """Its model is first in its family's line; what waits for devices there waits behind it."""
        family = _way(member).family
        self._policy.lines.setdefault(family, deque()).appendleft((member.model.name, _way(member)))
        for other in [a for a in self._asked if a.way.family == family]:
            self._withdraw(other)
            self._policy.lines[family].insert(1, (other.model, other.way))

    def end(self, replica: Replica) -> None:
        """End the process and give the devices back. Those of a cluster that is lost are gone; Ray would wait for a minute."""
        if not self._gone:
            _seat(replica).end()

    def close(self) -> None:
        """Nothing waits for devices any more."""
        if not self._gone:
            for asked in [*self._asked, *self._placed]:
                remove_placement_group(asked.group)

    # --- waiting -------------------------------------------------------------------------------------------------

    def wait(self, calls: Sequence[Call[Any]]) -> Call[Any] | None:
        """The first call that comes back within a second. Raises ClusterLostError where none ever will."""
        own = {asked.ready: asked for asked in self._asked}
        theirs = {call.ref: call for call in calls if isinstance(call, RayCall)}
        ready: list[Any] = []
        if own or theirs:
            ready, _ = ray.wait([*theirs, *own], num_returns=1, timeout=1.0)
        else:
            time.sleep(1.0)  # until a machine comes that fits what is left
        try:
            self._cluster.check(idle=not ready)
        except ClusterLostError:
            self._gone = True
            raise
        for asked in [own[ref] for ref in ready if ref in own]:
            self._is_placed(asked)
        return next((theirs[ref] for ref in ready if ref in theirs), None)

    def _is_placed(self, asked: _Asked) -> None:
        self._asked.remove(asked)
        try:
            ray.get(asked.ready)
        except RayError:  # what waited for the group died, with a machine, say: it is asked for again
            with contextlib.suppress(RayError):
                remove_placement_group(asked.group)
            self._policy.lines.setdefault(asked.way.family, deque()).appendleft((asked.model, asked.way))
        else:
            self._placed.append(asked)

    def fetching(self, load: Load) -> str:
        """What may have to be fetched: only the machine knows what is there."""
        origin = load.source.origin
        return f"weights ({readable(origin.size)}), from cache or hub" if isinstance(origin, HubModel) else ""

    def loaded(self, member: Member, state: State) -> None:
        """Have a replica's machine fetch and read the files of a model that starts soon: of each model one machine does.

        Another machine may be free first. But all of them fetching every model would be as many times the traffic.
        """
        family = _way(member).family
        line = [a.model for a in self._asked if a.way.family == family]
        line += [name for name, _ in self._policy.lines.get(family) or ()]
        placed = {m.model.name for m in state.members}
        following = next((name for name in line if name not in placed and name not in self._ahead), None)
        if following is None or member.loaded is None:
            return
        origins = [m.prepared.source.origin for m in state.models.values() if m.has_work]
        keep = frozenset(origin.key for origin in origins if isinstance(origin, HubModel))
        there = NodeAffinitySchedulingStrategy(member.loaded.node, soft=False)
        task = ray.remote(ahead).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        self._ahead[following] = task.remote(state.models[following].prepared.source.origin, self._options.access, keep)

    # --- machines that come and go -------------------------------------------------------------------------------

    def _move(self, fleet: Fleet, state: State) -> None:
        """Machines came or went: what waits for devices asks again, by a new plan for what is left."""
        for asked in list(self._asked):
            self._withdraw(asked)
        self._fleet = fleet
        jobs, schedule = self._options.replan(fleet, [name for name, model in state.models.items() if model.has_work])
        lines: dict[str, list[Start]] = {family: [] for family in schedule.lines}
        there = {name: len(state.of(model)) for name, model in state.models.items()}
        for family, line in schedule.lines.items():
            for name, way in line:
                if there[name] > 0:
                    there[name] -= 1  # one of its replicas is at work already
                else:
                    lines[family].append((name, way))
        self._policy = Policy.of(jobs, lines)
        self._replanner = self._planner(schedule.prices)

    def out_of_reach(self, state: State) -> Mapping[str, Exception]:
        """Models that no machine has fitted for as long as a replica may take to load."""
        now, found = time.monotonic(), {}
        for name, model in state.models.items():
            if not model.has_work or name in self._policy.jobs:
                self._lonely.pop(name, None)
            elif name not in self._lonely:
                self._lonely[name] = now
                self._view.state(name, "waiting", "no machine that it fits is left: waiting for one")
            elif now - self._lonely[name] > self._options.start_deadline:
                found[name] = EngineError(f"{name}: no machine that it fits has come back")
        return found


def _seat(replica: Replica) -> Seat:
    assert isinstance(replica, Seat), "all replicas come from here"
    return replica


def _way(member: Member) -> Way:
    return _seat(member.replica).way


def _rate(member: Member, now: float) -> float:
    """Parts of its model's work a second: as measured since it loaded, before that as planned."""
    if member.scored < MEASURED:
        return 1 / max(_way(member).score, 1e-9)
    return member.scored / member.model.chunks / max(now - member.since, 1e-9)


def _slow(loaded: Sequence[Member]) -> float:
    """By what a model's loads took longer than was estimated, 1 where none is known."""
    planned = sum(_way(m).load for m in loaded)
    return min(max(sum(m.since - m.begun for m in loaded) / planned, SLOW[0]), SLOW[1]) if planned else 1.0
