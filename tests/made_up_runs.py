"""Made-up data in the layouts of the public files, and runs of made-up scores."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.tasks.stored import task_entry
from evaluator.vocabulary import Samples


def write_gest(data: Path, rows: int | Sequence[tuple[str, Any]]) -> Path:
    """GEST's file in a data folder: pairs of a sentence and its stereotype, or as many as asked, of all stereotypes in turn."""
    pairs = [(f"Sentence {i}.", i % 16 + 1) for i in range(rows)] if isinstance(rows, int) else rows
    (data / "gest").mkdir(parents=True, exist_ok=True)
    lines = [f"{sentence},{stereotype}\n" for sentence, stereotype in pairs]
    (data / "gest" / "gest.csv").write_text("sentence,stereotype\n" + "".join(lines))
    return data


def write_predictions(folder: Path, model: str, *templates: Iterable[float]) -> Path:
    """A model's published predictions: a file of scores for each template."""
    folder.mkdir(exist_ok=True)
    for number, scores in enumerate(templates):
        (folder / f"{model}_template-{number}.txt").write_text("\n".join(map(str, scores)))
    return folder


def score_frame(template: str, rows: Sequence[tuple[str, float]]) -> pl.DataFrame:
    """English scores of one template from (group, score), a sample each."""
    frame = pl.DataFrame(rows, schema=["group", "score"], orient="row")
    return frame.with_columns(language=pl.lit("en"), template=pl.lit(template), sample=pl.int_range(pl.len(), dtype=pl.Int64))


def add_scores(run: Run, name: str, model: str, scores: pl.DataFrame) -> None:
    """Put scores of a built-in task into a run, as imported ones."""
    it = task(name)
    run.add_imported(it.name, task_entry(it, Samples(scores.select("sample"), {})), model, scores, {"made": "up"})
