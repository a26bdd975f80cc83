"""What no schedule of a sweep can beat: a bound by area at the best prices for the families' devices. Pure arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluator.sweep.planning.job import Job, merged, width

Array = np.ndarray[Any, np.dtype[Any]]
ROUNDS = 150
"""Steps towards the best prices; whatever the prices are, they give a valid bound."""
STEP = 0.3
SLOWER = 15
"""How fast prices follow demand at first, and steps after which they do so half as fast."""


def lower_bound(jobs: Sequence[Job], families: Mapping[str, Sequence[int]]) -> float:
    """No schedule of `jobs` on `families` (name → devices of each machine) ends before this, whatever it does; in seconds.

    Within T seconds a replica that loads for l of them does at most the part (T - l)/s of a job. So whatever mixture of
    replicas does a job, at prices p for the families' device-seconds it costs at least what `_Table.costs` says. If at any
    prices the jobs' least costs sum to more than the fleet's T seconds are worth, T is too short. The bound is the smallest T
    that isn't found to be too short, by bisection.
    """
    return prices(jobs, families)[0]


def prices(jobs: Sequence[Job], families: Mapping[str, Sequence[int]]) -> tuple[float, dict[str, float]]:
    """The bound, and the prices of a device-second of each family at which it holds: what is scarce is dear."""
    if not jobs:
        return 0.0, dict.fromkeys(families, 1.0)
    table = _Table.of(merged(jobs), families)
    low = table.longest_load()
    high = table.one_after_the_other()
    found = np.ones(len(families))
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        short, found = table.too_short(middle, found)
        low, high = (middle, high) if short else (low, middle)
    return low, dict(zip(families, found.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Table:
    """All allocations of all jobs, job after job: `first[j]` is the row of job j's first one."""

    first: Array
    job: Array
    family: Array
    width: Array
    load: Array
    score: Array
    sizes: Array
    """Devices of each family."""

    @classmethod
    def of(cls, jobs: Sequence[Job], families: Mapping[str, Sequence[int]]) -> "_Table":
        numbers = {name: i for i, name in enumerate(families)}
        rows = [allocation for job in jobs for allocation in job.allocations]
        return cls(
            first=np.cumsum([0, *(len(job.allocations) for job in jobs[:-1])]),
            job=np.repeat(np.arange(len(jobs)), [len(job.allocations) for job in jobs]),
            family=np.array([numbers[allocation.family] for allocation in rows]),
            width=np.array([width(allocation) for allocation in rows]),
            load=np.array([allocation.load for allocation in rows]),
            score=np.array([max(allocation.score, 1e-9) for allocation in rows]),
            sizes=np.array([float(sum(nodes)) for nodes in families.values()]),
        )

    def longest_load(self) -> float:
        """Every job loads."""
        return float(np.minimum.reduceat(self.load, self.first).max())

    def one_after_the_other(self) -> float:
        """Each job on one replica, alone on the fleet: a schedule."""
        return float(np.minimum.reduceat(self.load + self.score, self.first).sum()) + 1e-9

    def too_short(self, seconds: float, start: Array) -> tuple[bool, Array]:
        """Whether `seconds` are shown to be too short, beginning with the prices `start`; and the last prices tried."""
        part = np.maximum(0.0, seconds - self.load) / self.score  # of the job that one replica can do
        able = np.zeros((len(self.first), len(self.sizes)))
        np.maximum.at(able, (self.job, self.family), part / self.width)
        able *= self.sizes  # families filled with the allocation that does most in a device
        if (able.sum(1) < 1 - 1e-9).any():
            return True, start
        price = start
        for step in range(ROUNDS if len(self.sizes) > 1 else 1):
            cost, areas = self.costs(seconds, part, price)
            worth = float(price @ self.sizes) * seconds
            if cost > worth * (1 + 1e-9):
                return True, price
            price = price * np.exp(STEP / (1 + step / SLOWER) * np.clip(areas / (seconds * self.sizes) - 1, -1, 1))
            price = price / price.max()
        return False, price

    def costs(self, seconds: float, part: Array, price: Array) -> tuple[float, Array]:
        """(the least that all jobs cost within `seconds`, device-seconds that they take of each family then).

        A job on one replica costs that replica. On at least k replicas: of the shares x of its allocations (summing to 1)
        and their replicas n >= x / part (summing to at least k), the cheapest, relaxed to what the multiplier m of the last
        condition gives: k m + the least of (score + (load - m) / part). Replicas are whole: k is at least 1 / the largest part.
        """
        rent = price[self.family] * self.width
        load, score = rent * self.load, rent * self.score
        possible = part > 0
        inverse = 1 / np.where(possible, part, 1.0)
        alone = np.where(part >= 1, load + score, np.inf)
        number = np.maximum(2.0, np.ceil(1 / np.maximum.reduceat(part, self.first) - 1e-9))
        least = np.minimum.reduceat(load, self.first)
        several, each = np.full(len(self.first), -np.inf), score
        for fraction in (0.0, 0.5, 1.0):
            multiplier = fraction * least
            cost = np.where(possible, score + (load - multiplier[self.job]) * inverse, np.inf)
            value = number * multiplier + np.minimum.reduceat(cost, self.first)
            each = np.where((value > several)[self.job], cost, each)
            several = np.maximum(several, value)
        single = np.minimum.reduceat(alone, self.first)
        best = np.where((single <= several)[self.job], alone, each)
        cheapest = best <= np.minimum.reduceat(best, self.first)[self.job]
        device_seconds = np.where(cheapest, best / rent, 0.0) / np.add.reduceat(cheapest, self.first)[self.job] * self.width
        areas = np.bincount(self.family, device_seconds, len(self.sizes))
        return float(np.minimum(single, several).sum()), areas
