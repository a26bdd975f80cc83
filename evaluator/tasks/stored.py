"""Tasks of a run on disk: what run.json says of them, and per-sample scores out of the stored answers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from evaluator.datasets.normal_forms import normal_forms
from evaluator.store.run import Run
from evaluator.tasks import package_of, restore
from evaluator.tasks.base import CANDIDATES as OF_TASK
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import Parameters
from evaluator.vocabulary import SCORES, Samples
from evaluator_serving.errors import InputError, first_line

OWN_IDS = ("id", "example", "row")
"""Columns of a task's table that may hold what the data set calls a sample, the first one there counts."""

CANDIDATES: dict[str, pl.DataType] = {"model": pl.String(), "task": pl.String(), **OF_TASK, "id": pl.String()}
"""Columns of `candidates_of`: see `evaluator.tasks.base.CANDIDATES` and `with_ids`."""


def task_entry(task: Task, samples: Samples, run: Run | None = None) -> dict[str, Any]:
    """A task's entry in run.json; a run that has the task keeps its definition as it is written there."""
    entry = _task_entry(task, samples)
    known = run.record["tasks"].get(task.name, {}) if run else {}
    return entry | {"definition": known["definition"]} if known and same_definition(task.name, known, entry) else entry


def _task_entry(task: Task, samples: Samples) -> dict[str, Any]:
    return {
        "samples": samples.size,
        "sha256": dict(samples.sha256),
        "dropped": dict(samples.dropped),
        "failures": [list(pair) for pair in samples.failures],
        "facts": dict(samples.facts),
        "definition": task.definition,
        **({"made_of": task.made_of} if task.definition is not None else {}),
        **({"package": package} if (package := package_of(task.made_of)) else {}),
        "normal_forms": normal_forms(samples.frame),
        "told_of": samples.frame.height,
    }


def task_of(run: Run, name: str) -> Task:
    """The task as a run defined it. Raises InputError where the run has none of this name."""
    entry = run.record["tasks"].get(name)
    if entry is None:
        raise InputError(f"{run.shown} has no task {name!r}: it has {', '.join(run.tasks) or 'none'}")
    made_of, package = entry.get("made_of"), entry.get("package")
    if package and not package_of(made_of or name):
        raise InputError(f"{run.shown}: task {name} belongs to {package}, which isn't installed here: install that package")
    try:
        return restore(name, entry.get("definition"), made_of)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{run.shown}/run.json: task {name} can't be restored from its definition ({first_line(error)}): restore the file, "
            "or use the version that wrote it"
        ) from error


def settings_of(run: Run, names: Sequence[str] = ()) -> dict[str, type[Parameters]]:
    """The models of the tasks' parameters; of all tasks of the run unless some are named."""
    return {name: type(task_of(run, name).parameters) for name in names or run.tasks}


def same_definition(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two entries of run.json define a task alike; versions of this program write the same definition differently."""
    first, second = (entry.get("definition") for entry in (one, other))
    if first == second or first is None or second is None:
        return bool(first == second)
    try:
        again = [restore(name, entry["definition"], entry.get("made_of")) for entry in (one, other)]
    except Exception:
        return False  # nothing here knows what it means
    return again[0].name == again[1].name and again[0].definition == again[1].definition


def validate_scores(task: Task, scores: pl.DataFrame) -> pl.DataFrame:
    """What `Task.score` gave, with exactly the columns that it must have and those that the task declares, in this order.

    Raises InputError naming the task and the column where one is missing, isn't declared or has another type.
    """
    wanted = {**{name: kind for name, kind in SCORES.items() if name not in ("model", "task")}, **task.columns}
    for name, kind in wanted.items():
        if name not in scores.columns:
            raise InputError(
                f"task {task.name}: score() returned no column {name!r}: it has {', '.join(scores.columns) or 'none'}"
            )
        if (found := scores.schema[name]) not in (kind, pl.Null()):
            raise InputError(f"task {task.name}: score() returned {name!r} as {found}, it must be {kind}")
    if other := [name for name in scores.columns if name not in wanted]:
        raise InputError(f"task {task.name}: score() returned a column {other[0]!r}, which Task.columns doesn't declare")
    return scores.select(pl.col(name).cast(kind) for name, kind in wanted.items())


def candidates_of(run: Run, name: str) -> pl.DataFrame:
    """What a task's scores are made of: one row per model × sample × request × candidate, the columns CANDIDATES."""
    task = task_of(run, name)
    frames = [pl.DataFrame(schema={key: kind for key, kind in CANDIDATES.items() if key != "id"})]
    for model, entry in run.record["models"].items():
        if name in entry.get("heads_used", {}):
            made = task.candidates(run.asked_table(name, entry), run.answers(model), run.protocol)
            rows_of_model = made.with_columns(model=pl.lit(model), task=pl.lit(name))
            frames.append(rows_of_model.select(pl.col(key).cast(kind) for key, kind in frames[0].schema.items()))
    return with_ids(run, name, pl.concat(frames))


def with_ids(run: Run, name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """A task's rows with the column `id`: how its data set calls the sample; where it doesn't, the sample's number."""
    known = [pl.DataFrame(schema={"sample": pl.Int64, "id": pl.String})]
    for entry in run.record["models"].values():
        if name in entry.get("heads_used", {}):
            table = run.asked_table(name, entry)
            named = [pl.col(column).cast(pl.String) for column in OWN_IDS if column in table.columns]
            known.append(table.select("sample", id=pl.coalesce(*named, pl.col("sample").cast(pl.String))))
    ids = pl.concat(known).unique("sample", maintain_order=True)
    own = [column for column in OWN_IDS if column in rows.columns]  # of imported scores there is no table
    named = [pl.col(column).cast(pl.String) for column in ("id_known", *own, "sample")]
    joined = rows.join(ids.rename({"id": "id_known"}), on="sample", how="left", maintain_order="left")
    return joined.with_columns(id=pl.coalesce(*named)).drop("id_known")


def scores_of(run: Run, name: str, models: Collection[str] | None = None) -> pl.DataFrame:
    """Per-sample scores of a task for every model of a run, or for these (columns SCORES and the task's own)."""
    task = task_of(run, name)
    frames = []
    for model, entry in run.record["models"].items():
        if models is not None and model not in models:
            continue
        if entry.get("imported"):
            found = run.imported_scores(name, model, entry)
            frames += [frame.with_columns(pl.lit(name).alias("task")) for frame in found]
        if name not in entry.get("heads_used", {}):
            continue
        scored = validate_scores(task, task.score(run.asked_table(name, entry), run.answers(model), run.protocol))
        frames.append(scored.with_columns(pl.lit(model).alias("model"), pl.lit(name).alias("task")))
    if not frames:
        return pl.DataFrame(schema=SCORES)
    frame = pl.concat(frames, how="diagonal_relaxed")
    order = {model: i for i, model in enumerate(run.models)}
    return (
        frame.select(*(pl.col(c).cast(t) for c, t in SCORES.items()), pl.exclude(*SCORES))
        .with_columns(pl.col("model").replace_strict(order, default=len(order)).alias("_order"))
        .sort("_order", "language", "template", "sample", maintain_order=True)
        .drop("_order")
    )
