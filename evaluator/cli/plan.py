"""`evaluator plan`: what a sweep will need, before anything is loaded."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluator.cli.options import RUN, LocalPath, calls, finite, sweep_data_option
from evaluator.cli.output import clock, tell
from evaluator.reports.short_names import legend, shortened
from evaluator.sweep.hardware import GIB
from evaluator.sweep.planning.plan import Plan

STYLE: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
OTHERS, NARROWEST = 64, 16
"""Columns that a line needs besides the model's name, and the fewest for that."""
SHORT = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def show(plan: Plan) -> None:
    """Print the plan as tables that fit a terminal of 80 columns."""
    console = Console()
    machines = Table(title="machines", **STYLE)
    for column in ("", "machines", "GiB free each", "tokens/s of a 1B model"):
        machines.add_column(column, justify="left" if not column else "right")
    for family, nodes in plan.fleet.families().items():
        free = min(node.memory for node in nodes) / GIB
        machines.add_row(family, str(len(nodes)), f"{free:.1f}", f"{nodes[0].throughput:,.0f}")
    console.print(machines)
    letters = {family: letter(at) for at, family in enumerate(plan.fleet.families())}
    table = Table(title="models", **STYLE)
    names = shortened([need.name for need in plan.needs], max(NARROWEST, console.width - OTHERS))
    table.add_column("model", no_wrap=True)
    table.add_column("engine", overflow="fold")
    for column in ("params", "GiB", "on", "×", "asked", "tokens", "time"):
        table.add_column(column, justify="right", no_wrap=column != "on")
    for need in plan.needs:
        demand = need.demand
        slots = [slot for slot in plan.schedule.slots if slot.job == need.name]
        allocation = slots[0].allocation if slots else need.allocations[0]
        memory = demand.memory(plan.fleet.kind, allocation.placement.devices) * allocation.placement.devices
        seconds = max((s.end for s in slots), default=0.0) - min((s.start for s in slots), default=0.0)
        table.add_row(
            escape(names[need.name]),
            f"{demand.engine} {SHORT.get(demand.dtype, demand.dtype)}",
            short(demand.parameters),
            f"{memory / GIB:.1f}",
            f"{letters[allocation.family]}: {allocation.placement}",
            str(len(slots)),
            short(need.requests),
            short(demand.tokens),
            clock(seconds) if need.forwards else "done",
        )
    console.print(table)
    order = Table(title="schedule", **STYLE)
    for column in ("starts", "ends", "model", "machine: devices"):
        order.add_column(column, overflow="fold")
    for slot in plan.schedule.slots:
        family = letters[slot.allocation.family]
        where = ",".join(f"{family}{node + 1}" for node in slot.nodes)
        model = escape(f"{names[slot.job]} #{slot.replica}")
        order.add_row(clock(slot.start), clock(slot.end), model, f"{where}: {ranges(slot.devices)}")
    console.print(order)
    for line in legend(names):
        console.print(line, markup=False, highlight=False)
    for family, mark in letters.items():
        console.print(f"{mark}: {family}", highlight=False)
    for need in plan.needs:
        if need.several:
            console.print(f"{need.name}: {len(need.several)} candidates of several tokens", highlight=False)
    least = plan.schedule.bound + plan.startup
    console.print(f"estimated time {clock(plan.seconds)} (no schedule is shorter than {clock(least)})", highlight=False)
    if plan.driver_bound:
        what = f"{clock(plan.driver_seconds)} of one core, the devices {clock(plan.startup + plan.schedule.makespan)}"
        console.print(f"the driver is the limit: it takes {what}; fewer devices take as long", highlight=False)
    if measured := plan.measured:
        part = "" if len(measured) == len(plan.needs) else f" of {len(measured)} of {len(plan.needs)} models"
        console.print(f"speeds{part} as measured on this hardware ({plan.speeds.newest[:10]})", highlight=False)
    elif plan.speeds.throughput is None:
        console.print("speeds from data sheets: evaluator bench MODEL measures those of this hardware", highlight=False)
    if plan.cost is not None:
        console.print(f"estimated cost {plan.cost:.2f} at {plan.price:g} per device-hour", highlight=False)


def letter(number: int) -> str:
    """A, B, … Z, A2, B2, …: short names of kinds of machines."""
    again = number // 26
    return chr(ord("A") + number % 26) + (str(again + 1) if again else "")


def short(number: float) -> str:
    """A count in at most five characters: 512, 13.9k, 70M, 405B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 100 and unit != "M" else f"{value:.0f}{unit}"
    return f"{number:.0f}"


def ranges(numbers: Sequence[int]) -> str:
    """Numbers with runs joined: 0-3,6."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


@calls("evaluator.sweep.function:plan_file")
@click.command(name="plan")
@click.argument("file", type=LocalPath(path_type=Path), metavar="SWEEP.toml")
@click.option("--out", type=RUN, help="The run's folder or URL (default: as in the file).")
@sweep_data_option
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of CPU workers if there is no GPU."
)
@click.option(
    "--ray",
    type=click.Choice(["auto", "none", "local"]),
    default="auto",
    show_default=True,
    help="As for the sweep: a CPU worker on Ray has one core, this process has all.",
)
@click.option("--fleet", metavar="FLEET", help="Plan for these machines (machines x GPUs x card-GiB) instead of this one.")
@click.option(
    "--configurations",
    type=LocalPath(path_type=Path),
    help="JSON file of hub ids and configurations: plan with these, without the Hub; token counts are estimated.",
)
@click.option(
    "--throughput",
    type=click.FloatRange(min=0.001),
    callback=finite,
    help="Forward tokens/s of a 1B-parameter model on one device (measured).",
)
@click.option(
    "--price-per-gpu-hour",
    "--price",
    "price",
    type=click.FloatRange(min=0),
    callback=finite,
    help="Price of a device-hour, to estimate the cost.",
)
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(format_: str, **arguments: Any) -> None:
    """Show each model's parameters, memory, devices, replicas, forward passes, tokens and time, and the schedule.

    \b
    Examples:
      evaluator plan SWEEP.toml
      evaluator plan SWEEP.toml --fleet 1x8xH100-80,2x4xA100-40 --price 2.5
      evaluator plan examples/eurogest.toml --fleet 1x8xH100-80 --configurations examples/eurogest_models.json
    """
    from evaluator.sweep.function import plan_file

    plan, notes = plan_file(**arguments)
    if format_ == "json":
        schedule = {key: asdict(plan.schedule)[key] for key in ("slots", "makespan", "bound")}
        parts = {"fleet": asdict(plan.fleet), "schedule": schedule}
        times = {"seconds": plan.seconds, "startup": plan.startup, "measured": plan.measured}
        record = {**parts, **times, "needs": [asdict(need) for need in plan.needs], "notes": notes}
        click.echo(json.dumps(record | ({"cost": plan.cost} if plan.cost is not None else {}), ensure_ascii=False))
    else:
        show(plan)
        for note in notes:
            Console().print(note, markup=False, highlight=False)
    tell(plan.ready.errors)
    if plan.ready.errors:
        raise click.exceptions.Exit(1)
