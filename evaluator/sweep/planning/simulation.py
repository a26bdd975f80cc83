"""A sweep that follows the policy, without models: when each replica starts and ends, and where. Pure arithmetic.

The driver is one server of all replicas: it starts one model after the other, and shares what time commits leave among the
requests of all. Where that is too little, every replica waits for it to the same degree.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evaluator.sweep.planning.driver_time import ProgramTime
from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import Job
from evaluator.sweep.planning.placement import Placement
from evaluator.sweep.planning.policy import Lines, Machines, PlannedReplica, Policy, Progress, Running
from evaluator.sweep.planning.replan import Replanner


@dataclass(frozen=True, slots=True)
class Slot:
    """One replica's place in the schedule: machines (by number in their family) and devices (by number in their machine)."""

    job: str
    replica: int
    allocation: Allocation
    nodes: tuple[int, ...]
    devices: tuple[int, ...]
    start: float
    end: float


@dataclass(slots=True)
class _Job:
    """What really happens to a job."""

    times: Mapping[tuple[str, Placement], Allocation] | None
    progress: Progress
    requests: int = 0
    worker: float = 0.0
    """Seconds of a worker's CPU that all its requests take."""
    replicas: list[tuple[Allocation, tuple[int, ...], tuple[int, ...], float]] = field(default_factory=list)
    loaded: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    """Replicas that were ended while the job had work left."""
    expected: float = 0.0
    """Parts a second that its loaded replicas should do."""
    unhindered: float = 0.0
    """Parts a second that they would do if they never waited for the driver."""
    version: int = 0
    """Of its rate: an end that was foreseen at an older one doesn't happen."""

    def true(self, allocation: Allocation) -> Allocation:
        return allocation if self.times is None else self.times[allocation.family, allocation.placement]

    def speed(self, allocation: Allocation) -> float:
        """Parts a second that a replica really does while it never waits for the driver."""
        return 1 / max(self.true(allocation).score + self.worker, 1e-9)

    def ready(self, number: int) -> float | None:
        """When a replica should have loaded, None if it has."""
        allocation, _, _, began = self.replicas[number]
        return None if number in self.loaded else began + allocation.load * self.progress.load_ratio

    def running(self) -> list[int]:
        """The numbers of its replicas."""
        return [number for number in range(len(self.replicas)) if number not in self.ended]

    def advance(self, now: float) -> None:
        """What its replicas have done until now is no longer left."""
        state = self.progress
        state.remaining = max(0.0, state.remaining - state.rate * (now - state.at))
        state.at = now

    def foresee(self) -> None:
        """What is still to load, by what loads have taken."""
        waiting = [(self.ready(n), 1 / max(self.replicas[n][0].score, 1e-9)) for n in self.running()]
        self.progress.loading = [(moment, part) for moment, part in waiting if moment is not None]


