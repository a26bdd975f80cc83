"""Lower limits for every scheduling policy that learns true times only by loading models.

    python benchmarks/schedule_blind.py [--json FILE]

`schedule_simulation.py` compares disturbed sweeps with a bound that knows all true times. This program counts in how many of 20
disturbances (load and score times differ by up to 30%) every policy must end later than 1.05, 1.10 or 1.15 times that bound.
Until the time t at which the first replica can have loaded, nothing is known, so all disturbances start equally. From t on the
policy knows everything and may end replicas for free; replicas and devices are divisible and machines have no borders. Such a
policy is at least as good as any real one, so the counts are lower limits; 0 does not show that a policy exists.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from output import benchmark_parser, write_record
from schedule_simulation import fleet, make_jobs
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from evaluator.sweep.planning.bound import lower_bound
from evaluator.sweep.planning.job import Job, width

DISTURBANCES, RATIOS = 20, (1.05, 1.10, 1.15)


def disturbances(jobs: Sequence[Job], count: int, seed: int) -> list[list[Job]]:
    """The same models with so many times other times that really pass."""
    dice, found = random.Random(seed), []
    for _ in range(count):
        factors = [(dice.uniform(0.7, 1.3), dice.uniform(0.7, 1.3)) for _ in jobs]
        found.append(
            [
                Job(job.name, tuple(replace(w, load=w.load * load, score=w.score * score) for w in job.allocations))
                for job, (load, score) in zip(jobs, factors, strict=True)
            ]
        )
    return found


class _Rows:
    """Rows of `A x <= b`, one coefficient after the other."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, float]] = []
        self.limits: list[float] = []

    def add(self, limit: float, coefficients: Sequence[tuple[int, float]]) -> None:
        self.entries += [(len(self.limits), column, value) for column, value in coefficients]
        self.limits.append(limit)


def exceeded(true: Sequence[Sequence[Job]], families: Mapping[str, Sequence[int]], ends: Sequence[float]) -> float:
    """A lower limit of how many of the disturbances `true` every policy ends later than at its `ends`.

    A linear program. For each way to run a model: replicas that were begun before anything was known, the same in all
    disturbances; for each disturbance how many of them go on, the part of the model that they do, and the part that replicas do
    which begin when all is known; and for each disturbance the part of it that is given up, the sum of which is least.
    """
    size = sum(len(job.allocations) for job in true[0])
    given_up = size * (1 + 3 * len(true))
    rows = _Rows()
    flat = [allocation for job in true[0] for allocation in job.allocations]
    for name, nodes in families.items():
        rows.add(sum(nodes), [(i, width(allocation)) for i, allocation in enumerate(flat) if allocation.family == name])
    for k, (jobs, end) in enumerate(zip(true, ends, strict=True)):
        known = min(allocation.load for job in jobs for allocation in job.allocations)
        kept = size * (1 + 3 * k)
        early, late = kept + size, kept + 2 * size
        used: dict[str, list[tuple[int, float]]] = {name: [] for name in families}
        number = 0
        for job in jobs:
            done: list[tuple[int, float]] = [(given_up + k, -1.0)]
            for allocation in job.allocations:
                room, seconds = end - known - allocation.load, max(allocation.score, 1e-9)
                rows.add(0.0, [(kept + number, 1.0), (number, -1.0)])
                rows.add(0.0, [(early + number, 1.0), (kept + number, -max(0.0, end - allocation.load) / seconds)])
                done.append((early + number, -1.0))
                used[allocation.family] += [
                    (kept + number, width(allocation) * (allocation.load - known)),
                    (early + number, width(allocation) * seconds),
                ]
                if room > 0:  # else a replica that begins when all is known has loaded too late
                    done.append((late + number, -1.0))
                    used[allocation.family].append((late + number, width(allocation) * seconds * (end - known) / room))
                number += 1
            rows.add(-1.0, done)
        for name, nodes in families.items():
            rows.add(sum(nodes) * (end - known), used[name])
    columns = given_up + len(true)
    row, column, value = zip(*rows.entries, strict=True)
    matrix = coo_matrix((value, (row, column)), shape=(len(rows.limits), columns)).tocsc()
    cost = np.zeros(columns)
    cost[given_up:] = 1
    return float(linprog(cost, A_ub=matrix, b_ub=rows.limits, method="highs").fun)


def main() -> None:
    """Print the table and write the figures."""
    parser = benchmark_parser(__doc__, __file__)
    options = parser.parse_args()
    rows = []
    for mixed in (False, True):
        for gpus in (32, 64, 128, 256):
            on = fleet(gpus, mixed)
            families = {name: [node.devices for node in nodes] for name, nodes in on.families().items()}
            true = disturbances(make_jobs(40, on, 1, 0), DISTURBANCES, 7)
            bounds = [lower_bound(jobs, families) for jobs in true]
            least = {str(r): math.ceil(exceeded(true, families, [r * b for b in bounds]) - 1e-6) for r in RATIOS}
            rows.append({"fleet": "mixed" if mixed else "alike", "gpus": gpus, "of": DISTURBANCES, "exceed_at_least": least})
            print(json.dumps(rows[-1]), flush=True)
    write_record(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
