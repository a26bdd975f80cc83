"""From a sweep's specification to a finished run: prepare, plan, then score in this process or on Ray."""

import os

from evaluator.run.driver import Outcome, prepare, record_failures, score_models
from evaluator.run.failures import Failures
from evaluator.run.prepare import record
from evaluator.run.progress import ModelProgress, ProgressView
from evaluator.run.spec import RunSpec
from evaluator.store.run import Run
from evaluator.sweep.hardware import Hardware, local_hardware
from evaluator.sweep.plan import Plan, make_plan


def uses_ray(ray: str, hardware: Hardware) -> bool:
    """Whether `--ray auto|none|local|ADDRESS` means Ray: not for one device on this machine without a cluster."""
    if ray == "auto":
        return hardware.devices > 1 or bool(os.environ.get("RAY_ADDRESS"))
    return ray != "none"


def sweep(spec: RunSpec, ray: str = "auto", workers: int = 1, start_deadline: float = 1800.0) -> Outcome:
    """Run a sweep to its end. The same call finishes one that was interrupted.

    `ray` is `auto`, `none` (this process), `local` (a Ray started here) or a cluster's address; `workers` is the number of
    CPU workers where there are no GPUs. Raises InputError before anything is loaded.
    """
    ready = prepare(spec)
    if ray not in ("auto", "none", "local") or (ray == "auto" and os.environ.get("RAY_ADDRESS")):
        from evaluator.sweep.pool import cluster_hardware, connect

        connect(ray if ray != "auto" else os.environ["RAY_ADDRESS"], None)
        hardware, joined = cluster_hardware(), True
    else:
        hardware, joined = local_hardware(workers), False
    plan = make_plan(ready, hardware)
    ready = plan.ready
    run = record(spec, ready.tasks, ready.models)
    with run.locked():
        if not uses_ray(ray, hardware):
            return Outcome(run, score_models(run, ready, spec))
        from evaluator.sweep import pool

        if not joined:
            pool.connect("local", workers if hardware.kind == "cpu" else None)
        try:
            return Outcome(run, _on_ray(run, plan, spec, start_deadline))
        finally:
            pool.disconnect()


def _on_ray(run: Run, plan: Plan, spec: RunSpec, start_deadline: float) -> Failures:
    from evaluator.sweep.pool import Pool, PoolOptions

    models = plan.ready.models
    needs = {need.name: need for need in plan.needs}
    begins = {slot.job: slot.start for slot in reversed(plan.schedule.slots)}
    order = sorted(models, key=lambda m: (begins.get(m.name, 0.0), -needs[m.name].devices))
    options = PoolOptions(
        devices={name: need.devices for name, need in needs.items()},
        replicas={name: plan.schedule.replicas.get(name, 1) for name in needs},
        cuda=plan.hardware.kind == "cuda",
        start_deadline=start_deadline,
        verify=spec.verify,
    )
    record_failures(run, plan.ready.errors)
    with ProgressView(run.path, [ModelProgress(m.name, m.total, len(m.answered)) for m in models]) as view:
        return Failures({**plan.ready.errors, **Pool(run, view, options).execute(order)})
