"""Packing models onto a fleet: how many replicas each gets, on which machines, in which order. Pure arithmetic.

A model has one or more allocations (a placement on a family of equal machines, seconds to load, seconds to score all on one
replica). Its replicas take chunks from one queue, so they end together whenever each began. The plan packs all models
into the shortest time found (`packing`), gives each family the line of its replicas in the order of their starts, and says
what comes of it when the policy that also runs the real sweep (`policy`) follows these lines (`simulation`).
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaluator.sweep.planning.bound import prices
from evaluator.sweep.planning.job import Job, width
from evaluator.sweep.planning.packing import lines_of, pack
from evaluator.sweep.planning.policy import PlannedReplica
from evaluator.sweep.planning.simulation import Slot, makespan, simulate

GOOD_ENOUGH = 1.01
"""Times are estimates: a schedule this close to the bound isn't improved further."""
STRETCH = 1.0125
"""First step from a time that was too short to the next one; steps grow."""
SHRINK = 0.995
"""From a time that was enough to the next one that is tried."""
FAIR, CHAINS = 1.09, 4
"""A schedule further from the bound than FAIR is looked for again from the beginning with other dice, CHAINS times in all."""
TRIES, EFFORT = 300, 150_000
"""Packings that are tried at most: TRIES, fewer for large sweeps (EFFORT over allocations times devices)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Replicas to start per family in order, and what is expected of them.

    `bound`: no schedule ends before it, for which the families' device-seconds have these `prices`.
    """

    lines: Mapping[str, tuple[PlannedReplica, ...]]
    slots: tuple[Slot, ...]
    makespan: float
    bound: float
    prices: Mapping[str, float]

    def replicas(self, job: str) -> int:
        """Replicas that a job is expected to have over its life."""
        return sum(slot.job == job for slot in self.slots)


@dataclass(frozen=True, slots=True)
class _Taste:
    """What a packing depends on beside its time: who chooses first (the largest), and what devices cost."""

    urgency: Mapping[str, float]
    prices: Mapping[str, float]

    def varied(self, dice: random.Random) -> "_Taste":
        """A few jobs choose earlier or later, about half of the prices change a little."""
        urgency = {job: u * math.exp(dice.gauss(0, 0.3)) if dice.random() < 0.15 else u for job, u in self.urgency.items()}
        costs = {name: p * math.exp(dice.gauss(0, 0.1)) if dice.random() < 0.5 else p for name, p in self.prices.items()}
        return replace(self, urgency=urgency, prices=costs)


def schedule(jobs: Sequence[Job], families: Mapping[str, Sequence[int]], *, tries: int = TRIES) -> Schedule:
    """Choose replicas, machines and order so that the last replica ends early. `families`: name → devices of each machine.

    Begins at the bound and takes more time until everything fits, then takes a little less again and varies the order of the
    jobs and the prices of devices until everything fits again, and so on; all of that again with other dice where it comes
    to nothing good. The dice are always the same: so is the plan.
    """
    bound, costs = prices(jobs, families)
    least = {job.name: min(costs[w.family] * width(w) * (w.load + w.score) for w in job.allocations) for job in jobs}
    first = _Taste(least, costs)
    best, seconds, step = Schedule({}, (), math.inf, bound, costs), max(bound, 1e-6), 1

    def attempt(taste: _Taste, seconds: float) -> tuple[float, float]:
        """(what is left over, the schedule's makespan if nothing is); the schedule is kept if it is the best so far."""
        order = sorted(jobs, key=lambda job: (-taste.urgency[job.name], job.name))
        pieces, over = pack(order, families, seconds, taste.prices)
        return over, follow(lines_of(pieces, families)) if over == 0 else math.inf

    def follow(starts: Mapping[str, Sequence[PlannedReplica]]) -> float:
        """The makespan of a sweep with these lines; it is kept if it is the best so far."""
        nonlocal best
        lines = {family: tuple(line) for family, line in starts.items()}
        slots = simulate(jobs, families, lines)
        made = makespan(slots)
        if made < best.makespan:
            ordered = tuple(sorted(slots, key=lambda s: (s.start, s.job, s.replica)))
            best = Schedule(lines, ordered, made, bound, costs)
        return made

    def improve(dice: random.Random, tries: int) -> None:
        """So many packings, from the first one that fitted on."""
        taste, left, until, shortest = first, math.inf, seconds, span
        for _ in range(tries):
            if best.makespan <= bound * GOOD_ENOUGH:
                break
            if math.isinf(left):
                until = min(until, shortest) * SHRINK
            varied = taste.varied(dice)
            over, made = attempt(varied, until)
            shortest = min(shortest, made)
            if over <= left:
                taste, left = varied, over or math.inf

    while True:
        over, span = attempt(first, seconds)
        if over == 0:
            break
        seconds *= 1 + (STRETCH - 1) * step
        step += 1
    allocations, devices = sum(len(job.allocations) for job in jobs), sum(map(sum, families.values()))
    for chain in range(CHAINS):
        improve(random.Random(7 * chain), min(tries, round(EFFORT / (1 + allocations * (1 + devices / 64)))))
        if best.makespan <= bound * FAIR:
            break
    if best.makespan > bound * FAIR:
        follow(_fastest(jobs, families))
    return best


def _fastest(jobs: Sequence[Job], families: Mapping[str, Sequence[int]]) -> dict[str, list[PlannedReplica]]:
    """Every job once, on its fastest allocation, the longest first.

    Where some are very fast on very many devices, packings that put them where they are cheap can miss it.
    """
    lines: dict[str, list[PlannedReplica]] = {family: [] for family in families}
    chosen = [(min(job.allocations, key=lambda allocation: allocation.load + allocation.score), job) for job in jobs]
    for allocation, job in sorted(chosen, key=lambda one: (-one[0].load - one[0].score, one[1].name)):
        lines[allocation.family].append((job.name, allocation))
    return lines
