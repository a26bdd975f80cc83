"""Tasks of a run on disk: what run.json says of them, and per-sample scores out of the stored answers."""

from typing import Any

import polars as pl

from evaluator.datasets.normal_forms import normal_forms
from evaluator.store.run import Run
from evaluator.tasks import restore
from evaluator.tasks.base import Task
from evaluator.vocabulary import SCORES, Samples
from evaluator_serving.errors import InputError


def task_entry(task: Task, samples: Samples) -> dict[str, Any]:
    """A task's entry in run.json."""
    return {
        "samples": samples.size,
        "sha256": dict(samples.sha256),
        "dropped": dict(samples.dropped),
        "failures": [list(pair) for pair in samples.failures],
        "facts": dict(samples.facts),
        "definition": task.definition,
        "normal_forms": normal_forms(samples.frame),
    }


def task_of(run: Run, name: str) -> Task:
    """The task as a run defined it. Raises InputError where the run has none of this name."""
    entry = run.record["tasks"].get(name)
    if entry is None:
        raise InputError(f"{run.path} has no task {name!r}: it has {', '.join(run.tasks) or 'none'}")
    return restore(name, entry.get("definition"))


def scores_of(run: Run, name: str) -> pl.DataFrame:
    """Per-sample scores of a task for every model of a run (columns SCORES and the task's own)."""
    task = task_of(run, name)
    frames = []
    for model, entry in run.record["models"].items():
        if entry.get("imported"):
            found = run.imported_scores(name, model, entry)
            frames += [frame.with_columns(pl.lit(name).alias("task")) for frame in found]
        if name not in entry.get("heads_used", {}):
            continue
        scored = task.score(run.asked_table(name, entry), run.answers(model), run.protocol)
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
