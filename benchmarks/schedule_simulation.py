"""The planner's schedules against the lower bound: models of 70 M to 70 B parameters on 8 to 1,000 GPUs, alike and mixed.

Sizes and times are the program's own (`evaluator.sweep.planning.fit`); the work of each model varies by up to 30% (seeded).
A mixed fleet is half H100-80 in machines of eight, three eighths A100-40 in fours and pairs, the rest single L4. Shown are the
plan's own makespan and that of a run that follows the plan's lines and the policy while every model's true load and score times
differ from the estimates by up to 30%, each over the bound for the times that really pass. That bound knows them beforehand;
the run learns them when a replica has loaded, plans again then, keeps what it has begun, and can mend its plan only by loading
another replica. What is lost by that depends on how many loads the whole sweep is long (`loads`: the bound over the replicas'
mean load), which the rows with more work for each model show: over two to five loads a first guess can hardly be mended. A run
that is told all true times one second after the start, with what it began at the start kept, ends no earlier there (median of
six runs on 32 GPUs: 1.17 alike, 1.22 mixed; on 8 and 16 GPUs 1.05 to 1.10). Nor is it the bound that is loose: packing whole
pieces into each lane, fractions of patterns allowed (a knapsack for each lane), raised it by at most 0.5%. `hindsight` is
the plan that the same planner makes when it is told the true times beforehand: what a run ends later than that is the price of
not knowing them. `schedule_blind.py` computes how much of it no policy can save.

Replicas of models that turn out fast are ended where the plan made again ends sooner by that. In 30 runs each that nothing
was chosen by (seeds 30 to 59; means before and after): alike on 32 GPUs 1.179 and 1.156, on 64 1.151 and 1.149, on 128 1.120
and 1.116; mixed on 16 1.124 and 1.121, on 32 1.199 and 1.196, on 64 1.231 and 1.189, on 128 1.181 and 1.173; on 8 and 256,
and on 16 alike ones, within 0.001. These and the searches below ran in a compiled copy of planner and simulation. Before
replicas were ended early four runs were compared, equal to all digits; since then, of six, four are equal, two 0.5% shorter
and 3.5% longer in the copy, which ends replicas in a slightly other order. This program itself gave 1.180 and 1.154 in the 30
on 32 alike ones; on 64 mixed ones its median of seeds 0 to 9 fell from 1.192 to 1.182 only.

That 1.10 can't be reached is not proven. What was looked for and not found:

- Better plans for the start, planning during the run as it is: from the best plan before, 700 others packed with other
  orders, prices, times and cautious estimates, judged by 48 disturbed runs. One sweep each (seed 0), means in 200 other
  disturbances: 64 mixed GPUs 1.171 and 1.156, 32 1.255 and 1.145; in the 48 themselves 1.150 and 1.148. A local search:
  others may find more.
- The best to begin at the start if nothing begun later helps, with replicas and devices divisible at will and no borders of
  machines: gradient descent on the mean over 64 to 96 disturbances, which needn't find the best. Means in 128 to 192 others,
  one to three sweeps each: alike on 32 GPUs 1.11 to 1.12, on 64 1.14, on 128 1.11, on 256 1.07; mixed on 64 1.17, on 128
  1.17, on 256 1.16. Runs can be better than that where they mend something, worse where whole replicas don't fit.

Tried besides on 16 to 256 GPUs (six runs each, means over the bound before and after), and not done: planning again with 25
more packings each time (1.166, 1.161); starting helpers whatever they pay (no change); plans for loads 15 or 30% longer than
estimated (1.164, 1.173 and 1.163); no model on one replica that takes more than 0.7 of the time (1.181, 1.175); altering
plans until they do better in eight random disturbances (by 1% in these, but in another one 1.140 became 1.153). With replicas
ended early, on 32 and 64 GPUs (90 runs each): up to 20 more packings and a finer search for the time, other limits for
helpers, times 10% longer for models not yet measured, and counting a model as slow that hasn't loaded in its time: each
within 0.005.

Altering plans until they do better in 16 disturbances that are spread evenly (each factor takes 16 values in an order of its
own), judged without planning during the run and with the undisturbed one counting half, is worth more work: alike on 32 GPUs
1.156 and 1.147, mixed on 8 1.097 and 1.084, on 32 1.180 and 1.158, on 64 1.185 and 1.179; alike on 8 1.087 and 1.081, on 16
and 64, and mixed on 16, within 0.002 (ten sweeps, eight on 64 alike GPUs, of 4 to 6 runs each). But this is one of about a
dozen variants, chosen by the runs on 32 and 64 GPUs themselves, it wasn't tried so on 128 and 256, and in the planner it took
6 to 12 seconds for 2 to 3.

In 30 runs each on 64 GPUs small models begun later and, at the start, more replicas of those large ones that are likeliest to
be late (1.121 to 1.164; 1.192 to 1.196, by which models are small). Wider tensor parallelism than memory needs, if each
doubling kept 90% of a device's speed, would shorten plans for 256 GPUs by 29% (alike) and 15% (mixed) and lengthen those for
32 and 64 by 4 to 7%; over their own bounds they are at 1.03 to 1.15, disturbed 1.15 to 1.27. What a doubling keeps nobody has
measured here: it is not planned. Where the time goes is in `schedule_loss.py`.

    python benchmarks/schedule_simulation.py [--json FILE]
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "schedule_simulation.json")
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
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
