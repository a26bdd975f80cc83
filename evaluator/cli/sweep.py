"""`evaluator sweep`: dozens of models in one command."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evaluator.cli.options import (
    RUN,
    LocalPath,
    calls,
    finite,
    leaving_out_options,
    log_option,
    no_verify_option,
    size,
    sweep_data_option,
    watching_options,
)
from evaluator.cli.run import finish, interrupt

if TYPE_CHECKING:
    from evaluator.trackers import Tracker


@calls("evaluator.sweep.function:sweep_file")
@click.command(name="sweep")
@click.argument("file", type=LocalPath(path_type=Path), metavar="SWEEP.toml")
@click.option("--out", type=RUN, help="The run's folder or URL (s3://, gs://, az://; default: as in the file).")
@sweep_data_option
@click.option(
    "--ray",
    default="auto",
    show_default=True,
    metavar="auto|none|local|ADDRESS",
    help="auto: Ray if there are several GPUs or RAY_ADDRESS is set, else this process.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of CPU workers if there is no GPU."
)
@click.option(
    "--worker-memory",
    type=click.FloatRange(min=0.01),
    callback=finite,
    help="GiB that one CPU worker may use (default: the free memory divided by their number).",
)
@click.option(
    "--start-deadline",
    type=click.FloatRange(min=1),
    default=1800.0,
    show_default=True,
    help="Maximum seconds for a replica to load.",
)
@click.option(
    "--weights-cache",
    metavar="SIZE",
    callback=size,
    help="Disk space for downloaded weights per machine, e.g. 500GB; the least recently used models are removed "
    "(default: none is).",
)
@click.option(
    "--price-per-gpu-hour",
    "price",
    type=click.FloatRange(min=0),
    callback=finite,
    help="Price of a device-hour; the report states the cost.",
)
@no_verify_option
@leaving_out_options
@watching_options
@log_option
def command(log_to: "Tracker | None", **arguments: Any) -> None:
    """Score every model of SWEEP.toml on its tasks and print the tables.

    Running the same command again finishes an interrupted sweep. `evaluator status RUN` shows its progress.

    \b
    Example SWEEP.toml:
      tasks = ["gest"]
      out = "runs/night"
      [[models]]
      model = "gpt2"
      [[models]]
      model = "EleutherAI/pythia-1b@[step1000,main]"
      dtype = "bfloat16"

    \b
    Examples:
      evaluator plan SWEEP.toml
      evaluator sweep SWEEP.toml --data DATA
    """
    from evaluator.sweep.function import sweep_file

    signal.signal(signal.SIGTERM, interrupt)
    scored = sweep_file(**arguments, command=("evaluator", *sys.argv[1:]))
    finish(scored.outcome, scored.models_asked, log_to)
