"""The program from Python, for notebooks: `import evaluator; run = evaluator.open("runs/gest"); run.rates()`.

Tables are Polars frames (`.to_pandas()` gives pandas ones where pandas and pyarrow are installed) with the columns and numbers
of the command line's csv. What a reader must know of a run comes as warnings.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.store.run import Run
from evaluator.tasks.base import DataSource, Interval, MeasureOptions, Protocol_, Scale
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError

__all__ = ["Results", "compare", "open", "run"]


@dataclass(frozen=True, slots=True)
class Results:
    """A run folder, opened for reading. Every method reads what is there now, also while the run is still going."""

    path: Path

    @property
    def _run(self) -> Run:
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
        """run.json: what was asked, of which models and data."""
        return self._run.record

    @property
    def notes(self) -> tuple[str, ...]:
        """What every reader of the numbers must know, a sentence each."""
        from evaluator.reports.notes import run_notes

        return tuple(run_notes(self.record))

    def scores(self, task: str | None = None) -> pl.DataFrame:
        """Per-sample scores: model, task, language, template, sample, group, score (natural log), and the task's own columns.

        `task` may be left out where the run has only one. Raises InputError for a task that the run doesn't have.
        """
        return self._run.scores(self._only(task))

    def rates(
        self,
        task: str | None = None,
        *,
        scale: Scale = "ratio",
        interval: Interval = "percentile",
        resamples: int = 1000,
        seed: int = 0,
        extra: Mapping[str, str] | None = None,
    ) -> pl.DataFrame:
        """Rates with 95% intervals, as `evaluator report --format csv` gives them; of all tasks unless one is named."""
        from evaluator.reports.report import build_report

        opened = self._run
        options = MeasureOptions(scale, interval, resamples, seed, opened.protocol, dict(extra or {}))
        report = build_report(opened, options, (task,) if task else ())
        _warn((*report.notes, *report.warnings))
        return report.rows

    def answers(self, model: str) -> pl.DataFrame:
        """A model's answers: request, candidate, tokens (ids), logprobs (natural log, one a token)."""
        opened = self._run
        entry = opened.record["models"].get(model)
        if entry is None:
            raise InputError(f"{self.path} has no model {model!r}: it has {', '.join(opened.models) or 'none'}")
        if "fingerprint" not in entry:
            raise InputError(f"{model} has no answers: its scores were imported; see scores()")
        return opened.answers(model)

    def candidates(self, task: str | None = None) -> pl.DataFrame:
        """A row a model × sample × template × word: its tokens and log-probability (natural log, their sum)."""
        return self._run.candidates(self._only(task))

    def failures(self) -> pl.DataFrame:
        """Every failure that still stands: model, request (empty: the whole model), reason, kind."""
        return self._run.failures()

    def _only(self, task: str | None) -> str:
        tasks = self.tasks
        if task is None and len(tasks) == 1:
            return tasks[0]
        if task is None:
            raise InputError(f"{self.path} has {len(tasks)} tasks: name one of {', '.join(tasks) or 'none'}")
        return task


def open(path: str | Path) -> Results:
    """The run in a folder. Raises InputError where there is none."""
    Run.open(Path(path))
    return Results(Path(path))


def compare(
    *runs: Results | str | Path,
    models: Sequence[str] = (),
    baseline: str | None = None,
    tasks: Sequence[str] = (),
    allow: Sequence[str] = (),
    scale: Scale = "ratio",
    interval: Interval = "percentile",
    resamples: int = 1000,
    permutations: int = 10_000,
    seed: int = 0,
) -> pl.DataFrame:
    """Differences of the runs' models from a baseline (default: the first) on the samples that both have.

    A row a measure, template, group and model, as `evaluator compare --format csv` gives them (columns
    `evaluator.comparison.differences.COMPARED`). `allow`: what the runs may differ in (protocol, templates, dtype). Raises
    InputError for runs that can't be compared, naming why.
    """
    from evaluator.comparison.build import build, chosen, sides

    opened = [Run.open(each.path if isinstance(each, Results) else Path(each)) for each in runs]
    picked = chosen(sides(opened), models, baseline)
    protocol = picked[0].run.protocol if picked else "default"
    options = MeasureOptions(scale, interval, resamples, seed, protocol)
    comparison = build(picked, options, tasks=tasks, allow=allow, permutations=permutations)
    _warn(comparison.notes)
    return comparison.rows


def run(
    tasks: str | Sequence[str],
    models: str | Sequence[str] | Mapping[str, str],
    out: str | Path | None = None,
    *,
    protocol: Protocol_ = "default",
    limit: int | None = None,
    data: str | Path | None = None,
    samples: str | Path | None = None,
    templates: str | Path | None = None,
    engine: str = "auto",
    dtype: str = "float32",
    device: str = "auto",
    chat_template: str = "none",
    batch_tokens: int | None = None,
    extra: Mapping[str, str] | None = None,
    verify: bool = True,
    strict: bool = False,
    retry: bool = False,
) -> Results:
    """Score models on tasks in this process, as `evaluator run` does; what is scored already isn't scored again.

    Args:
        tasks: a task's name or several.
        models: hub ids, folders, GGUF files; or a mapping of the names that they get in the results to them.
        out: the run's folder (default: runs/TASK…-MODEL…).
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        samples, templates: the user's own sentences and templates, with the task gest.
        others: as the options of `evaluator run`.

    Raises InputError where what is asked is wrong, and what befell the model where there is one. Of several models those that
    fail are told as warnings.
    """
    import os

    from evaluator.run.driver import execute
    from evaluator.run.spec import ModelSpec, RunSpec, default_folder
    from evaluator.tasks import chosen_tasks
    from evaluator_serving.errors import in_words

    names = (tasks,) if isinstance(tasks, str) else tuple(tasks)
    labels = dict(models) if isinstance(models, Mapping) else {}
    given = [models] if isinstance(models, str) else list(labels.values()) if labels else list(models)
    if not names or not given:
        raise InputError("run() takes a task and a model at least: evaluator.run('gest', 'gpt2')")
    options = EngineOptions(dtype=dtype, device=device, batch_tokens=batch_tokens, extra=dict(extra or {}))
    specs = tuple(
        ModelSpec(str(spec), engine, chat_template, options, label)
        for label, spec in zip(labels or [""] * len(given), given, strict=True)
    )
    chosen = chosen_tasks(names, Path(samples) if samples else None, Path(templates) if templates else None)
    folder = data or os.environ.get("EVALUATOR_DATA")
    spec = RunSpec(
        models=specs,
        tasks=chosen,
        out=Path(out) if out else default_folder([task.name for task in chosen], [each.name for each in specs]),
        protocol=protocol,
        data=DataSource(Path(folder) if folder else None),
        limit=limit,
        verify=verify,
        strict=strict,
        retry=retry,
        command=("evaluator.run", *names),
    )
    outcome = execute(spec)
    _warn(tuple(f"{name} failed: {in_words(error)}" for name, error in outcome.errors.items()))
    return Results(outcome.run.path)


def _warn(notes: Sequence[str]) -> None:
    for note in notes:
        warnings.warn(note, stacklevel=3)
