"""`evaluator.export_results`: a run's results written as files of another program's format."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Unpack, get_args

from evaluator.exports import every_eval_ever, hugging_face, lm_eval
from evaluator.exports.every_eval_ever import Relationship, Reporter
from evaluator.exports.result import results
from evaluator.reports.function import report
from evaluator.reports.texts import sample_texts
from evaluator.store.files import write_bytes
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of, with_ids
from evaluator.vocabulary import RateChoices
from evaluator_serving.errors import InputError

Format = Literal["every-eval-ever", "hugging-face", "lm-eval"]


def export_results(
    run: str | Path,
    format: Format,
    out: str | Path,
    *,
    tasks: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    instances: bool = False,
    text: bool = False,
    data: str | Path | None = None,
    organization: str = "unknown",
    relationship: Relationship = "other",
    url: str | None = None,
    **choices: Unpack[RateChoices],
) -> list[Path]:
    """Write a run's results below the folder `out` for other programs. Returns the files.

    Args:
        run: the run's folder, or its URL.
        format: `every-eval-ever`, `hugging-face` or `lm-eval`.
        tasks: names of tasks (default: all).
        settings: the tasks' parameters of a report, as `--set` takes them.
        instances: every-eval-ever: also write a record for each sample's score.
        text: with their sentences, read from the data set.
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        organization: every-eval-ever: who reports.
        relationship: every-eval-ever: how the organization is related to the models' makers.
        url: hugging-face: URL where the results can be viewed.
        choices: see `evaluator.vocabulary.RateChoices`.

    Raises InputError for an unknown format or relationship, what another format takes, and a run without scores.
    """
    if format not in get_args(Format):
        raise InputError(f"unknown format {format!r}: choose {', '.join(get_args(Format))}")
    if relationship not in get_args(Relationship):
        raise InputError(f"unknown relationship {relationship!r}: choose {', '.join(get_args(Relationship))}")
    if instances and format != "every-eval-ever":
        raise InputError(f"{format} has no records of single samples: remove --instances")
    if text and not instances:
        raise InputError("--text requires --instances")
    opened = Run.open(run_folder(run))
    found = results(opened, report(opened.path, tasks, settings=settings, **choices))
    if not found:
        raise InputError(f"{opened.shown} holds no scores: score some models first")
    if format == "every-eval-ever":
        scores = None
        if instances:
            scores = {name: with_ids(opened, name, scores_of(opened, name)) for name in {each.task for each in found}}
            if text:
                folder = Path(data) if data else None
                scores = {
                    name: frame.join(sample_texts(opened, name, folder), on="sample", how="left", maintain_order="left")
                    for name, frame in scores.items()
                }
        made = every_eval_ever.documents(found, Reporter(organization, relationship), int(time.time()), scores)
    elif format == "hugging-face":
        made = hugging_face.documents(found, url)
    else:
        made = lm_eval.documents(found)
    for path, content in made.items():
        write_bytes(Path(out) / path, content.encode())
    return [Path(out) / path for path in made]
