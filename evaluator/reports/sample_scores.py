"""Per-sample scores of a run as one frame (`evaluator scores`)."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evaluator.reports.texts import group_names, sample_texts
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.stored import CANDIDATES, candidates_of, scores_of, with_ids
from evaluator.vocabulary import SCORES
from evaluator_serving.errors import InputError


def sample_scores(
    run: str | Path,
    tasks: Sequence[str] = (),
    *,
    candidates: bool = False,
    text: bool = False,
    samples: Path | None = None,
    encoding: str | None = None,
    data: Path | None = None,
) -> pl.DataFrame:
    """The scores of the run's tasks, or of those named, below each other: columns SCORES and `id`; empty where there are none.

    Args:
        candidates: what scores are made of instead, one row per candidate (columns CANDIDATES).
        text: also the columns `text`, the sample's sentence, and `group_name`, null where groups have no names.
        samples, encoding: the file of a task of the user's own, for `text`; data: folder of the data sets.

    Raises InputError for a task that the run doesn't have, and where sentences are missing.
    """
    opened = Run.open(run_folder(run))
    if unknown := set(tasks) - set(opened.tasks):
        raise InputError(f"{opened.shown} has no task {', '.join(sorted(unknown))}: it has {', '.join(opened.tasks) or 'none'}")
    if samples is not None and not text:
        raise InputError("--samples requires --text")
    schema = CANDIDATES if candidates else {**SCORES, "id": pl.String()}
    made = (
        candidates_of(opened, task) if candidates else with_ids(opened, task, scores_of(opened, task))
        for task in tasks or opened.tasks
    )
    cast = [frame.select(pl.col(c).cast(t) for c, t in schema.items()) for frame in made if frame.width]
    frame = pl.concat([pl.DataFrame(schema=schema), *cast])
    return _with_texts(opened, frame, data, samples, encoding) if text else frame


def _with_texts(run: Run, frame: pl.DataFrame, data: Path | None, samples: Path | None, encoding: str | None) -> pl.DataFrame:
    parts = [frame.clear().with_columns(text=pl.lit(None, pl.String), group_name=pl.lit(None, pl.String))]
    for (task,), rows in frame.group_by("task", maintain_order=True):
        names = group_names(run, str(task))
        named = pl.col("group").replace_strict(names, default=None, return_dtype=pl.String).alias("group_name")
        texts = sample_texts(run, str(task), data, samples, encoding)
        parts.append(rows.join(texts, on="sample", how="left", maintain_order="left").with_columns(named))
    return pl.concat(parts)
