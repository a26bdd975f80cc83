"""Measure backends with a model, and compare two measurements (`evaluator bench`)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluator.bench.backends import BASELINES
from evaluator.bench.compare import Ratio, differing, is_whole, ratios
from evaluator.bench.job import BenchJob, check
from evaluator.bench.measure import bench
from evaluator.store.files import read_json
from evaluator.sweep.benches import FORMAT, KIND, Hardware, keep
from evaluator.tasks import usual_task
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError
from evaluator_serving.memory import usable_cores
from evaluator_serving.models.served import is_served
from evaluator_serving.registry import engine_class, known_engines


def measure(
    model: str,
    engines: Sequence[str] = (),
    *,
    against: Sequence[str] = (),
    task: str | None = None,
    limit: int = 240,
    slices: int = 4,
    dtype: str = "float32",
    device: str = "auto",
    threads: int | None = None,
    out: Path | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    data: Path | None = None,
    report: Callable[[str], None] = print,
) -> tuple[dict[str, Any], Path]:
    """Measure engines with a model, each in its own process. Returns the record, and the file that plans read it from.

    Plans on this hardware use the newest measurement; where their file can't be written, it doesn't exist.

    Args:
        engines: default: all that are installed and run on this machine.
        against: baselines (`evaluator.bench.backends.BASELINES`).
        task: whose sentences are scored (default: gest if its data are installed, else gest-demo).
        limit: number of sentences; slices: parts of the work, in which backends take turns.
        threads: CPU threads of a backend (default: all cores).
        out: file that the record is also written to, as JSON.
        report: called with a line on each step.

    Raises InputError before a process starts for what cannot be measured here, and EngineError where no backend ran.
    """
    _check_backends(model, engines, against)
    if out is not None:
        _check_writable(out)
    hardware = Hardware.here() if device == "auto" or device.startswith("cuda") else Hardware.processor()
    job = BenchJob(
        backend="engine",
        engine="",
        model=model,
        task=task or usual_task(DataSource(data)),
        limit=limit,
        data=str(data) if data else "",
        dtype=dtype,
        device=device,
        threads=threads or (usable_cores() if hardware.kind == "cpu" else 0),
        slices=slices,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )
    jobs = [replace(job, backend=name) for name in against]
    jobs += [replace(job, engine=name) for name in engines or _usable_engines()]
    check(jobs[0])
    record = bench(jobs, hardware, report)
    path = keep(record)
    if out is not None:
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf8")
    return record, path


def compare(before: Path, after: Path) -> tuple[list[Ratio], list[str]]:
    """The speed ratio of each backend that ran in both measurements, and a line on each condition that differs.

    Raises InputError for a file that holds no measurement, and where no backend ran in both.
    """
    old, new = read_record(before), read_record(after)
    return list(ratios(old, new)), list(differing(old, new))


def _check_writable(out: Path) -> None:
    """Raise InputError where the record can't be written: a measurement takes minutes."""
    new = not out.exists()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a"):
            pass
        if new:
            out.unlink()
    except OSError as error:
        raise InputError(f"--json {out} can't be written ({error.strerror}): give another file") from error


def _check_backends(model: str, engines: Sequence[str], against: Sequence[str]) -> None:
    """Raise InputError for engines, baselines and models that cannot be measured on this machine."""
    unknown = [name for name in against if name not in BASELINES]
    if unknown:
        raise InputError(f"--against {unknown[0]!r} is not a baseline: choose from {', '.join(BASELINES)}")
    remedy = "bench measures this machine: run it on the server's machine, with the model's folder or hub id"
    if is_served(model):
        raise InputError(f"{model} runs on a server; {remedy}")
    for name in engines:
        if engine_class(name).devices == ("server",):
            raise InputError(f"models of the {name} engine run on a server; {remedy}")


def _usable_engines() -> list[str]:
    """Installed engines that run on this machine."""
    return [one.name for one in known_engines() if one.engine and not one.problem and one.engine.devices != ("server",)]


def read_record(path: Path) -> dict[str, Any]:
    """Read a bench record. Raises InputError for any other file."""
    try:
        record: dict[str, Any] = read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} can't be read as a benchmark ({error}): give a file written by `evaluator bench --json`"
        ) from error
    ours = isinstance(record, dict) and record.get("kind") == KIND and record.get("format") == FORMAT
    if not ours or not is_whole(record):
        raise InputError(f"{path} is not a benchmark of this version: give a file written by `evaluator bench --json`")
    return record
