"""Rates kept under RUN/tables/rates, so that several formats of a report compute once.

A file's name is a digest of all that its rows follow from: the run's record of the task and its models, the answers, samples
and failures (files of a run appear whole and are never changed, so that names, sizes and times tell them), the options, and
this program's own code. What is kept can be deleted at any time, and a run that can't be written to is read all the same.
"""

import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

import evaluator
import evaluator_serving
from evaluator.store.files import read_parquet, write_parquet
from evaluator.store.names import folder_name
from evaluator.store.run import Run
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import Parameters
from evaluator.vocabulary import TIDY, MeasureOptions

FOLDER = "rates"
CODE = ("measures", "tasks", "datasets", "vocabulary")
"""Packages whose code decides a rate."""
READERS = ("chats.py", "thoughts.py")
"""Modules of `evaluator_serving` that decide what an answer in words says."""
WARNING = "warning"
KEPT = 8
"""Files of a task that are kept: some scales and intervals of its present scores."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A task's rows (columns TIDY) and its warnings."""

    rows: pl.DataFrame
    warnings: tuple[str, ...]


def cached(run: Run, task: Task, options: MeasureOptions, compute: Callable[[], Measured]) -> Measured:
    """What is kept of this task and these options, else what `compute` makes, which is kept then."""
    folder = run.path / "tables" / FOLDER
    path = folder / f"{folder_name(task.name)}-{_digest(run, task, options)}.parquet"
    with contextlib.suppress(OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, KeyError):
        return _read(path)
    made = compute()
    with contextlib.suppress(OSError):
        write_parquet(path, _frame(made))
        _forget(folder, folder_name(task.name))
    return made


def _frame(measured: Measured) -> pl.DataFrame:
    """Rows and warnings in one frame: a warning is a row with nothing else."""
    warnings = pl.DataFrame({WARNING: list(measured.warnings)}, schema={WARNING: pl.String()})
    return pl.concat([measured.rows, warnings], how="diagonal")


def _read(path: Path) -> Measured:
    frame = read_parquet([path])
    rows = frame.filter(pl.col(WARNING).is_null()).select(pl.col(name).cast(dtype) for name, dtype in TIDY.items())
    return Measured(rows, tuple(frame[WARNING].drop_nulls()))


def _forget(folder: Path, task: str) -> None:
    """Remove the oldest files of a task (others' names may begin alike: a digest has no hyphen)."""
    mine = [path for path in folder.glob("*.parquet") if path.stem.rpartition("-")[0] == task]
    for path in sorted(mine, key=lambda path: path.stat().st_mtime_ns)[:-KEPT]:
        path.unlink(missing_ok=True)


def _digest(run: Run, task: Task, options: MeasureOptions) -> str:
    record = run.record
    content: dict[str, Any] = {
        "code": _code() + _plugin_code(type(task).__module__.partition(".")[0]),
        "options": asdict(options),
        "named": [list(_file(path)) for path in _paths(options)],
        "task": record["tasks"].get(task.name),
        "protocol": record["protocol"],
        "models": {name: {k: v for k, v in entry.items() if k != "starts"} for name, entry in record["models"].items()},
        "files": sorted(_files(run, task.name)),
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True, default=str).encode(), digest_size=12).hexdigest()


def _paths(options: MeasureOptions) -> Iterator[Path]:
    """Files that the tasks' settings name."""
    for settings in options.settings.values():
        values = dict(settings).values() if isinstance(settings, Parameters) else ()
        yield from (value for value in values if isinstance(value, Path) and value.is_file())


def _files(run: Run, task: str) -> Iterator[tuple[str, int, int]]:
    """Everything in the run that this task's scores are made of."""
    own = folder_name(task)
    for pattern in (f"samples/{own}.parquet", f"imported/{own}/*.parquet", "logprobs/*/*/*.parquet", "failures/*.parquet"):
        for path in run.path.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                yield _file(path, run.path)


def _file(path: Path, base: Path | None = None) -> tuple[str, int, int]:
    status = path.stat()
    return str(path.relative_to(base) if base else path.resolve()), status.st_size, status.st_mtime_ns


@functools.cache
def _plugin_code(package: str) -> str:
    """A digest of the code of another package that has the task, empty for this program's own."""
    module = sys.modules.get(package)
    if package == evaluator.__name__ or module is None or not module.__file__:
        return ""
    file = Path(module.__file__)
    paths = sorted(file.parent.rglob("*.py")) if hasattr(module, "__path__") else [file]
    return hashlib.blake2b(b"".join(path.read_bytes() for path in paths), digest_size=12).hexdigest()


@functools.cache
def _code() -> str:
    """A digest of the program's own code that rates are made by."""
    home = Path(evaluator.__file__).parent
    serving = Path(evaluator_serving.__file__).parent
    digest = hashlib.blake2b(evaluator.__version__.encode(), digest_size=12)
    paths = [path for package in CODE for path in sorted((home / package).rglob("*.py"))]
    for path in (*paths, *(serving / name for name in READERS)):
        digest.update(path.read_bytes())
    return digest.hexdigest()
