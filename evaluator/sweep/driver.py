"""From a sweep's specification to a finished run: prepare, plan, then score in this process or on Ray."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evaluator.scoring.driver import Begin, Outcome, Prepared, check_engines, falling_back, prepare, score_models
from evaluator.scoring.failures import Failures
from evaluator.scoring.loaded_tasks import LoadedTask
from evaluator.scoring.progress import ProgressView
from evaluator.scoring.record import provenance, record
from evaluator.scoring.spec import RunSpec
from evaluator.store.remote import mirror_of
from evaluator.store.run import Run
from evaluator.sweep.benches import Speeds
from evaluator.sweep.hardware import Fleet, local_fleet
from evaluator.sweep.planning.estimate import PlanEstimate
from evaluator.sweep.planning.plan import Plan, make_plan
from evaluator.tasks.stored import task_entry
from evaluator_serving.chats import Day
from evaluator_serving.errors import InputError
from evaluator_serving.memory import usable_cores
from evaluator_serving.registry import engine_class
from evaluator_serving.secrets import redacted
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.weights.cache import weights_budget


def uses_ray(ray: str, fleet: Fleet) -> bool:
    """Whether `--ray auto|none|local|ADDRESS` means Ray: not for one device on this machine without a cluster."""
    if ray == "auto":
        return fleet.devices > 1 or bool(os.environ.get("RAY_ADDRESS"))
    return ray != "none"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Where a sweep runs.

    Attributes:
        ray: `auto`, `none` (this process), `local` (a Ray started here) or a cluster's address.
        workers: CPU workers where there are no GPUs; worker_memory: bytes that each may use (None: what is free, shared out).
        start_deadline: seconds a replica may take to load.
        price: of a device-hour, for the record.
    """

    ray: str = "auto"
    workers: int = 1
    worker_memory: int | None = None
    start_deadline: float = 1800.0
    price: float | None = None


def worker_threads(ray: str, fleet: Fleet) -> int:
    """Threads of one CPU worker: Ray gives each one core, this process has all."""
    return 1 if uses_ray(ray, fleet) else usable_cores()


def sweep(spec: RunSpec, options: SweepOptions) -> Outcome:
    """Run a sweep to its end. The same call finishes one that was interrupted. Raises InputError before anything is loaded."""
    with weights_budget(spec.weights_cache):
        return falling_back(spec, lambda asked: _sweep(asked, options))


def _sweep(spec: RunSpec, options: SweepOptions) -> Outcome:
    attempt = provenance(spec.command)
    address = options.ray if options.ray not in ("auto", "none", "local") else ""
    if options.ray == "auto":
        address = os.environ.get("RAY_ADDRESS", "")
    with contextlib.ExitStack() as connected:
        with _begun(spec, attempt) as begin:
            plan = _joined(spec, options, begin, address, connected) if address else _planned_here(spec, options, begin)
        fleet = plan.fleet
        run = record(spec, plan.ready.tasks, plan.ready.models, attempt)
        with run.locked():
            if not address and not uses_ray(options.ray, fleet):
                return _timed(run, plan, options.price, lambda: score_models(run, _placed(plan), spec))
            if not address:
                from evaluator.sweep.on_ray import cluster

                with ProgressView(run.path, []) as view:
                    connected.callback(cluster.disconnect)
                    cluster.connect("local", options.workers if fleet.kind == "cpu" else None, view.wait)
            return _timed(run, plan, options.price, lambda: _on_ray(run, plan, spec, options))


