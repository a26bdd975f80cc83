"""What starts next in a sweep: one policy for the plan's simulation and for the real run alike. Pure arithmetic.

Machines that are alike form a family. Each family has a line of replicas to start, in the planned order, and only its first
one waits for devices, so that wide ones aren't starved. Where a line is empty and devices are idle, they help: first with a
model that still waits in another family's line, then with the model that will end last, if that pays. A replica takes chunks
from its model's queue until there is none left, so a model's replicas end together whenever each of them began.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import LANES, Job, width

PlannedReplica = tuple[str, Allocation]
"""A replica to start: a model's name and its allocation."""
Lines = Mapping[str, Sequence[PlannedReplica]]
"""Family → replicas to start there, in this order."""
PAYS = 1.1
"""One more replica is started where the time that is left is at least this many times its load."""


@dataclass(frozen=True, slots=True)
class Running:
    """A replica that loads or scores; `ready`: the moment when it should have loaded, None once it has."""

    job: str
    allocation: Allocation
    ready: float | None = None

    @property
    def part(self) -> float:
        """The part of its job that it was to do in a second."""
        return 1 / max(self.allocation.score, 1e-9)


@dataclass(slots=True)
class Progress:
    """A job as the policy sees it at one moment.

    Attributes:
        remaining: part of its work that was not done at the moment `at`.
        rate: parts a second that its loaded replicas do.
        loading: (moment when it should have loaded, parts a second that it should do) of each replica that loads.
        replicas: how many load or score.
        speed_ratio: measured over estimated speed of its loaded replicas.
        load_ratio: measured over estimated seconds of their loads.
        measured: whether these two are known.
    """

    remaining: float = 1.0
    at: float = 0.0
    rate: float = 0.0
    loading: list[tuple[float, float]] = field(default_factory=list)
    replicas: int = 0
    speed_ratio: float = 1.0
    load_ratio: float = 1.0
    measured: bool = False

    def left_at(self, moment: float) -> float:
        """The part of its work that isn't done at a moment, if no replica joins."""
        done = self.rate * max(0.0, moment - self.at)
        done += sum(more * self.speed_ratio * max(0.0, moment - max(loaded, self.at)) for loaded, more in self.loading)
        return max(0.0, self.remaining - done)

    def end(self) -> float:
        """The moment when it ends, if no replica joins."""
        left, rate, at = self.remaining, self.rate, self.at
        for moment, more in sorted(self.loading):
            step = max(0.0, moment - at)
            if rate * step >= left:
                break
            left -= rate * step
            at += step
            rate += more * self.speed_ratio
        return at + left / rate if rate > 0 else math.inf

    def without(self, replica: Running, now: float) -> "Progress":
        """As it is if one of its replicas ends now."""
        found = replace(self, remaining=max(0.0, self.remaining - self.rate * max(0.0, now - self.at)), at=max(now, self.at))
        found.loading = list(self.loading)
        found.replicas -= 1
        if replica.ready is None:
            rate = self.rate - self.speed_ratio * replica.part
            found.rate = rate if rate > 1e-9 * self.rate else 0.0
        else:
            found.loading.remove((replica.ready, replica.part))
        return found


