"""Import GEST's published prediction files: `MODEL_template-K.txt`, one log10 score per line in the order of gest.csv.

Files of masked models (`mlm`) have K = 0…3 for templates 1…4; those of generative models (`glm`) have K = 0, 1 for templates 3
and 4. Scores are converted to natural logarithms.
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
    """One file: model and template from its name, natural-log scores in the data set's order, and sha256."""

    model: str
    template: str
    scores: tuple[float, ...]
    sha256: str


def files_of(paths: Sequence[Path]) -> Iterator[Path]:
    """The files, and the .txt files of folders in alphabetical order. Raises InputError for a folder without any."""
    for path in paths:
        if path.is_dir():
            files = sorted(path.glob("*.txt"))
            if not files:
                raise InputError(f"{path} has no .txt files: give prediction files, or their folder")
            yield from files
        else:
            yield path


def read_predictions(path: Path, kind: Kind, rows: int) -> GestPredictions:
    """Read one file, which must have `rows` scores. Raises InputError with the file and line."""
    model, template = _parse_name(path, kind)
    text, digest = read_text(path, "give a file with one score per line", wanted="give a file of GEST predictions")
    lines = text.splitlines()
    scores = tuple(_score(line, path, number) for number, line in enumerate(lines, start=1))
    if len(scores) != rows:
        raise InputError(f"{path} has {len(scores)} lines, but the data set has {rows} rows: use predictions of this version")
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
    """Scores of one file in the columns of the task's `score`, and `head`; the words' log-probabilities are null."""
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
    """Create a run at `out`, or extend it, from prediction files of GEST 1.0. The protocol is `published`.

    All files are read before anything is written. Other templates of a model in an existing run are kept.

    Raises InputError for an invalid file, two files of the same model and template, or a folder that is not such a run.
    """
    task = find_task("gest")
    samples = task.load(data)
    read: dict[tuple[str, str], tuple[Path, GestPredictions]] = {}
    for path in files_of(paths):
        one = read_predictions(path, kind, samples.frame.height)
        first = read.setdefault((one.model, one.template), (path, one))[0]
        if first != path:
            raise InputError(f"{path} and {first} are both for {one.model}, template {one.template}: give only one")
    models: dict[str, list[GestPredictions]] = {}
    for _, one in read.values():
        models.setdefault(one.model, []).append(one)
    provenance = {"imported": "gest-predictions", "kind": kind, "files": sorted(str(path) for path, _ in read.values())}
    run = Run.create_or_open(out, protocol="published", provenance=provenance)
    with run.locked():
        existing = scores_of(run, task.name) if task.name in run.tasks else None
        for model, predictions in models.items():
            _refuse_change(run, existing, model, predictions, kind)
        run.add_attempt(provenance)
        for model, predictions in models.items():
            for one in predictions:
                entry, frame, part = task_entry(task, samples), score_frame(one, samples, kind), f"template {one.template}"
                run.add_imported(task.name, entry, model, frame, one.sha256, part=part, kind=HEADS[kind])
    return run


def _refuse_change(run: Run, existing: pl.DataFrame | None, model: str, new: Sequence[GestPredictions], kind: Kind) -> None:
    """Raise InputError for other scores of a template in the run, or another kind of model with the same name."""
    if existing is None or model not in run.models:
        return
    hashes = run.record["models"][model].get("revision", {})
    for one in new:
        if hashes.get(f"template {one.template}", one.sha256) != one.sha256:
            raise InputError(
                f"{run.shown} has other scores for {model}, template {one.template}: "
                "rename the file or use another --out folder"
            )
    heads = set(existing.filter(pl.col("model") == model)["head"])
    if heads - {HEADS[kind]}:
        raise InputError(
            f"{run.shown} has {model} as a model of another kind than {kind}: check --kind or use another --out folder"
        )
