"""Schedules against a lower bound, by simulation: models of 70 M to 70 B parameters on 8 to 1,000 GPUs, equal and mixed.

    python benchmarks/schedule_simulation.py [--json FILE]

Sizes and times come from `evaluator.sweep.planning.fit`; the work of models varies by up to 30% (seeded). A mixed fleet is half
H100-80 in machines of eight, three eighths A100-40 in fours and pairs, and the rest single L4. Reported, relative to the bound
for the actual times, are

- the plan's makespan;
- that of a run in which load and score times differ from the estimates by up to 30%: times become known when a replica has
  loaded, the sweep is then replanned, and running replicas continue;
- `hindsight`: the plan made with the actual times;
- `loads`: the bound in units of a replica's mean load time.

docs/performance.md has the variants of the planner that were tried.
"""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from output import benchmark_parser, write_record

from evaluator.sweep.hardware import GIB, Fleet, Node
from evaluator.sweep.planning.fit import Demand, allocations
from evaluator.sweep.planning.job import Job
from evaluator.sweep.planning.schedule import schedule
from evaluator.sweep.planning.simulation import makespan, simulate
from evaluator_serving.engine import EngineOptions

TOKENS = 4 * 3565 * 22 + 6 * 2100 * 30
"""Forward tokens a model for GEST's four templates and StereoSet."""
CASES = [
    *((mixed, gpus, 40, 1, 10) for mixed in (False, True) for gpus in (8, 16, 32, 64, 128, 256)),
    *((True, gpus, 40, 16, 3) for gpus in (16, 64, 256)),
    *((mixed, 1024, 400, 1, 3) for mixed in (False, True)),
]
"""(mixed, GPUs, models, times the usual work, seeds)."""
AIM, AIMED = 1.1, ("ratio_median", "ratio_worst", "disturbed_ratio_median", "disturbed_ratio_worst")
"""Makespans are wanted to be at most so many times the bound; a row names those that aren't."""


def fleet(gpus: int, mixed: bool) -> Fleet:
    """The machines of a fleet."""

    def machines(card: str, gib: int, devices: int, count: int) -> list[Node]:
        return [Node("cuda", card, devices, gib * GIB, f"{card}-{devices}-{i}") for i in range(count)]

    h100, a100, l4 = ("NVIDIA H100 80GB HBM3", 79), ("NVIDIA A100-PCIE-40GB", 39), ("NVIDIA L4", 22)
    if not mixed:
        return Fleet(tuple(machines(*h100, 8, gpus // 8)))
    if gpus == 8:
        return Fleet((*machines(*h100, 4, 1), *machines(*a100, 2, 1), *machines(*l4, 1, 2)))
    parts = gpus // 16
    return Fleet(
        (
            *machines(*h100, 8, parts),
            *machines(*a100, 4, parts),
            *machines(*a100, 2, parts),
            *machines(*l4, 1, 2 * parts),
        )
    )


def make_jobs(count: int, on: Fleet, work: int, seed: int) -> list[Job]:
    """Models in bf16, evenly spread over the logarithm of their parameters."""
    dice = random.Random(seed)
    jobs = []
    for i in range(count):
        parameters = int(70e6 * 1000 ** (i / (count - 1)))
        tokens = int(work * TOKENS * dice.uniform(0.7, 1.3))
        options = EngineOptions()
        demand = Demand(f"m{i:03}", "vllm", "bfloat16", parameters, 2 * parameters, GIB // 4, 64, tokens, options)
        jobs.append(Job(demand.name, allocations(demand, on)))
    return jobs


def disturbed(jobs: Sequence[Job], seed: int) -> list[Job]:
    """The same models with the times that really pass."""
    dice = random.Random(1000 + seed)
    found = []
    for job in jobs:
        load, score = dice.uniform(0.7, 1.3), dice.uniform(0.7, 1.3)
        found.append(
            Job(
                job.name,
                tuple(
                    replace(allocation, load=allocation.load * load, score=allocation.score * score)
                    for allocation in job.allocations
                ),
            )
        )
    return found


def measure(mixed: bool, gpus: int, count: int, work: int, seeds: int) -> dict[str, Any]:
    """One row of the table."""
    on = fleet(gpus, mixed)
    families = {name: [node.devices for node in nodes] for name, nodes in on.families().items()}
    bounds, spans, ratios, shaken, known, took, loads = [], [], [], [], [], [], []
    for seed in range(seeds):
        jobs = make_jobs(count, on, work, seed)
        begun = time.process_time()
        made = schedule(jobs, families)
        took.append(time.process_time() - begun)
        bounds.append(made.bound)
        spans.append(made.makespan)
        ratios.append(made.makespan / made.bound)
        loads.append(made.bound / statistics.mean(slot.allocation.load for slot in made.slots))
        true = disturbed(jobs, seed)
        hindsight = schedule(true, families)
        known.append(hindsight.makespan / hindsight.bound)
        shaken.append(makespan(simulate(jobs, families, made.lines, true, made.prices)) / hindsight.bound)
    row: dict[str, Any] = {
        "fleet": "mixed" if mixed else "alike",
        "gpus": gpus,
        "models": count,
        "work": work,
        "seeds": seeds,
        "bound_s": round(statistics.median(bounds), 1),
        "makespan_s": round(statistics.median(spans), 1),
        "loads": round(statistics.median(loads), 1),
        "ratio_median": round(statistics.median(ratios), 4),
        "ratio_worst": round(max(ratios), 4),
        "disturbed_ratio_median": round(statistics.median(shaken), 4),
        "disturbed_ratio_worst": round(max(shaken), 4),
        "hindsight_ratio_median": round(statistics.median(known), 4),
        "hindsight_ratio_worst": round(max(known), 4),
        "planning_cpu_s": round(statistics.median(took), 2),
    }
    return row | {"above_aim": [name for name in AIMED if row[name] > AIM]}


def main() -> None:
    """Print the table and write the figures."""
    parser = benchmark_parser(__doc__, __file__)
    options = parser.parse_args()
    print(
        f"{'fleet':6} {'GPUs':>4} {'models':>6} {'work':>4} {'bound s':>8} {'plan s':>7} {'loads':>5} "
        f"{'plan/bound':>10} {'worst':>6} {'disturbed':>9} {'worst':>6} {'hindsight':>9} {'worst':>6} {'CPU s':>6}"
    )
    rows = []
    for case in CASES:
        row = measure(*case)
        rows.append(row)
        print(
            f"{row['fleet']:6} {row['gpus']:4} {row['models']:6} {row['work']:4} {row['bound_s']:8.0f} "
            f"{row['makespan_s']:7.0f} {row['loads']:5.1f} {row['ratio_median']:10.3f} {row['ratio_worst']:6.3f} "
            f"{row['disturbed_ratio_median']:9.3f} {row['disturbed_ratio_worst']:6.3f} "
            f"{row['hindsight_ratio_median']:9.3f} {row['hindsight_ratio_worst']:6.3f} {row['planning_cpu_s']:6.2f}",
            flush=True,
        )
        write_record(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
