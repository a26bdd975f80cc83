"""Replanning while a sweep runs, from measured speeds. Pure arithmetic.

Estimates are wrong by tens of percent; how fast a model really loads and scores is known when its first replica has done so.
From then on what is left is packed anew around the replicas that there are: a model that turns out slow gets further replicas
while devices are still to be had, and others wait. Where all ends sooner by that, a model that turns out fast gives replicas up
that it doesn't need. The lines that come of it replace the plan's.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import LANES, Job, width
from evaluator.sweep.planning.packing import Array, Piece, lines_of, pack
from evaluator.sweep.planning.policy import Machines, PlannedReplica, Progress, Running

SHRINK, SHRINKS = 0.97, 4
"""From a time in which all that is left fits to the next shorter one, and how often that is tried."""
STRETCH, STRETCHES = 0.02, 10
"""From a time that is too short to the next longer one: by one more such step each time."""
SOONER = 0.98
"""Replicas are ended where what is left takes at most this part of the time that it takes with them."""
EFFORT = 5000
"""Allocations times a measure of devices up to which plans are made again: packings take milliseconds, not seconds."""


@dataclass(frozen=True, slots=True)
class NewPlan:
    """The new queues, and which replicas (by number) are preempted because their jobs finish in time without them."""

    lines: dict[str, deque[PlannedReplica]]
    preempted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Replicas to start so that all ends by `until`, if those that are `preempted` end now."""

    pieces: list[Piece]
    until: float
    preempted: list[int]