class _Simulation:
    """Events are (moment, number, job, allocation of a loaded replica or None for the job's end, replica or version)."""

    def __init__(
        self,
        jobs: Sequence[Job],
        families: Mapping[str, Sequence[int]],
        lines: Lines,
        true: Sequence[Job] | None,
        prices: Mapping[str, float],
        program: ProgramTime | None = None,
    ) -> None:
        self.program = program
        self.driver_free = 0.0
        """When the driver has started the models that wait for it."""
        self.slowed = 1.0
        """Actual over unhindered speed of all replicas."""
        self.policy = Policy.of(jobs, lines)
        self.replanner = Replanner(self.policy.jobs, families, prices)
        self.machines = {name: Machines.of(nodes) for name, nodes in families.items()}
        times = {job.name: {(w.family, w.placement): w for w in job.allocations} for job in true or ()}
        worker = program.worker if program else 0.0
        self.jobs = {job.name: _Job(times.get(job.name), Progress(), job.requests, job.requests * worker) for job in jobs}
        self.alike = {job.name: [other.name for other in jobs if job.alike and other.alike == job.alike] for job in jobs}
        self.progress = {name: job.progress for name, job in self.jobs.items()}
        self.events: list[tuple[float, int, str, Allocation | None, int]] = []
        self.count = itertools.count()
        self.slots: list[Slot] = []

    def run(self) -> list[Slot]:
        """Follow the policy to the end of all work."""
        self.start(0.0)
        while self.events:
            now, _, name, allocation, version = heapq.heappop(self.events)
            if name not in self.progress:
                continue
            job = self.jobs[name]
            if allocation is None:
                if version != job.version:
                    continue
                self.end(name, now)
            else:
                self.loaded(name, allocation, version, now)
            if not self.events or self.events[0][0] > now:
                self.start(now)
        return self.slots

    def start(self, now: float) -> None:
        """Start what the policy names, while it names something."""
        if self.replanner.prices:
            self.renew(now)
        for family, machines in self.machines.items():
            while machines.idle:
                chosen = self.policy.next(family, self.progress, now, machines.fits)
                if chosen is None:
                    break
                name, allocation = chosen
                place = machines.take(allocation)
                assert place is not None
                self.policy.started(family, chosen)
                job = self.jobs[name]
                job.replicas.append((allocation, *place, now))
                job.progress.replicas += 1
                job.progress.loading.append((now + allocation.load * job.progress.load_ratio, 1 / max(allocation.score, 1e-9)))
                loaded = self.driver_starts(job, now) + job.true(allocation).load
                heapq.heappush(self.events, (loaded, next(self.count), name, allocation, len(job.replicas) - 1))

    def driver_starts(self, job: _Job, now: float) -> float:
        """When the driver has started a replica: it takes time for the first one of a model."""
        if self.program and len(job.replicas) == 1:
            self.driver_free = max(now, self.driver_free) + self.program.model
            return self.driver_free
        return now

    def renew(self, now: float) -> None:
        """Plan again if something new is known."""
        numbers = [(name, number) for name in self.progress for number in self.jobs[name].running()]
        running = [Running(name, self.jobs[name].replicas[n][0], self.jobs[name].ready(n)) for name, n in numbers]
        if new_plan := self.replanner.replan(self.progress, running, now):
            self.policy.lines = new_plan.lines
            for at in new_plan.preempted:
                self.spare(*numbers[at], now)

    def loaded(self, name: str, allocation: Allocation, number: int, now: float) -> None:
        """A replica begins to score."""
        job = self.jobs[name]
        if number in job.ended:
            return
        state, began = job.progress, job.replicas[number][3]
        state.load_ratio = (now - began) / allocation.load if allocation.load else 1.0
        self.scores(name, allocation, number, now)

    def scores(self, name: str, allocation: Allocation, number: int, now: float) -> None:
        """A replica has what it needs."""
        job = self.jobs[name]
        state = job.progress
        job.advance(now)
        job.loaded.add(number)
        job.foresee()
        state.measured = True
        job.expected += 1 / max(allocation.score, 1e-9)
        job.unhindered += job.speed(allocation)
        self.share(name, now)
        state.speed_ratio = state.rate / job.expected

    def share(self, name: str, now: float) -> None:
        """The speeds of all jobs after `name` has more or fewer replicas: the driver may have less time for the others."""
        before, self.slowed = self.slowed, self.hindrance()
        for other in self.progress if self.slowed != before else {name} & self.progress.keys():
            job = self.jobs[other]
            job.advance(now)
            job.progress.rate = job.unhindered * self.slowed
            if self.slowed != before and job.expected:
                job.progress.speed_ratio = job.progress.rate / job.expected
            self.expect(other, now)

    def hindrance(self) -> float:
        """Actual over unhindered speed: less than 1 where the driver has more to do than it has time."""
        if self.program is None:
            return 1.0
        scoring = [self.jobs[name] for name in self.progress if self.jobs[name].unhindered]
        wanted = self.program.request * sum(job.requests * job.unhindered for job in scoring)
        return min(1.0, self.program.free(len(scoring)) / wanted) if wanted else 1.0

    def expect(self, name: str, now: float) -> None:
        """A job's end, at its present rate; another one that was foreseen before doesn't happen."""
        job = self.jobs[name]
        job.version += 1
        if job.progress.rate > 0:
            end = now + job.progress.remaining / job.progress.rate
            heapq.heappush(self.events, (end, next(self.count), name, None, job.version))

    def spare(self, name: str, number: int, now: float) -> None:
        """A replica ends although its job has work left."""
        job = self.jobs[name]
        allocation, machines, devices, began = job.replicas[number]
        job.advance(now)
        job.ended.add(number)
        job.progress.replicas -= 1
        job.foresee()
        scoring = [job.replicas[n][0] for n in job.running() if n in job.loaded]
        job.expected = sum(1 / max(w.score, 1e-9) for w in scoring)
        job.unhindered = sum(map(job.speed, scoring))
        self.share(name, now)
        self.machines[allocation.family].give(allocation, machines, devices)
        self.slots.append(Slot(name, number, allocation, machines, devices, began, now))

    def end(self, name: str, now: float) -> None:
        """A job has no work left: its replicas end, or go on with one that is alike."""
        del self.progress[name]
        job = self.jobs[name]
        self.share(name, now)
        for number in job.running():
            allocation, machines, devices, began = job.replicas[number]
            self.slots.append(Slot(name, number, allocation, machines, devices, began, now))
            other = self.other(name, allocation) if number in job.loaded else None
            if other is None:
                self.machines[allocation.family].give(allocation, machines, devices)
            else:
                self.goes_over(other, machines, devices, now)

    def other(self, name: str, allocation: Allocation) -> PlannedReplica | None:
        """The job for which a replica has loaded all, as it lies: of several the one with the fewest replicas."""
        found = [
            (self.progress[other].replicas, (other, its))
            for other in self.alike[name]
            if other in self.progress
            for its in self.policy.jobs[other].on(allocation.family)
            if its.placement == allocation.placement
        ]
        return min(found, key=lambda item: item[0])[1] if found else None

    def goes_over(self, start: PlannedReplica, machines: tuple[int, ...], devices: tuple[int, ...], now: float) -> None:
        """A replica scores another job; a start of that which was planned is this one."""
        name, allocation = start
        if start in (line := self.policy.lines.get(allocation.family, deque())):
            line.remove(start)
        job = self.jobs[name]
        job.replicas.append((allocation, machines, devices, now))
        job.progress.replicas += 1
        self.scores(name, allocation, len(job.replicas) - 1, now)


def simulate(
    jobs: Sequence[Job],
    families: Mapping[str, Sequence[int]],
    lines: Lines,
    true: Sequence[Job] | None = None,
    prices: Mapping[str, float] | None = None,
    program: ProgramTime | None = None,
) -> list[Slot]:
    """The slots of a sweep that follows the policy from these lines.

    `true` has the times that really pass; with the plan's `prices` it is planned again when some of them are known. `program`:
    time that the driver and the workers' CPUs take; None for none.
    """
    return _Simulation(jobs, families, lines, true, prices or {}, program).run()


def makespan(slots: Sequence[Slot]) -> float:
    """When the last replica ends."""
    return max((slot.end for slot in slots), default=0.0)
