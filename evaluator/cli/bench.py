"""`evaluator bench`: throughput on this hardware, and what became of it since."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from evaluator.cli.options import data_option
from evaluator_serving.engine import BYTES
from evaluator_serving.errors import InputError
from evaluator_serving.memory import usable_cores

WIDTH = 136
"""Columns of the table."""
BASELINES = ("transformers-loop", "lm-eval", "lm-eval-vllm")


class Measuring(click.Group):
    """`evaluator bench MODEL …` measures, `evaluator bench compare A B` compares: what isn't a command is a model."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `measure` in front where no command is named."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["measure", *args]
        return super().parse_args(ctx, args)


@click.group(name="bench", cls=Measuring)
def command() -> None:
    """Measure engines on this hardware: `evaluator bench MODEL`; then `evaluator bench compare A.json B.json`.

    Plans and sweeps on the same hardware use the newest measurement for their times.

    \b
    Examples:
      evaluator bench HuggingFaceTB/SmolLM2-135M-Instruct
      evaluator bench gpt2 --engine onnx --engine vllm --against transformers-loop,lm-eval --json now.json
      evaluator bench measure --help
      evaluator bench compare before.json now.json
    """


def words(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of an option that may be repeated or hold several words with commas."""
    return tuple(word.strip() for part in value for word in part.split(",") if word.strip())


@command.command(name="measure")
@click.argument("model")
@click.option("--engine", "engines", multiple=True, callback=words, help="Engines (repeat, or commas); default: all that can.")
@click.option("--against", multiple=True, callback=words, help=f"Baselines: {', '.join(BASELINES)}.")
@click.option("--task", help="Whose sentences (default: gest where its data are here, else gest-demo).")
@click.option("--samples", "limit", type=click.IntRange(min=8), default=240, show_default=True, help="How many of them.")
@click.option("--slices", type=click.IntRange(min=2), default=4, show_default=True, help="Parts between which the ways change.")
@click.option("--dtype", type=click.Choice(list(BYTES)), default="float32", show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="Of each way on a CPU (default: all cores; a Ray worker has one).")
@click.option("--json", "out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the record there.")
@data_option
def measure(
    model: str,
    engines: tuple[str, ...],
    against: tuple[str, ...],
    task: str | None,
    limit: int,
    slices: int,
    dtype: str,
    device: str,
    threads: int | None,
    out: Path | None,
    data: Path | None,
) -> None:
    """Sentences and tokens a second of engines with MODEL, side by side, each in a process of its own.

    \b
    Example:
      evaluator bench gpt2 --engine onnx --against transformers-loop --json gpt2.json
    """
    from evaluator.bench.asked import Asked
    from evaluator.bench.measure import bench
    from evaluator.sweep.benches import Hardware, keep
    from evaluator.tasks import usual_task
    from evaluator.vocabulary import DataSource

    unknown = [name for name in against if name not in BASELINES]
    if unknown:
        raise InputError(f"--against {unknown[0]!r} is no baseline: choose from {', '.join(BASELINES)}")
    hardware = Hardware.here() if device == "auto" or device.startswith("cuda") else Hardware.processor()
    chosen = task or usual_task(DataSource(data))
    count = threads or (usable_cores() if hardware.kind == "cpu" else 0)
    folder = str(data) if data else ""
    known = {"model": model, "task": chosen, "limit": limit, "data": folder, "dtype": dtype, "device": device}
    asked = [Asked(way=name, engine="", threads=count, slices=slices, **known) for name in against]  # type: ignore[arg-type]
    for name in engines or usable_engines():
        asked.append(Asked(way="engine", engine=name, threads=count, slices=slices, **known))  # type: ignore[arg-type]
    record = bench(asked, hardware, lambda line: click.echo(line, err=True))
    kept = keep(record)
    show(record)
    click.echo(f"kept for plans on this hardware: {kept}", err=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf8")


def usable_engines() -> list[str]:
    """Engines that are installed and compute here."""
    from evaluator_serving.registry import known_engines

    return [one.name for one in known_engines() if one.made and not one.problem and one.made.devices != ("server",)]


def show(record: Mapping[str, Any]) -> None:
    """The record as a table."""
    model, work, ceilings = record["model"], record["work"], record["ceilings"]
    click.echo(
        f"{record['hardware']['name']}, {work['threads'] or 'GPU'} threads: {model['spec']}, {model['parameters'] / 1e6:.0f}M, "
        f"{work['sentences']} sentences of {work['task']}"
    )
    if ceilings:
        click.echo(
            f"in the same run matrix products made {ceilings['matrix_gflop_s']:.0f} GFLOP/s, "
            f"copies {ceilings['memory_gb_s']:.0f} GB/s"
        )
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("way", no_wrap=True)
    for column in (
        "sentences/s",
        "±",
        "tokens/s",
        "of peak",
        "of memory",
        "GiB",
        "start s",
        "encode s",
        "forward s",
        "write s",
        "max |Δ|",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for way in record["ways"]:
        if "error" not in way:
            table.add_row(*_cells(way))
    Console(width=max(WIDTH, Console().width)).print(table)
    for way in record["ways"]:
        if "error" in way:
            click.echo(f"{way['way']}: can't run here: {way['error']}")


def _cells(way: Mapping[str, Any]) -> Sequence[str]:
    def share(name: str) -> str:
        return f"{way[name]:.0%}" if name in way else "-"

    seconds = way["seconds"]
    start = way.get("start", {})
    return (
        way["way"],
        f"{way['sentences_s']:.1f}",
        f"{way['noise']:.0%}",
        f"{way['tokens_s']:,.0f}",
        share("share_of_matrix_peak"),
        share("share_of_memory_bandwidth"),
        f"{max(way['peak_gib'], way['device_peak_gib']):.2f}",
        f"{start['process'] + start['first']:.1f}" if start else "-",
        *(f"{seconds[name]:.2f}" for name in ("encode", "forward", "write")),
        f"{way['max_difference']:.0e}",
    )


@command.command(name="compare")
@click.argument("before", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("after", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def compare(before: Path, after: Path, as_json: bool) -> None:
    """How many times as fast each way is in AFTER as in BEFORE, and whether that is more than the noise of the slices."""
    from evaluator.bench.compare import differing, ratios

    old, new = (read(path) for path in (before, after))
    found, other = list(ratios(old, new)), list(differing(old, new))
    if as_json:
        click.echo(json.dumps({"ratios": [one.record() for one in found], "differing": other}, indent=1))
        return
    for one in found:
        word = "" if one.beyond_noise else " (within the noise)"
        click.echo(
            f"{one.way}: {one.before:.1f} to {one.after:.1f} sentences/s, {one.ratio:.2f} times as fast "
            f"± {one.noise * one.ratio:.2f}{word}"
        )
    for line in other:
        click.echo(line)


def read(path: Path) -> dict[str, Any]:
    """A bench's record. Raises InputError for anything else."""
    from evaluator.sweep.benches import FORMAT, KIND

    try:
        record = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read as a bench ({error}): give what `evaluator bench --json` wrote") from error
    if not isinstance(record, dict) or record.get("kind") != KIND or record.get("format") != FORMAT:
        raise InputError(f"{path} is no bench of this version: give what `evaluator bench --json` wrote")
    return record
