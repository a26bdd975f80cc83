"""The planner's schedule against the lower bound, for 40 models of 70 M to 70 B parameters on 8 to 1,000 GPUs.

Load and score times have the shape that was measured for the engines (a start-up constant, weights over a read rate, tokens
over a throughput that falls with the parameters), each jittered by up to 30% (seeded). Two makespans are shown: of the plan
itself, and of a run that follows the plan's order and replica counts while the true times differ from the estimates by up
to 30%, with chunks going to whichever replica is free.

    python benchmarks/schedule_simulation.py [--json FILE]
"""

import argparse
import json
import math
import random
import statistics
import time
from pathlib import Path

from evaluator.sweep.schedule import Job, lower_bound, place, schedule

GIB = 1 << 30
TOKENS = 4 * 3565 * 22 + 6 * 2100 * 30
"""Forward tokens a model for GEST's four templates and StereoSet."""


def make_jobs(count: int, seed: int) -> list[Job]:
    """Models of 70 M to 70 B parameters, evenly spread over the logarithm, in bf16 on 80 GiB GPUs."""
    dice = random.Random(seed)
    jobs = []
    for i in range(count):
        parameters = 70e6 * 1000 ** (i / (count - 1))
        weights = 2 * parameters
        devices = 1
        while weights * 1.05 / devices + 3 * GIB > 0.92 * 80 * GIB:
            devices *= 2
        load = (40 + weights / devices / 1.5e9) * dice.uniform(0.7, 1.3)
        # Small models are bound by the host: at most 60,000 tokens a second.
        rate = min(60_000.0, 100_000.0 * devices / (parameters / 1e9))
        jobs.append(Job(f"m{i:02}", devices, load, TOKENS / rate * dice.uniform(0.7, 1.3)))
    return jobs


def disturbed(jobs: list[Job], devices: int, seed: int) -> float:
    """Makespan over the bound when true times differ from the planned ones and the plan's order is kept."""
    dice = random.Random(seed)
    plan = schedule(jobs, devices)
    true = [Job(j.name, j.devices, j.load * dice.uniform(0.7, 1.3), j.score * dice.uniform(0.7, 1.3)) for j in jobs]
    slots = place(true, plan.replicas, devices, min(8, devices))
    return max(s.end for s in slots) / lower_bound(true, devices)


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "schedule_simulation.json")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    rows = []
    print(
        f"{'GPUs':>5} {'models':>6} {'bound s':>9} {'plan s':>9} {'plan/bound':>10} {'worst':>6} {'disturbed':>9} "
        f"{'planned in s':>12}"
    )
    for devices, count in [(8, 40), (16, 40), (64, 40), (256, 40), (1000, 40), (1000, 400)]:
        ratios, bounds, spans, took, shaken = [], [], [], [], []
        for seed in range(options.seeds):
            jobs = make_jobs(count, seed)
            begun = time.perf_counter()
            made = schedule(jobs, devices)
            took.append(time.perf_counter() - begun)
            ratios.append(made.makespan / made.bound)
            bounds.append(made.bound)
            spans.append(made.makespan)
            shaken.append(disturbed(jobs, devices, seed))
        row = {
            "gpus": devices,
            "models": count,
            "bound_s": statistics.median(bounds),
            "makespan_s": statistics.median(spans),
            "ratio_median": statistics.median(ratios),
            "ratio_worst": max(ratios),
            "disturbed_ratio_median": statistics.median(shaken),
            "planning_s": statistics.median(took),
        }
        rows.append(row)
        assert all(math.isfinite(v) for v in row.values())
        print(
            f"{devices:5} {count:6} {row['bound_s']:9.0f} {row['makespan_s']:9.0f} {row['ratio_median']:10.3f} "
            f"{row['ratio_worst']:6.3f} {row['disturbed_ratio_median']:9.3f} {row['planning_s']:12.2f}"
        )
    options.json.write_text(json.dumps({"seeds": options.seeds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
