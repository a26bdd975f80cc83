"""A run opened for reading, for notebooks: `import evaluator; run = evaluator.open("runs/gest"); run.rates()`.

Tables are Polars frames (`.to_pandas()` converts them if pandas and pyarrow are installed) with the columns and numbers of the
command line's csv. Notes on a run are issued as warnings.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import polars as pl

from evaluator.reports.function import report as make_report
from evaluator.reports.notes import run_notes
from evaluator.store.answers import ANSWERS
from evaluator.store.remote import refresh, run_folder, shown
from evaluator.store.run import Run
from evaluator.tasks.stored import candidates_of, scores_of, with_ids
from evaluator.vocabulary import RateChoices
from evaluator_serving.errors import InputError


@dataclass(frozen=True, slots=True)
class Results:
    """A run folder, opened for reading. Every method reads the current state, also while the run is in progress."""

    path: Path

    @property
    def _run(self) -> Run:
        refresh(self.path)
        return Run.open(self.path)

    @property
    def models(self) -> list[str]:
        """Names of the models in the order they were added."""
        return self._run.models

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks in the order they were added."""
        return self._run.tasks

    @property
    def record(self) -> dict[str, Any]:
        """run.json: the specification of the run, with its models, tasks and data."""
        return self._run.record

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that every reader of the numbers needs, one sentence each."""
        return tuple(run_notes(self.record))

    def scores(self, task: str | None = None) -> pl.DataFrame:
        """Per-sample scores: model, task, language, template, sample, group, score (natural log), the task's own columns,
        and `id`, the sample's row or id in its data set.

        `task` is optional if the run has only one. Raises InputError for a task that the run does not have.
        """
        opened, name = self._run, self._only(task)
        return with_ids(opened, name, scores_of(opened, name))

    def rates(
        self,
        task: str | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        published: bool = False,
        beside: Sequence[str | Path] = (),
        **choices: Unpack[RateChoices],
    ) -> pl.DataFrame:
        """Rates with 95% intervals, as in `evaluator report --format csv`; of all tasks unless one is named.

        `settings` are report settings of tasks, as for `--set`; `choices`: see `evaluator.vocabulary.RateChoices`. With
        `published` (the published scores, see `evaluator data fetch published`) or `beside` (other runs) the rows of comparable
        references follow, and a column `source` names their run; it is null for this run's rows.
        """
        refresh(self.path)
        report = make_report(
            self.path, (task,) if task else (), settings=settings, published=published, beside=beside, **choices
        )
        warn((*report.notes, *report.warnings))
        return report.listed

    def answers(self, model: str) -> pl.DataFrame:
        """A model's answers: request, candidate, tokens (ids), logprobs (natural log, one per token).

        For a model with chat answers also the replies (`evaluator.store.answers.REPLIES`), null in other rows.
        """
        opened = self._run
        entry = opened.record["models"].get(model)
        if entry is None:
            raise InputError(f"{shown(self.path)} has no model {model!r}: it has {', '.join(opened.models) or 'none'}")
        if "fingerprint" not in entry:
            raise InputError(f"{model} has no answers: its scores were imported; see scores()")
        found = opened.answers(model)
        return found if found["text"].is_not_null().any() else found.select(list(ANSWERS))

    def candidates(self, task: str | None = None) -> pl.DataFrame:
        """The candidates behind the scores, one row per model × sample × request × candidate.

        For the columns see `evaluator.tasks.base.CANDIDATES`; `id` is the sample's id in its data set.
        """
        return candidates_of(self._run, self._only(task))

    def failures(self) -> pl.DataFrame:
        """Current failures: model, request (empty: the whole model), reason, kind."""
        return self._run.failures()

    def _only(self, task: str | None) -> str:
        tasks = self.tasks
        if task is None and len(tasks) == 1:
            return tasks[0]
        if task is None:
            raise InputError(f"{shown(self.path)} has {len(tasks)} tasks: name one of {', '.join(tasks) or 'none'}")
        return task


def open(path: str | Path) -> Results:
    """The run in a folder, or at a URL of object storage. Raises InputError where there is none."""
    folder = run_folder(path)
    Run.open(folder)
    return Results(folder)


def warn(notes: Sequence[str], level: int = 3, category: type[Warning] = UserWarning) -> None:
    """A warning for each note, as if of the caller's caller."""
    for note in notes:
        warnings.warn(note, category, stacklevel=level)