@contextlib.contextmanager
def _begun(spec: RunSpec, attempt: dict[str, Any]) -> Iterator[Begin]:
    """Gives what writes run.json once it is known what is asked; where the sweep is refused after that, it is taken back."""
    new = not (spec.out / "run.json").exists() and mirror_of(spec.out) is None
    made: list[Run] = []
    attempt["asked"] = {"tasks": [task.name for task in spec.tasks], "models": [redacted(model.spec) for model in spec.models]}

    def begin(tasks: Sequence[LoadedTask], day: Day) -> None:
        if new:
            run = Run.create_or_open(spec.out, protocol=spec.protocol, provenance=attempt, date=asdict(day))
            made.append(run)
            with run.locked():
                run.extend(tasks={each.task.name: task_entry(each.task, each.samples) for each in tasks})

    try:
        yield begin
    except InputError:
        if made and not made[0].models:
            for name in ("run.json", ".lock"):
                (spec.out / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                spec.out.rmdir()
        raise


def _planned_here(spec: RunSpec, options: SweepOptions, begin: Begin) -> Plan:
    """The plan for this machine."""
    ready, fleet = prepare(spec, begin), local_fleet(options.workers, options.worker_memory)
    plan = _planned(ready, fleet, options.ray)
    if not uses_ray(options.ray, fleet):
        check_engines(plan.ready.models)
    return plan


def _joined(spec: RunSpec, options: SweepOptions, begin: Begin, address: str, connected: contextlib.ExitStack) -> Plan:
    """The plan for a cluster, which is joined as soon as it is known what is asked: its machines encode."""
    from evaluator.sweep.on_ray import cluster
    from evaluator.sweep.on_ray.tables import NodeEncoders

    def join(tasks: Sequence[LoadedTask], day: Day) -> None:
        begin(tasks, day)
        connected.callback(cluster.disconnect)
        cluster.connect(address, None)

    ready = prepare(spec, join, NodeEncoders.start)
    return _planned(ready, cluster.Cluster(options.worker_memory, _folders(ready)).fleet(), address)


def _planned(ready: Prepared, fleet: Fleet, ray: str) -> Plan:
    if uses_ray(ray, fleet):
        _check_limits(ready)
    return make_plan(ready, fleet, Speeds.known(fleet, threads=worker_threads(ray, fleet)))


def _check_limits(ready: Prepared) -> None:
    """Refuse a limit on costs where several processes would each keep to it."""
    for model in ready.models:
        if engine_class(model.info.engine).costs and "max_cost" in model.spec.options.extra:
            raise InputError(
                f"{model.name}: max_cost is enforced within one process, and Ray may use several: add --ray none, "
                "or use `evaluator run`"
            )


def _timed(run: Run, plan: Plan, price: float | None, score: Callable[[], Failures]) -> Outcome:
    """Score, and record the plan's estimate and the actual time."""
    estimate = PlanEstimate.of(plan, price)
    if plan.schedule.slots:
        run.add_plan(estimate.record())
    begun = time.monotonic()
    errors = score()
    if plan.schedule.slots:
        run.add_plan(estimate.with_actual(time.monotonic() - begun, whole=not errors).record())
    return Outcome(run, errors)


def _placed(plan: Plan) -> Prepared:
    """The models with the sizes that the plan chose, for this process."""
    allocations = {need.name: need.allocations[-1] for need in plan.needs}
    models = []
    for model in plan.ready.models:
        options = allocations[model.name].placement.options(model.spec.options)
        models.append(replace(model, spec=replace(model.spec, options=options)))
    return replace(plan.ready, models=tuple(models))


def _folders(ready: Prepared) -> dict[str, Path]:
    """Models whose weights are in a local folder or file."""
    return {model.name: model.source.origin for model in ready.models if isinstance(model.source.origin, Path)}


def _on_ray(run: Run, plan: Plan, spec: RunSpec, options: SweepOptions) -> Failures:
    from evaluator.sweep.on_ray.cluster import Cluster
    from evaluator.sweep.on_ray.metrics import RayMetrics
    from evaluator.sweep.on_ray.pool import Pool, PoolOptions

    pool_options = PoolOptions(
        fleet=plan.fleet,
        jobs=[need.job for need in plan.needs],
        lines=plan.schedule.lines,
        prices=plan.schedule.prices,
        replan=plan.replan,
        both_fit=plan.both_fit,
        start_deadline=options.start_deadline,
        access=HubAccess.of_here(spec.weights_cache),
    )
    cluster = Cluster(options.worker_memory, _folders(plan.ready))
    return score_models(run, plan.ready, spec, lambda view: Pool(view, cluster, pool_options), RayMetrics())