@dataclass(slots=True)
class Policy:
    """The lines of replicas to start, and what to start where a line is empty."""

    jobs: Mapping[str, Job]
    lines: dict[str, deque[PlannedReplica]]

    @classmethod
    def of(cls, jobs: Sequence[Job], lines: Lines) -> "Policy":
        """The policy at the beginning of a sweep."""
        return cls({job.name: job for job in jobs}, {family: deque(line) for family, line in lines.items()})

    def next(
        self, family: str, progress: Mapping[str, Progress], now: float, fits: Callable[[Allocation], bool]
    ) -> PlannedReplica | None:
        """The replica to start on this family now, None if nothing is.

        `progress`: of each job with work left; `fits`: whether the family has devices for a replica now.
        """
        line = self.lines.get(family)
        while line:
            name, allocation = line[0]
            state = progress.get(name)
            if state is not None and (state.replicas == 0 or state.end() - now > allocation.load * state.load_ratio):
                return line[0] if fits(allocation) else None
            line.popleft()
        return self._help(family, progress, now, fits)

    def _help(
        self, family: str, progress: Mapping[str, Progress], now: float, fits: Callable[[Allocation], bool]
    ) -> PlannedReplica | None:
        """What idle devices do: the longest model that waits elsewhere and would end here in time, else help the last one."""
        ends = {name: state.end() for name, state in progress.items() if state.replicas}
        last = max(ends.values(), default=math.inf)
        waiting: list[tuple[float, PlannedReplica]] = []
        for name in progress.keys() - ends.keys():
            in_time = [w for w in self.jobs[name].on(family) if now + w.load + w.score <= last and fits(w)]
            if in_time:
                allocation = min(in_time, key=lambda w: width(w) * (w.load + w.score))
                waiting.append((allocation.load + allocation.score, (name, allocation)))
        if waiting:
            return max(waiting, key=lambda item: (item[0], item[1][0]))[1]
        for name in sorted(ends, key=lambda name: -ends[name]):
            pays = PAYS * progress[name].load_ratio
            worth = [w for w in self.jobs[name].on(family) if ends[name] - now > pays * w.load and fits(w)]
            if worth:
                return name, min(worth, key=lambda w: (w.load + w.score, width(w)))
        return None

    def started(self, family: str, start: PlannedReplica) -> None:
        """The replica that `next` named has its devices."""
        line = self.lines.get(family)
        if line and line[0] == start:
            line.popleft()


@dataclass(slots=True)
class Machines:
    """Free lanes of the machines of one family: `free[machine][device]`, LANES each where nothing runs."""

    free: list[list[int]]
    idle: int = 0
    """Free lanes of all of them."""
    failed: set[tuple[float, int, int]] = field(default_factory=set)
    """Shapes that have found no room since a replica last ended."""

    @classmethod
    def of(cls, devices: Sequence[int]) -> "Machines":
        """Machines with so many devices each, all free."""
        return cls([[LANES] * count for count in devices], LANES * sum(devices))

    def find(self, allocation: Allocation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """(machines, devices of each, one machine's after the other's) where a replica fits now.

        On the fullest devices of the fullest machines that do: wide replicas need whole ones.
        """
        placement = allocation.placement
        shape = placement.share, placement.per_node, placement.nodes
        lanes, count = round(placement.share * LANES), placement.per_node
        if shape in self.failed or self.idle < lanes * placement.devices:
            return None
        found: list[tuple[int, int, int, list[int]]] = []
        for machine, free in enumerate(self.free):
            fitting = [device for device, room in enumerate(free) if room >= lanes]
            if len(fitting) >= count:
                fitting.sort(key=lambda device: free[device])
                found.append((free[fitting[0]], sum(free), machine, fitting[:count]))
        if len(found) < placement.nodes:
            self.failed.add(shape)
            return None
        chosen = sorted(found)[: placement.nodes]
        return tuple(c[2] for c in chosen), tuple(device for c in chosen for device in c[3])

    def fits(self, allocation: Allocation) -> bool:
        """Whether there is room for a replica now."""
        return self.find(allocation) is not None

    def take(self, allocation: Allocation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """As `find`, and they are no longer free."""
        place = self.find(allocation)
        if place is not None:
            self._change(allocation, *place, -round(allocation.placement.share * LANES))
        return place

    def give(self, allocation: Allocation, machines: Sequence[int], devices: Sequence[int]) -> None:
        """A replica has ended."""
        self._change(allocation, machines, devices, round(allocation.placement.share * LANES))
        self.failed.clear()

    def _change(self, allocation: Allocation, machines: Sequence[int], devices: Sequence[int], lanes: int) -> None:
        for at, device in enumerate(devices):
            self.free[machines[at // allocation.placement.per_node]][device] += lanes
        self.idle += lanes * len(devices)
