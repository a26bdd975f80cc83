"""`evaluator plan`: what a sweep will need, before anything is loaded."""

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from evaluator.cli.options import data_option, finite
from evaluator.cli.output import clock, tell
from evaluator.cli.sweep import data_of_sweep
from evaluator.sweep.hardware import GIB
from evaluator.sweep.plan import Plan

SHORT = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def show(plan: Plan, price: float | None) -> None:
    """Print the plan as tables that fit a terminal."""
    console = Console()
    hardware = plan.hardware
    title = f"{hardware.devices} × {hardware.name}, {hardware.memory / GIB:.1f} GiB free each"
    table = Table(title=title, title_justify="left")
    table.add_column("model", overflow="fold")
    table.add_column("engine", overflow="fold")
    for column in ("params", "GiB", "tp", "×", "passes", "tokens", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for need in plan.needs:
        replicas = plan.schedule.replicas.get(need.name, 0)
        table.add_row(
            need.name,
            f"{need.engine} {SHORT.get(need.dtype, need.dtype)}",
            f"{need.parameters / 1e6:.0f}M" if need.parameters < 1e9 else f"{need.parameters / 1e9:.1f}B",
            f"{need.memory / GIB:.1f}",
            str(need.devices),
            str(replicas),
            str(need.forwards),
            str(need.tokens),
            clock(need.load + need.score / max(1, replicas)) if need.forwards else "done",
        )
    console.print(table)
    order = Table(title="schedule", title_justify="left")
    for column in ("starts", "ends", "model", "devices"):
        order.add_column(column, overflow="fold")
    for slot in sorted(plan.schedule.slots, key=lambda s: (s.start, s.devices)):
        devices = ",".join(map(str, slot.devices))
        order.add_row(clock(slot.start), clock(slot.end), f"{slot.job} #{slot.replica}", devices)
    console.print(order)
    for need in plan.needs:
        if need.several:
            console.print(f"{need.name}: {len(need.several)} candidates of several tokens", highlight=False)
    console.print(
        f"estimated time {clock(plan.schedule.makespan)} (no schedule is shorter than {clock(plan.schedule.bound)})",
        highlight=False,
    )
    if price is not None:
        console.print(f"estimated cost {plan.cost(price):.2f} at {price:g} per device-hour", highlight=False)


@click.command(name="plan")
@click.argument("file", type=click.Path(path_type=Path), metavar="SWEEP.toml")
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder (default: what the file says).")
@data_option
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="CPU workers where there is no GPU.")
@click.option("--devices", type=click.IntRange(min=1), help="Plan for this many devices instead of this machine's.")
@click.option("--memory", type=click.FloatRange(min=0.1), callback=finite, help="GiB a device, with --devices.")
@click.option(
    "--throughput",
    type=click.FloatRange(min=0.001),
    callback=finite,
    help="Forward tokens/s of a 1B-parameter model on one device (measured).",
)
@click.option("--price", type=click.FloatRange(min=0), callback=finite, help="Price of a device-hour, for the cost.")
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    file: Path,
    out: Path | None,
    data: Path | None,
    workers: int,
    devices: int | None,
    memory: float | None,
    throughput: float | None,
    price: float | None,
    format_: str,
) -> None:
    """Say per model: parameters, memory, devices, replicas, forwards and tokens to score, time, and the schedule.

    \b
    Examples:
      evaluator plan SWEEP.toml
      evaluator plan SWEEP.toml --devices 8 --memory 80 --price 2.5
    """
    from evaluator.reports.notes import limit_notes
    from evaluator.run.driver import prepare
    from evaluator.sweep.config import read_sweep
    from evaluator.sweep.hardware import Hardware, local_hardware
    from evaluator.sweep.plan import make_plan
    from evaluator_serving.errors import InputError

    if (devices is None) != (memory is None):
        raise InputError("--devices and --memory go together: for example --devices 8 --memory 80")
    hardware = local_hardware(workers)
    if devices is not None and memory is not None:
        hardware = Hardware("cuda", devices, int(memory * GIB), min(8, devices), "given GPU")
    plan = make_plan(prepare(data_of_sweep(context, data, read_sweep(file, out=out))), hardware, throughput)
    sizes = {loaded.task.name: {"samples": loaded.samples.size} for loaded in plan.ready.tasks}
    notes = list(limit_notes({"tasks": sizes, "models": {model.name: model.entry for model in plan.ready.models}}))
    if format_ == "json":
        parts = {"hardware": asdict(plan.hardware), "schedule": asdict(plan.schedule)}
        record = {**parts, "needs": [asdict(need) for need in plan.needs], "notes": notes}
        click.echo(json.dumps(record | ({"cost": plan.cost(price)} if price is not None else {}), ensure_ascii=False))
    else:
        show(plan, price)
        for note in notes:
            click.echo(note)
    tell(plan.ready.errors)
    if plan.ready.errors:
        raise click.exceptions.Exit(1)
