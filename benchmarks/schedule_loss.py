"""The loss of sweeps relative to the bound, by cause: for the plan, for a disturbed run, and with known times.

    python benchmarks/schedule_loss.py [--cells mixed-64] [--json FILE]

Cases are those of `schedule_simulation.py` with 40 models. Values are device-seconds at the bound's prices, relative to the
fleet's capacity until the bound; the parts sum to makespan over bound. Means of ten seeds: `scored`, minimum cost of scoring;
`first_loads`, one load of each model at its cheapest place; `more_loads`, other loads; `dearer`, extra cost of scoring on more
expensive devices; `gaps`, idle devices before their last replica ends; `tail`, idle devices after it.
"""

import json
import statistics
from collections.abc import Mapping, Sequence

from output import benchmark_parser, write_record
from schedule_simulation import CASES, disturbed, fleet, make_jobs

from evaluator.sweep.planning.bound import prices
from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import Job, width
from evaluator.sweep.planning.schedule import schedule
from evaluator.sweep.planning.simulation import Slot, makespan, simulate

SEEDS = 10
CELLS = [f"{'mixed' if mixed else 'alike'}-{gpus}" for mixed, gpus, models, work, _ in CASES if (models, work) == (40, 1)]


def lost(
    slots: Sequence[Slot], true: Sequence[Job], families: Mapping[str, Sequence[int]], bound: float, costs: Mapping[str, float]
) -> dict[str, float]:
    """A sweep's device-seconds by cause, over what the fleet is worth until the bound. `true`: the times that really pass."""

    def rent(allocation: Allocation) -> float:
        return costs[allocation.family] * width(allocation)

    end, worth = makespan(slots), sum(costs[name] * sum(nodes) for name, nodes in families.items())
    times = {(job.name, allocation.family, allocation.placement): allocation for job in true for allocation in job.allocations}
    cheapest = [
        min(job.allocations, key=lambda allocation: rent(allocation) * (allocation.load + allocation.score)) for job in true
    ]
    scored = sum(min(rent(allocation) * allocation.score for allocation in job.allocations) for job in true)
    first = sum(rent(allocation) * allocation.load for allocation in cheapest)
    loads = scoring = 0.0
    last = {
        (name, machine, device): 0.0
        for name, nodes in families.items()
        for machine, n in enumerate(nodes)
        for device in range(n)
    }
    for slot in slots:
        allocation = times[slot.job, slot.allocation.family, slot.allocation.placement]
        loads += rent(allocation) * min(allocation.load, slot.end - slot.start)
        scoring += rent(allocation) * max(0.0, slot.end - slot.start - allocation.load)
        for at, device in enumerate(slot.devices):
            place = allocation.family, slot.nodes[at // allocation.placement.per_node], device
            last[place] = max(last[place], slot.end)
    tail = sum(costs[name] * (end - moment) for (name, _, _), moment in last.items())
    parts = {
        "scored": scored,
        "first_loads": first,
        "more_loads": loads - first,
        "dearer": scoring - scored,
        "gaps": end * worth - loads - scoring - tail,
        "tail": tail,
    }
    return {name: value / (bound * worth) for name, value in parts.items()}


def measure(mixed: bool, gpus: int) -> dict[str, dict[str, float]]:
    """The means of one cell: of the plan, the disturbed run and the plan in hindsight."""
    on = fleet(gpus, mixed)
    families = {name: [node.devices for node in nodes] for name, nodes in on.families().items()}
    found: dict[str, list[dict[str, float]]] = {"plan": [], "disturbed": [], "hindsight": []}
    for seed in range(SEEDS):
        jobs = make_jobs(40, on, 1, seed)
        plan, true = schedule(jobs, families), disturbed(jobs, seed)
        bound, costs = prices(true, families)
        found["plan"].append(lost(plan.slots, jobs, families, plan.bound, plan.prices))
        found["disturbed"].append(lost(simulate(jobs, families, plan.lines, true, plan.prices), true, families, bound, costs))
        found["hindsight"].append(lost(schedule(true, families).slots, true, families, bound, costs))
    return {
        name: {part: round(statistics.mean(row[part] for row in rows), 3) for part in rows[0]} for name, rows in found.items()
    }


def main() -> None:
    """Print the table and write the figures; of other cells than those that are asked for the file keeps what it has."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--cells", default=",".join(CELLS), help="some of them, as in mixed-256,alike-64")
    options = parser.parse_args()
    rows = {}
    if options.json.exists():
        rows = {f"{row['fleet']}-{row['gpus']}": row for row in json.loads(options.json.read_text())["rows"]}
    for cell in options.cells.split(","):
        kind, gpus = cell.split("-")
        rows[cell] = {"fleet": kind, "gpus": int(gpus), "seeds": SEEDS, **measure(kind == "mixed", int(gpus))}
        print(json.dumps(rows[cell]), flush=True)
        kept = [rows[name] for name in CELLS if name in rows]
        write_record(options.json, {"rows": kept})


if __name__ == "__main__":
    main()
