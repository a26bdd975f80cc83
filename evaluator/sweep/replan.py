"""The plan made again while a sweep runs, from what has been measured. Pure arithmetic.

Estimates are wrong by tens of percent; how fast a model really loads and scores is known when its first replica has done so.
From then on what is left is packed anew around the replicas that there are, which stay what they are: a model that turns out
slow gets further replicas while devices are still to be had, and others wait. The lines that come of it replace the plan's.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evaluator.sweep.fit import Way
from evaluator.sweep.job import LANES, Job, width
from evaluator.sweep.packing import Array, Piece, lines_of, pack
from evaluator.sweep.policy import Machines, Progress, Start

SHRINK, SHRINKS = 0.97, 4
"""From a time in which all that is left fits to the next shorter one, and how often that is tried."""
STRETCH, STRETCHES = 0.02, 10
"""From a time that is too short to the next longer one: by one more such step each time."""
EFFORT = 5000
"""Ways times a measure of devices up to which plans are made again: packings take milliseconds, not seconds."""


@dataclass(slots=True)
class Replanner:
    """Makes new lines when something new is known.

    Attributes:
        jobs, families: as the plan has them; prices: of the families' device-seconds.
        until: when all was to end by the last lines.
        known: jobs whose speed was known then, or that had ended; None before the first look, when the plan's lines are new.
    """

    jobs: Mapping[str, Job]
    families: Mapping[str, Sequence[int]]
    prices: Mapping[str, float]
    until: float = 0.0
    known: frozenset[str] | None = None

    def lines(self, progress: Mapping[str, Progress], running: Sequence[Start], now: float) -> dict[str, deque[Start]] | None:
        """New lines, None where nothing new is known (or the sweep is too large to be planned in passing).

        `progress`: of each job with work left; `running`: the replicas that load or score.
        """
        known = frozenset(name for name in self.jobs if name not in progress or progress[name].measured)
        news = self.known is not None and known != self.known
        self.known = known
        if not news or not self.prices or self._effort(progress) > EFFORT:
            return None
        pieces = self._shortest(progress, running, now)
        if pieces is None:
            return None
        return {family: deque(line) for family, line in lines_of(pieces, self.families).items()}

    def _effort(self, progress: Mapping[str, Progress]) -> float:
        ways = sum(len(self.jobs[name].ways) for name in progress)
        return ways * (1 + sum(map(sum, self.families.values())) / 64)

    def _shortest(self, progress: Mapping[str, Progress], running: Sequence[Start], now: float) -> list[Piece] | None:
        """The replicas to start so that all ends in the shortest time found, None if it isn't found."""
        worth = sum(self.prices[family] * sum(devices) for family, devices in self.families.items())
        until = max(self.until, now + sum(self._least(name, state, now) for name, state in progress.items()) / worth)
        found = self._fit(progress, running, now, until)
        for step in range(1, STRETCHES + 1):
            if found is not None:
                break
            until = now + (until - now) * (1 + STRETCH * step)
            found = self._fit(progress, running, now, until)
        else:
            return found
        for _ in range(SHRINKS if until == self.until else 0):
            shorter = now + (until - now) * SHRINK
            better = self._fit(progress, running, now, shorter)
            if better is None:
                break
            found, until = better, shorter
        self.until = until
        return found

    def _least(self, name: str, state: Progress, now: float) -> float:
        """What the rest of a job costs at least."""
        job = self._rest(name, state, state.left_at(now))
        loads = 0.0 if state.members else 1.0
        return min(self.prices[w.family] * width(w) * (loads * w.load + w.score) for w in job.ways)

    def _rest(self, name: str, state: Progress, left: float) -> Job:
        """A part of a job as a job, with the times that were measured."""
        ways = self.jobs[name].ways
        return Job(name, tuple(replace(w, load=w.load * state.slow, score=w.score * left / state.pace) for w in ways))

    def _fit(self, progress: Mapping[str, Progress], running: Sequence[Start], now: float, until: float) -> list[Piece] | None:
        """Replicas to start so that all ends by `until`, None where they don't fit."""
        ends, rest = {}, []
        for name, state in progress.items():
            ends[name] = max(now, min(until, state.end())) if state.members else now
            left = state.left_at(ends[name])
            if left > 1e-6:
                rest.append(self._rest(name, state, left))
        costs = {job.name: min(self.prices[w.family] * width(w) * (w.load + w.score) for w in job.ways) for job in rest}
        rest.sort(key=lambda job: (-costs[job.name], job.name))
        pieces, over = pack(rest, self.families, until, self.prices, self._free(running, ends, now))
        if over > 1e-9:
            return None
        planned = {(name, w.family, w.placement): w for name in ends for w in self.jobs[name].ways}
        return [Piece(p.start, p.job, planned[p.job, p.way.family, p.way.placement]) for p in pieces]

    def _free(self, running: Sequence[Start], ends: Mapping[str, float], now: float) -> dict[str, Array]:
        """When each lane gets free, with every replica where it would lie if they had come one after the other."""
        free = {f: np.full((len(devices), max(devices) * LANES), now) for f, devices in self.families.items()}
        machines = {family: Machines.of(devices) for family, devices in self.families.items()}
        for name, way in sorted(running, key=lambda start: -width(start[1])):
            if way.family not in machines or (place := machines[way.family].take(way)) is None:
                continue  # its machine has left, or it lies where another one would have to
            lanes = _lanes(way, machines[way.family], *place)
            for machine, first, last in lanes:
                free[way.family][machine, first:last] = ends.get(name, now)
        return free


def _lanes(way: Way, machines: Machines, nodes: Sequence[int], devices: Sequence[int]) -> list[tuple[int, int, int]]:
    """(machine, first lane, the one after the last) of a replica on each of its devices, just after it was put there."""
    count = round(way.placement.share * LANES)
    found = []
    for at, device in enumerate(devices):
        machine = nodes[at // way.placement.per_node]
        last = device * LANES + LANES - machines.free[machine][device]
        found.append((machine, last - count, last))
    return found
