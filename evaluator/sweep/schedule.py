"""Packing models onto devices: how many replicas each gets and in which order they start. Pure arithmetic.

A model occupies `devices` devices per replica (its tensor-parallel group) for `load + score / replicas` seconds. More
replicas end sooner but load more often. The makespan's lower bound allows for exactly that.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

GOOD_ENOUGH = 1.03
"""Times are estimates: a schedule this close to the bound isn't improved further."""


@dataclass(frozen=True, slots=True)
class Job:
    """One model's work: devices a replica needs at once, seconds to load, seconds to score everything on one replica."""

    name: str
    devices: int
    load: float
    score: float


@dataclass(frozen=True, slots=True)
class Slot:
    """One replica's place in the schedule."""

    job: str
    replica: int
    devices: tuple[int, ...]
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """Replicas per job and where each runs; `bound` is a lower bound of any schedule's makespan."""

    replicas: dict[str, int]
    slots: tuple[Slot, ...]
    makespan: float
    bound: float


def replicas_within(job: Job, seconds: float, devices: int) -> int | None:
    """Fewest replicas with which a job takes at most `seconds`, None if no number on `devices` devices does."""
    if seconds <= job.load:
        return 1 if job.score == 0 and seconds == job.load else None
    needed = max(1, math.ceil(job.score / (seconds - job.load) - 1e-9))
    return needed if needed * job.devices <= devices else None


def lower_bound(jobs: Sequence[Job], devices: int) -> float:
    """No schedule ends before this.

    Within T seconds a job needs at least r(T) replicas and so occupies at least devices · (r(T) · load + score)
    device-seconds; the total can't exceed T times the number of devices. The smallest T that passes, by bisection.
    """

    def fits(seconds: float) -> bool:
        area = 0.0
        for job in jobs:
            count = replicas_within(job, seconds, devices)
            if count is None:
                return False
            area += job.devices * (count * job.load + job.score)
        return area <= seconds * devices * (1 + 1e-12)

    low, high = 0.0, sum(job.load + job.score for job in jobs) + 1e-9
    if not jobs:
        return 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def place(jobs: Sequence[Job], replicas: dict[str, int], devices: int, node: int) -> tuple[Slot, ...]:
    """List scheduling, the longest and widest replicas first, each group on the devices of one node where it fits there.

    `node` is the number of devices a node has; a group wider than a node takes whole nodes.
    """
    free = [0.0] * devices
    nodes = [range(begin, min(begin + node, devices)) for begin in range(0, devices, node)]
    pieces = [(job, i) for job in jobs for i in range(replicas[job.name])]
    pieces.sort(key=lambda p: (-p[0].devices, -(p[0].load + p[0].score / replicas[p[0].name]), p[0].name, p[1]))
    slots = []
    for job, index in pieces:
        if job.devices <= node:
            options = (heapq.nsmallest(job.devices, group, key=lambda d: free[d]) for group in nodes)
            chosen = min(
                (option for option in options if len(option) == job.devices), key=lambda option: max(free[d] for d in option)
            )
        else:
            chosen = heapq.nsmallest(job.devices, range(devices), key=lambda d: free[d])
        start = max(free[d] for d in chosen)
        end = start + job.load + job.score / replicas[job.name]
        for device in chosen:
            free[device] = end
        slots.append(Slot(job.name, index, tuple(sorted(chosen)), start, end))
    return tuple(slots)


def schedule(jobs: Sequence[Job], devices: int, node: int = 8) -> Schedule:
    """Choose replicas and places so that the last replica ends early.

    Tries replica counts for several target times between the bound and twice the bound and keeps the best placement.
    Raises ValueError for a job wider than the devices.
    """
    for job in jobs:
        if job.devices > devices:
            raise ValueError(f"{job.name} needs {job.devices} devices, there are {devices}")
    bound = lower_bound(jobs, devices)
    best: Schedule | None = None
    for step in range(41):
        if best is not None and best.makespan <= bound * GOOD_ENOUGH:
            break
        target = bound * (1 + step / 40)
        counts = {job.name: replicas_within(job, target, devices) or 1 for job in jobs}
        slots = place(jobs, counts, devices, min(node, devices))
        makespan = max((slot.end for slot in slots), default=0.0)
        if best is None or makespan < best.makespan - 1e-9:
            best = Schedule(counts, slots, makespan, bound)
    assert best is not None
    return best