@dataclass(slots=True)
class Replanner:
    """Makes new lines when something new is known.

    Attributes:
        jobs, families: as the plan has them; prices: of the families' device-seconds.
        until: when all was to end by the last lines.
        measured: jobs whose speed was known then, or that had ended; None before the first look, when the plan's lines are new.
    """

    jobs: Mapping[str, Job]
    families: Mapping[str, Sequence[int]]
    prices: Mapping[str, float]
    until: float = 0.0
    measured: frozenset[str] | None = None

    def replan(self, progress: Mapping[str, Progress], running: Sequence[Running], now: float) -> NewPlan | None:
        """New lines, None where nothing new is known (or the sweep is too large to be planned in passing).

        `progress`: of each job with work left; `running`: the replicas that load or score.
        """
        known = frozenset(name for name in self.jobs if name not in progress or progress[name].measured)
        news = self.measured is not None and known != self.measured
        self.measured = known
        if not news or not self.prices or self._effort(progress) > EFFORT:
            return None
        found = self._shortest(progress, running, now, spare=False)
        less = self._shortest(progress, running, now, spare=True)
        if less is not None and less.preempted and (found is None or less.until - now < SOONER * (found.until - now)):
            found = less
        if found is None:
            return None
        self.until = found.until
        lines = {family: deque(line) for family, line in lines_of(found.pieces, self.families).items()}
        return NewPlan(lines, self._wanted(found, running, now))

    def _effort(self, progress: Mapping[str, Progress]) -> float:
        allocations = sum(len(self.jobs[name].allocations) for name in progress)
        return allocations * (1 + sum(map(sum, self.families.values())) / 64)

    def _shortest(
        self, progress: Mapping[str, Progress], running: Sequence[Running], now: float, *, spare: bool
    ) -> _Candidate | None:
        """The replicas to start so that all ends in the shortest time found, None if it isn't found."""
        worth = sum(self.prices[family] * sum(devices) for family, devices in self.families.items())
        until = max(self.until, now + sum(self._least(name, state, now) for name, state in progress.items()) / worth)
        found = self._fit(progress, running, now, until, spare=spare)
        for step in range(1, STRETCHES + 1):
            if found is not None:
                break
            until = now + (until - now) * (1 + STRETCH * step)
            found = self._fit(progress, running, now, until, spare=spare)
        for _ in range(SHRINKS if found is not None and until == self.until else 0):
            shorter = now + (until - now) * SHRINK
            better = self._fit(progress, running, now, shorter, spare=spare)
            if better is None:
                break
            found, until = better, shorter
        return found

    def _least(self, name: str, state: Progress, now: float) -> float:
        """What the rest of a job costs at least."""
        job = self._rest(name, state, state.left_at(now))
        loads = 0.0 if state.replicas else 1.0
        return min(self.prices[w.family] * width(w) * (loads * w.load + w.score) for w in job.allocations)

    def _rest(self, name: str, state: Progress, left: float) -> Job:
        """A part of a job as a job, with the times that were measured."""
        allocations = self.jobs[name].allocations
        return Job(
            name,
            tuple(replace(w, load=w.load * state.load_ratio, score=w.score * left / state.speed_ratio) for w in allocations),
        )

    def _fit(
        self, progress: Mapping[str, Progress], running: Sequence[Running], now: float, until: float, *, spare: bool
    ) -> _Candidate | None:
        """Replicas to start so that all ends by `until`, None where they don't fit. `spare`: what isn't needed for it ends."""
        preempted: list[int] = []
        if spare:
            shared = {name for name in progress if self._goes_on(name, progress)}
            progress, preempted = _releasing(progress, [r if r.job not in shared else None for r in running], now, until)
        ends, rest = {}, []
        for name, state in progress.items():
            ends[name] = max(now, min(until, state.end())) if state.replicas else now
            left = state.left_at(ends[name])
            if left > 1e-6:
                rest.append(self._rest(name, state, left))
        costs = {job.name: min(self.prices[w.family] * width(w) * (w.load + w.score) for w in job.allocations) for job in rest}
        rest.sort(key=lambda job: (-costs[job.name], job.name))
        free = self._free(running, frozenset(preempted), ends, now)
        pieces, over = pack(rest, self.families, until, self.prices, free, whole=True)
        if over:
            return None
        planned = {(name, w.family, w.placement): w for name in ends for w in self.jobs[name].allocations}
        made = [Piece(p.start, p.job, planned[p.job, p.allocation.family, p.allocation.placement]) for p in pieces]
        return _Candidate(made, until, preempted)

    def _goes_on(self, name: str, progress: Mapping[str, Progress]) -> bool:
        """Whether a job's replicas have something to do after it for which they needn't load."""
        alike = self.jobs[name].alike
        return bool(alike) and any(other != name and self.jobs[other].alike == alike for other in progress)

    def _free(
        self, running: Sequence[Running], preempted: frozenset[int], ends: Mapping[str, float], now: float
    ) -> dict[str, Array]:
        """When each lane gets free, with every replica where it would lie if they had come one after the other."""
        free = {f: np.full((len(devices), max(devices) * LANES), now) for f, devices in self.families.items()}
        machines = {family: Machines.of(devices) for family, devices in self.families.items()}
        for number, replica in sorted(enumerate(running), key=lambda item: -width(item[1].allocation)):
            allocation = replica.allocation
            if allocation.family not in machines or (place := machines[allocation.family].take(allocation)) is None:
                continue  # its machine has left, or it lies where another one would have to
            if number in preempted:
                continue
            for machine, first, last in _lanes(allocation, machines[allocation.family], *place):
                free[allocation.family][machine, first:last] = ends.get(replica.job, now)
        return free

    def _wanted(self, found: _Candidate, running: Sequence[Running], now: float) -> tuple[int, ...]:
        """Of the replicas that could end those whose devices something else is to start on now, the widest first."""
        missing = {family: -float(sum(devices)) for family, devices in self.families.items()}
        for allocation in [*(r.allocation for r in running), *(p.allocation for p in found.pieces if p.start <= now + 1e-6)]:
            if allocation.family in missing:
                missing[allocation.family] += width(allocation)
        chosen = []
        for number in sorted(found.preempted, key=lambda number: -width(running[number].allocation)):
            allocation = running[number].allocation
            if missing.get(allocation.family, 0.0) > 1e-9:
                missing[allocation.family] -= width(allocation)
                chosen.append(number)
        return tuple(chosen)


def _releasing(
    progress: Mapping[str, Progress], running: Sequence[Running | None], now: float, until: float
) -> tuple[dict[str, Progress], list[int]]:
    """(progress without the replicas that aren't needed for all to end by `until`, their numbers). None in `running` stays.

    A model gives up what it has begun last first, and what still loads before what scores; one that isn't measured keeps all.
    """
    left, preempted = dict(progress), []
    there = [(number, replica) for number, replica in enumerate(running) if replica is not None]
    for number, replica in sorted(there, key=lambda item: (item[1].ready is None, -item[0])):
        state = left.get(replica.job)
        if state is not None and state.measured and state.replicas > 1:
            less = state.without(replica, now)
            if less.end() <= until and (less.rate > 0 or replica.ready is not None):  # one that scores stays
                left[replica.job] = less
                preempted.append(number)
    return left, preempted


def _lanes(
    allocation: Allocation, machines: Machines, nodes: Sequence[int], devices: Sequence[int]
) -> list[tuple[int, int, int]]:
    """(machine, first lane, the one after the last) of a replica on each of its devices, just after it was put there."""
    count = round(allocation.placement.share * LANES)
    found = []
    for at, device in enumerate(devices):
        machine = nodes[at // allocation.placement.per_node]
        last = device * LANES + LANES - machines.free[machine][device]
        found.append((machine, last - count, last))
    return found
