"""`evaluator sweep`: dozens of models in one command."""

import signal
import sys
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from evaluator.cli.options import (
    RUN,
    LocalPath,
    data_option,
    finite,
    leaving_out_options,
    no_verify_option,
    size,
    watching_options,
)
from evaluator.cli.run import finish, interrupt
from evaluator.scoring.spec import RunSpec
from evaluator.vocabulary import DataSource


def data_of_sweep(context: click.Context, data: Path | None, spec: RunSpec) -> RunSpec:
    """A sweep file's specification with its data folder: --data, else what the file says, else EVALUATOR_DATA."""
    given = context.get_parameter_source("data") is ParameterSource.COMMANDLINE
    return replace(spec, data=DataSource(data)) if given or spec.data.folder is None else spec


@click.command(name="sweep")
@click.argument("file", type=LocalPath(path_type=Path), metavar="SWEEP.toml")
@click.option("--out", type=RUN, help="The run's folder or URL (s3://, gs://, az://; default: what the file says).")
@data_option
@click.option(
    "--ray",
    default="auto",
    show_default=True,
    metavar="auto|none|local|ADDRESS",
    help="auto: Ray where there are several GPUs or RAY_ADDRESS is set, else this process.",
)
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="CPU workers where there is no GPU.")
@click.option(
    "--worker-memory",
    type=click.FloatRange(min=0.01),
    callback=finite,
    help="GiB that one CPU worker may use (default: what is free, shared out to the workers).",
)
@click.option("--start-deadline", type=click.FloatRange(min=1), default=1800.0, show_default=True, help="Seconds to load.")
@click.option(
    "--weights-cache",
    metavar="SIZE",
    callback=size,
    help="Room for fetched weights on each machine, e.g. 500GB: models used longest ago go (default: all are kept).",
)
@click.option(
    "--price-per-gpu-hour",
    "price",
    type=click.FloatRange(min=0),
    callback=finite,
    help="Of a device; the report tells the cost.",
)
@no_verify_option
@leaving_out_options
@watching_options
@click.pass_context
def command(
    context: click.Context,
    file: Path,
    out: Path | None,
    data: Path | None,
    ray: str,
    workers: int,
    worker_memory: float | None,
    start_deadline: float,
    weights_cache: int | None,
    price: float | None,
    verify: bool,
    strict: bool,
    retry: bool,
    metrics: tuple[str, int] | None,
) -> None:
    """Score every model of SWEEP.toml on its tasks and print the tables.

    Running the same command again finishes an interrupted sweep. `evaluator status RUN` shows how far it is.

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
    from evaluator.scoring.existing_answers import perform
    from evaluator.sweep.config import read_sweep
    from evaluator.sweep.driver import SweepOptions, sweep
    from evaluator.sweep.hardware import GIB

    signal.signal(signal.SIGTERM, interrupt)
    asked = data_of_sweep(context, data, read_sweep(file, out=out))
    spec = replace(
        asked,
        weights_cache=weights_cache or asked.weights_cache,
        verify=verify,
        strict=strict or asked.strict,
        retry=retry,
        metrics=metrics,
        command=("evaluator", *sys.argv[1:]),
    )
    memory = int(worker_memory * GIB) if worker_memory is not None else None
    options = SweepOptions(ray, workers, memory, start_deadline, price)
    finish(perform(spec, lambda asking: sweep(asking, options)), [model.name for model in spec.models])
