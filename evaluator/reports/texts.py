"""The sentences of a run's samples, which a run doesn't hold: read from the data set again, which must be the same one."""

from pathlib import Path

import polars as pl

from evaluator.datasets.texts import texts
from evaluator.store.run import Run
from evaluator.tasks.stored import task_of
from evaluator.vocabulary import DataSource, MeasureOptions
from evaluator_serving.errors import InputError


def sample_texts(
    run: Run, name: str, data: Path | None = None, samples: Path | None = None, encoding: str | None = None
) -> pl.DataFrame:
    """Columns `sample` and `text` of a task's data set.

    `samples` is the file of a task of the user's own, `encoding` its encoding (None: as the run recorded). Raises InputError
    where the data set isn't here or is another one.
    """
    task = task_of(run, name)
    if samples is not None:
        known = run.record["tasks"][name].get("facts", {}).get("read_as", {})
        encoding = encoding or next((how["encoding"] for how in known.values()), None)
        task = task.reading(samples, encoding) if encoding else task.reading(samples)
    elif task.own_samples:
        raise InputError(f"{name} was made from a custom file: give it with --samples")
    loaded = task.load(DataSource(data, run.protocol))
    known = run.record["tasks"][name].get("sha256", {})
    for file, digest in loaded.sha256.items():
        if known.get(file, digest) != digest or (known and file not in known):
            way = "--samples (a custom file) or --data" if "samples" in type(task.parameters).model_fields else "--data"
            raise InputError(
                f"{file} differs from the data that {run.shown} scored on {name} (sha256): give that file with {way}"
            )
    return texts(loaded.frame)


def group_names(run: Run, name: str) -> dict[str, str]:
    """The names of a task's groups, where its layout names them."""
    layout = task_of(run, name).layout(MeasureOptions())
    return dict(layout.groups) if layout else {}
