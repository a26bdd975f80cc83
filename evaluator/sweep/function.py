"""A sweep and its plan from a SWEEP.toml, as `evaluator sweep` and `evaluator plan` make them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaluator.reports.notes import run_notes
from evaluator.scoring.driver import prepare
from evaluator.scoring.existing_answers import perform
from evaluator.scoring.run import ScoredRun
from evaluator.scoring.spec import RunSpec
from evaluator.store.remote import run_folder
from evaluator.sweep.benches import Speeds
from evaluator.sweep.config import read_sweep
from evaluator.sweep.driver import SweepOptions, sweep, worker_threads
from evaluator.sweep.hardware import GIB, local_fleet, parse_fleet
from evaluator.sweep.planning.outline import outline_plan
from evaluator.sweep.planning.plan import Plan, make_plan
from evaluator.vocabulary import DataSource
from evaluator_serving.models.outline import read_configurations


def sweep_file(
    file: str | Path,
    out: str | Path | None = None,
    *,
    data: str | Path | None = None,
    ray: str = "auto",
    workers: int = 1,
    worker_memory: float | None = None,
    start_deadline: float = 1800.0,
    weights_cache: int | None = None,
    price: float | None = None,
    verify: bool = True,
    strict: bool = False,
    retry: bool = False,
    metrics: tuple[str, int] | None = None,
    command: Sequence[str] = (),
) -> ScoredRun:
    """Score every model of a SWEEP.toml on its tasks. The same call finishes a sweep that was interrupted.

    Args:
        out: the run's folder or URL (default: as in the file).
        data: folder of the data sets (default: what the file says, else EVALUATOR_DATA, else the cache).
        ray, workers, start_deadline, price: see `SweepOptions`.
        worker_memory: GiB that one CPU worker may use.
        weights_cache: bytes of fetched weights on each machine (default: as in the file).
        verify, strict, retry, metrics, command: as of `evaluator.run`.

    Raises InputError before anything is loaded where the file is wrong.
    """
    spec_of_file = _read(file, out, data)
    spec = replace(
        spec_of_file,
        weights_cache=weights_cache or spec_of_file.weights_cache,
        verify=verify,
        strict=strict or spec_of_file.strict,
        retry=retry,
        metrics=metrics,
        command=tuple(command) or ("evaluator.sweep.function.sweep_file", str(file)),
    )
    memory = int(worker_memory * GIB) if worker_memory is not None else None
    options = SweepOptions(ray, workers, memory, start_deadline, price)
    outcome = perform(spec, lambda asking: sweep(asking, options))
    return ScoredRun(outcome.run.path, outcome, tuple(model.name for model in spec.models))


def plan_file(
    file: str | Path,
    out: str | Path | None = None,
    *,
    data: str | Path | None = None,
    ray: str = "auto",
    workers: int = 1,
    fleet: str | None = None,
    configurations: Path | None = None,
    throughput: float | None = None,
    price: float | None = None,
) -> tuple[Plan, list[str]]:
    """The plan of a sweep, and notes for its readers.

    Args:
        out, data, ray, workers: as of `sweep_file`.
        fleet: the machines to plan for (1x8xH100-80) instead of this one.
        configurations: JSON file of hub ids and configurations, used instead of the Hub; token counts are estimated.
        throughput: measured forward tokens per second of a model with 1B parameters on one device.
        price: of a device-hour.
    """
    machines = parse_fleet(fleet) if fleet is not None else local_fleet(workers)
    speeds = Speeds.known(machines, throughput, worker_threads(ray, machines))
    spec = _read(file, out, data).asking
    notes: list[str] = []
    if configurations is None:
        plan = make_plan(prepare(spec), machines, speeds)
    else:
        plan = outline_plan(spec, read_configurations(configurations), machines, speeds)
        notes.append("Token counts, and so times, are estimated from characters: no tokenizer was loaded.")
    plan = replace(plan, price=price)
    sizes = {loaded.task.name: {"samples": loaded.samples.size} for loaded in plan.ready.tasks}
    return plan, notes + list(run_notes({"tasks": sizes, "models": {model.name: model.entry for model in plan.ready.models}}))


def _read(file: str | Path, out: str | Path | None, data: str | Path | None) -> RunSpec:
    spec = read_sweep(Path(file), out=run_folder(out) if out else None)
    return replace(spec, data=DataSource(Path(data))) if data else spec
