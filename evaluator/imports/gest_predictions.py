"""GEST's published prediction files: `MODEL_template-K.txt`, one log10 score a line in the order of gest.csv.

K counts from 0: masked models (`mlm`) have K = 0…3, which are templates 1…4; generative ones (`glm`) have K = 0, 1, which
are templates 3 and 4. Scores become natural logarithms, as everywhere in the program.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from evaluator.store.run import Run
from evaluator.tasks import task as find_task
from evaluator.tasks.stored import scores_of, task_entry
from evaluator.text_file import read_text
from evaluator.vocabulary import DataSource, Samples
from evaluator_serving.errors import InputError

Kind = Literal["mlm", "glm"]

TEMPLATES: Mapping[Kind, tuple[str, ...]] = {"mlm": ("1", "2", "3", "4"), "glm": ("3", "4")}
"""Kind of model → the templates of K = 0, 1, …"""

HEADS: Mapping[Kind, str] = {"mlm": "masked", "glm": "causal"}
LANGUAGE = "en"

_NAME = re.compile(r"(?P<model>.+)_template-(?P<number>\d+)\.txt")


@dataclass(frozen=True, slots=True)
class GestPredictions:
    """One file: the model and template that its name says, natural-log scores in the data set's order, its sha256."""

    model: str
    template: str
    scores: tuple[float, ...]
    sha256: str


def files_of(paths: Sequence[Path]) -> Iterator[Path]:
    """Files as they are, and the .txt files of folders in the order of their names. Raises InputError where there are none."""
    for path in paths:
        if path.is_dir():
            found = sorted(path.glob("*.txt"))
            if not found:
                raise InputError(f"{path} holds no .txt file: give prediction files, or the folder that they are in")
            yield from found
        else:
            yield path


def read_predictions(path: Path, kind: Kind, rows: int) -> GestPredictions:
    """Read one file that must have `rows` scores. Raises InputError naming the file and, where there is one, the line."""
    model, template = _parse_name(path, kind)
    text, digest = read_text(path, "give a file with one score a line", wanted="give a file of GEST predictions")
    lines = text.splitlines()
    scores = tuple(_score(line, path, number) for number, line in enumerate(lines, start=1))
    if len(scores) != rows:
        raise InputError(f"{path} has {len(scores)} lines, the data set has {rows} rows: give the file of the same version")
    return GestPredictions(model, template, scores, digest)


def _parse_name(path: Path, kind: Kind) -> tuple[str, str]:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise InputError(f"{path}: the name is not MODEL_template-K.txt: rename the file")
    templates = TEMPLATES[kind]
    number = int(match["number"])
    if number >= len(templates):
        raise InputError(f"{path}: {kind} files have template-0 to template-{len(templates) - 1}: check --kind and the name")
    return match["model"], templates[number]


def _score(line: str, path: Path, number: int) -> float:
    try:
        value = float(line)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}, line {number}: {line.strip()[:40]!r} is not a number: correct the line")
    return value * math.log(10)


def score_frame(predictions: GestPredictions, samples: Samples, kind: Kind) -> pl.DataFrame:
    """Scores of one file: the columns of the task's `score`, and `head`; the words' own probabilities are unknown."""
    return samples.frame.select(
        pl.lit(LANGUAGE).alias("language"),
        pl.lit(predictions.template).alias("template"),
        "sample",
        "group",
        pl.Series("score", predictions.scores, dtype=pl.Float64),
        pl.lit(None, pl.Float64).alias("logprob_male"),
        pl.lit(None, pl.Float64).alias("logprob_female"),
        "polarity",
        "family",
        pl.lit(HEADS[kind]).alias("head"),
    )


def import_predictions(paths: Sequence[Path], kind: Kind, data: DataSource, out: Path) -> Run:
    """Make a run at `out` (or add to it) out of prediction files of GEST 1.0; its protocol is `published`.

    Everything is read before anything is written. A model that the run has already keeps its other templates.

    Raises InputError for a wrong file, two files of one model and template, or a folder that holds something else.
    """
    task = find_task("gest")
    samples = task.load(data)
    read: dict[tuple[str, str], tuple[Path, GestPredictions]] = {}
    for path in files_of(paths):
        one = read_predictions(path, kind, samples.frame.height)
        first = read.setdefault((one.model, one.template), (path, one))[0]
        if first != path:
            raise InputError(f"{path} and {first} are both of {one.model}, template {one.template}: give one of them")
    models: dict[str, list[GestPredictions]] = {}
    for _, one in read.values():
        models.setdefault(one.model, []).append(one)
    provenance = {"imported": "gest-predictions", "kind": kind, "files": sorted(str(path) for path, _ in read.values())}
    run = Run.create_or_open(out, protocol="published", provenance=provenance)
    with run.locked():
        known = scores_of(run, task.name) if task.name in run.tasks else None
        for model, predictions in models.items():
            _refuse_change(run, known, model, predictions, kind)
        run.add_attempt(provenance)
        for model, predictions in models.items():
            for one in predictions:
                entry, frame, part = task_entry(task, samples), score_frame(one, samples, kind), f"template {one.template}"
                run.add_imported(task.name, entry, model, frame, one.sha256, part=part, kind=HEADS[kind])
    return run


def _refuse_change(run: Run, known: pl.DataFrame | None, model: str, new: Sequence[GestPredictions], kind: Kind) -> None:
    """Other scores for a template that the run has, or another kind of model under one name, would mix unnoticed."""
    if known is None or model not in run.models:
        return
    hashes = run.record["models"][model].get("revision", {})
    for one in new:
        if hashes.get(f"template {one.template}", one.sha256) != one.sha256:
            raise InputError(
                f"{run.shown} has other scores for {model}, template {one.template}: "
                "rename the file or use another --out folder"
            )
    heads = set(known.filter(pl.col("model") == model)["head"])
    if heads - {HEADS[kind]}:
        raise InputError(
            f"{run.shown} has {model} as another kind of model than {kind}: check --kind or use another --out folder"
        )
