"""Import StereoSet predictions: {"intrasentence": [{"id", "score"}, …], "intersentence": […]}, with candidates' ids."""

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
        model: the model's name, from the file's name.
        scores: test → candidate id → score, for the tests in the file.
        sha256: of the file.
    """

    model: str
    scores: Mapping[str, Mapping[str, float]]
    sha256: str


def model_name(path: Path, language: str) -> str:
    """The file's name without extension and language; it includes the heads (or the case) of the scores."""
    return path.stem.removesuffix(f"_{language}")


_HEADS: Mapping[str, str] = {
    **{"BertLM": "masked", "GPT2LM": "causal", "T5LM": "seq2seq", "mT5LM": "seq2seq"},
    **{"BertNextSentence": "pair", "ModelNSP": "pair"},
}
_KIND = re.compile(rf".+_({'|'.join(_HEADS)}|)_({'|'.join(_HEADS)})(?:(?:_case)?_(d|c|e|f|b|orig))?(?:_power2)?")


def kind_of(model: str) -> str | None:
    """The heads of a model (see `evaluator.store.run.heads_key`), and the case unless it is d, from its name.

    None if the name does not contain them.
    """
    match = _KIND.fullmatch(model)
    if match is None:
        return None
    case = f", case = {match[3]}" if match[3] not in (None, "d") else ""
    return heads_key({_HEADS[name] for name in match.group(1, 2) if name}) + case


def read_predictions(path: Path, language: str) -> StereoSetPredictions:
    """Read one file. Raises InputError, with file and entry, if it is not in the public format."""
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
    """The examples' scores (columns SCORED), and a line for each example without a valid score for every candidate.

    Examples of tests that the file does not have are absent. `score` is null unless both candidates' scores are positive.
    """
    rows: list[dict[str, object]] = []
    failures: list[str] = []
    for row in samples.frame.iter_rows(named=True):
        scores = predictions.scores.get(row["template"])
        if scores is None:
            continue
        values = [scores.get(name, math.nan) for name in row["ids"]]
        missing = [label for label, value in zip(LABELS, values, strict=True) if math.isnan(value)]
        if missing:
            failures.append(f"example {row['example']}: no score for {' and '.join(missing)}")
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
    return pl.DataFrame(rows, schema=SCORED), failures


def _log_ratio(first: float, second: float) -> float | None:
    return math.log(first) - math.log(second) if first > 0 and second > 0 else None


def import_predictions(paths: Sequence[Path], language: str, data: DataSource, out: Path) -> tuple[Run, list[str]]:
    """Create a run at `out`, or extend it, with one model per file. Returns the run and a line per skipped example.

    The run's protocol is `published`. Raises InputError for an invalid file, two files with the same model name, or a file
    without any id of the data set.
    """
    task = StereoSetTask(language)
    samples = task.load(data)
    files = [read_predictions(path, language) for path in paths]
    for name, count in Counter(file.model for file in files).items():
        if count > 1:
            raise InputError(f"{count} files have the model name {name}: rename them or import into different --out folders")
    scored = [score_frame(file, samples, language) for file in files]
    for path, (frame, _) in zip(paths, scored, strict=True):
        if frame.is_empty():
            raise InputError(f"{path}: no example of stereoset-{language} has scores for all candidates: check --language")
    run = Run.create_or_open(out, protocol="published", provenance={"imported": "stereoset-predictions"})
    notes = []
    with run.locked():
        entry = task_entry(task, samples)
        for file, (frame, failures) in zip(files, scored, strict=True):
            kind = kind_of(file.model)
            run.add_imported(task.name, entry, file.model, frame, file.sha256, part=task.name, failures=failures, kind=kind)
            notes += [f"{file.model}: {reason}" for reason in failures]
    return run, notes
