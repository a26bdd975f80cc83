"""Published StereoSet predictions: {"intrasentence": [{"id", "score"}, …], "intersentence": […]}, `id` being a candidate's."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.datasets.stereoset import LABELS, TESTS
from evaluator.measures.stereoset import CANDIDATES
from evaluator.store.run import Run, heads_key
from evaluator.tasks.stereoset import SCORED, StereoSetTask
from evaluator.tasks.stored import task_entry
from evaluator.vocabulary import DataSource, Samples
from evaluator_serving.errors import InputError


@dataclass(frozen=True, slots=True)
class StereoSetPredictions:
    """One file's scores.

    Attributes:
        model: name of the model, from the file's name.
        scores: test → candidate id → score; a test that the file doesn't have is absent.
        sha256: of the file.
    """

    model: str
    scores: Mapping[str, Mapping[str, float]]
    sha256: str


def model_name(path: Path, language: str) -> str:
    """The file's name less its ending and language: it names the model and both heads (or the case) it was scored with."""
    return path.stem.removesuffix(f"_{language}")


_HEADS: Mapping[str, str] = {
    **{"BertLM": "masked", "GPT2LM": "causal", "T5LM": "seq2seq", "mT5LM": "seq2seq"},
    **{"BertNextSentence": "pair", "ModelNSP": "pair"},
}
_KIND = re.compile(rf".+_({'|'.join(_HEADS)}|)_({'|'.join(_HEADS)})(?:(?:_case)?_(d|c|e|f|b|orig))?(?:_power2)?")


def kind_of(model: str) -> str | None:
    """How a model was asked, as its name says: its heads, as in `evaluator.store.run.heads_key`, and the case if it isn't d.

    None where the name doesn't say.
    """
    match = _KIND.fullmatch(model)
    if match is None:
        return None
    case = f", case = {match[3]}" if match[3] not in (None, "d") else ""
    return heads_key({_HEADS[name] for name in match.group(1, 2) if name}) + case


def read_predictions(path: Path, language: str) -> StereoSetPredictions:
    """Read one file. Raises InputError, naming file and entry, where it isn't in the public format."""
    try:
        content = path.read_bytes()
        data = json.loads(content)
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror}): give a file of StereoSet predictions") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}): give a file of StereoSet predictions") from error
    present = [test for test in TESTS if isinstance(data, Mapping) and data.get(test)]
    if not present:
        raise InputError(f'{path} has no predictions: expected {{"intrasentence": [{{"id": …, "score": …}}, …], …}}')
    return StereoSetPredictions(
        model_name(path, language),
        {test: _by_id(data[test], f"{path}, {test}") for test in present},
        hashlib.sha256(content).hexdigest(),
    )


def _by_id(entries: Any, where: str) -> dict[str, float]:
    scores: dict[str, float] = {}
    for index, entry in enumerate(entries if isinstance(entries, Sequence) else [None]):
        try:
            name, score = str(entry["id"]), float(entry["score"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f'{where}[{index}]: not {{"id": …, "score": number}}: correct the entry') from None
        if name in scores and scores[name] != score:
            raise InputError(f"{where}[{index}]: a second, different score for {name}: keep one of them")
        scores[name] = score
    return scores


def score_frame(predictions: StereoSetPredictions, samples: Samples, language: str) -> tuple[pl.DataFrame, list[str]]:
    """The examples' scores (columns SCORED) and, per example that lacks a score or has one that is no number, why.

    Examples of a test that the file doesn't have are simply absent. `score` is null where a candidate's score isn't positive.
    """
    rows: list[dict[str, object]] = []
    wrong: list[str] = []
    for row in samples.frame.iter_rows(named=True):
        scores = predictions.scores.get(row["template"])
        if scores is None:
            continue
        values = [scores.get(name, math.nan) for name in row["ids"]]
        missing = [label for label, value in zip(LABELS, values, strict=True) if math.isnan(value)]
        if missing:
            wrong.append(f"example {row['example']}: no score for {' and '.join(missing)}")
            continue
        rows.append(
            {
                "language": language,
                "template": row["template"],
                "sample": row["sample"],
                "group": row["bias_type"],
                "score": _log_ratio(values[0], values[1]),
                "example": row["example"],
                "target": row["target"],
                **dict(zip(CANDIDATES, values, strict=True)),
            }
        )
    return pl.DataFrame(rows, schema=SCORED), wrong


def _log_ratio(first: float, second: float) -> float | None:
    return math.log(first) - math.log(second) if first > 0 and second > 0 else None


def import_predictions(paths: Sequence[Path], language: str, data: DataSource, out: Path) -> tuple[Run, list[str]]:
    """Make a run at `out` (or add to it) with one imported model a file; returns it and what was left out.

    The run's protocol is `published`. Raises InputError for a wrong file, two files of one model name, or a file none of whose
    ids belong to the data set.
    """
    task = StereoSetTask(language)
    samples = task.load(data)
    files = [read_predictions(path, language) for path in paths]
    for name, count in Counter(file.model for file in files).items():
        if count > 1:
            raise InputError(f"{count} files are of a model called {name}: rename one or import into another --out folder")
    scored = [score_frame(file, samples, language) for file in files]
    for path, (frame, _) in zip(paths, scored, strict=True):
        if frame.is_empty():
            raise InputError(f"{path}: no example of stereoset-{language} has all its scores in it: check --language")
    run = Run.create_or_open(out, protocol="published", provenance={"imported": "stereoset-predictions"})
    notes = []
    with run.locked():
        entry = task_entry(task, samples)
        for file, (frame, wrong) in zip(files, scored, strict=True):
            kind = kind_of(file.model)
            run.add_imported(task.name, entry, file.model, frame, file.sha256, part=task.name, failures=wrong, kind=kind)
            notes += [f"{file.model}: {reason}" for reason in wrong]
    return run, notes
