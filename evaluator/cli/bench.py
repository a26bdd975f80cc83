"""`evaluator bench`: measure throughput on this hardware, and compare two measurements."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from evaluator import logs
from evaluator.bench.backends import BASELINES
from evaluator.cli.listing import fitted
from evaluator.cli.options import LocalPath, calls, code_option, data_option, pickle_option
from evaluator_serving.engine import BYTES

WIDTH = 80
"""Width of the output in columns; a wider terminal is used in full."""
SPEEDS = ("sentences/s", "±", "tokens/s", "of peak", "of memory", "max |Δ|")
COSTS = ("GiB", "start s", "encode s", "forward s", "write s")
"""Columns of the two tables after the backend's name."""


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


@calls("evaluator.bench.function:measure")
@command.command(name="measure")
@click.argument("model")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    callback=words,
    help="Engines, repeated or comma-separated (default: all that can score MODEL).",
)
@click.option("--against", multiple=True, callback=words, help=f"Baselines: {', '.join(BASELINES)}.")
@click.option("--task", help="Task whose sentences are scored (default: gest if its data are installed, else gest-demo).")
@click.option("--samples", "limit", type=click.IntRange(min=8), default=240, show_default=True, help="Number of sentences.")
@click.option(
    "--slices",
    type=click.IntRange(min=2),
    default=4,
    show_default=True,
    help="Number of slices of the work; backends alternate.",
)
@click.option("--dtype", type=click.Choice(list(BYTES)), default="float32", show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option(
    "--threads", type=click.IntRange(min=1), help="CPU threads per backend (default: all cores; a Ray worker has one)."
)
@click.option("--json", "out", type=LocalPath(path_type=Path, dir_okay=False), help="Also write the record to this file.")
@pickle_option
@code_option
@data_option
def measure_command(**arguments: Any) -> None:
    """Measure sentences and tokens per second of engines with MODEL, each in its own process.

    \b
    Example:
      evaluator bench gpt2 --engine onnx --against transformers-loop --json gpt2.json
    """
    from evaluator.bench.function import measure

    record, path = measure(**arguments, report=logs.say)
    show(record)
    logs.say(f"saved for plans on this hardware: {path}" if path.is_file() else f"not saved for plans: {path} can't be written")


def show(record: Mapping[str, Any]) -> None:
    """Print the record as two tables: speeds, and costs."""
    console = Console(width=max(WIDTH, Console().width))
    model, work, ceilings = record["model"], record["work"], record["ceilings"]
    threads = f", {work['threads']} thread{'' if work['threads'] == 1 else 's'}" if work["threads"] else ""
    lines = [
        f"{record['hardware']['name']}{threads}",
        f"{model['spec']}, {model['parameters'] / 1e6:.0f}M, {work['sentences']} sentences of {work['task']}",
    ]
    if ceilings:
        rates = f"{ceilings['matrix_gflop_s']:.0f} GFLOP/s, copies {ceilings['memory_gb_s']:.0f} GB/s"
        if "bfloat16_gflop_s" in ceilings:
            rates = f"{rates}, products of bfloat16 {ceilings['bfloat16_gflop_s']:.0f} GFLOP/s"
        lines.append(f"measured peak of this machine: matrix products {rates}")
    _echo(lines, console.width)
    ways = [way for way in record["ways"] if "error" not in way]
    for columns, cells in ((SPEEDS, _speeds), (COSTS, _costs)):
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("backend", overflow="fold")
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        for way in ways:
            table.add_row(way["way"], *cells(way))
        console.print(table)
    _echo([f"{way['way']}: can't run here: {way['error']}" for way in record["ways"] if "error" in way], console.width)


def _echo(lines: Sequence[str], width: int) -> None:
    for line in lines:
        click.echo("\n".join(fitted(line, width)))


def _speeds(way: Mapping[str, Any]) -> Sequence[str]:
    def share(name: str) -> str:
        return f"{way[name]:.0%}" if name in way else "-"

    return (
        f"{way['sentences_s']:.1f}",
        f"{way['noise']:.0%}",
        f"{way['tokens_s']:,.0f}",
        share("share_of_matrix_peak"),
        share("share_of_memory_bandwidth"),
        f"{way['max_difference']:.0e}",
    )


def _costs(way: Mapping[str, Any]) -> Sequence[str]:
    start = way.get("start", {})
    return (
        f"{max(way['peak_gib'], way['device_peak_gib']):.2f}",
        f"{start['process'] + start['first']:.1f}" if start else "-",
        *(f"{way['seconds'][name]:.2f}" for name in ("encode", "forward", "write")),
    )


@calls("evaluator.bench.function:compare")
@command.command(name="compare")
@click.argument("before", type=LocalPath(path_type=Path, dir_okay=False))
@click.argument("after", type=LocalPath(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare_command(before: Path, after: Path, as_json: bool) -> None:
    """Print the speed ratio AFTER / BEFORE of each backend, and whether it exceeds the noise between slices."""
    from evaluator.bench.function import compare

    found, other = compare(before, after)
    if as_json:
        click.echo(json.dumps({"ratios": [one.record() for one in found], "differing": other}, indent=1))
        return
    for one in found:
        word = "" if one.beyond_noise else " (within the noise)"
        click.echo(
            f"{one.backend}: {one.before:.1f} to {one.after:.1f} sentences/s, {one.ratio:.2f} times as fast "
            f"± {one.noise * one.ratio:.2f}{word}"
        )
    for line in other:
        click.echo(line)
