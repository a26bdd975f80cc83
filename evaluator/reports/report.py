"""A report: the rows of a run's tasks with everything that is needed to read them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.measures.intervals import BOOTSTRAPS
from evaluator.reports.cache import Measured, cached
from evaluator.reports.facts import ModelFacts, model_facts
from evaluator.reports.local_paths import named_only, without_folders
from evaluator.reports.notes import RunNotes, collect_notes, grouped
from evaluator.store.run import Run
from evaluator.tasks.base import Task
from evaluator.tasks.few import few_by_group
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import SCALES, TIDY, Layout, MeasureOptions, Scale, plain_layout, tidy
from evaluator_serving.errors import InputError


@dataclass(frozen=True, slots=True)
class Reference:
    """What stands beside a task's models (see `evaluator.reports.beside`).

    Attributes:
        own: model → how it was asked, of those that are compared with references.
        rows: the references' rows (columns TIDY) with `source`, the run that they are from, and `way`, how they were asked;
            None where none was asked as one of the models was.
    """

    own: Mapping[str, str]
    rows: pl.DataFrame | None


@dataclass(frozen=True, slots=True)
class Section:
    """One task: its rows (columns TIDY), how to show them, what to beware of, what it measures, facts of the models by name,
    and references that stand beside them.

    Of the rows' numbers what isn't finite becomes null here, for all formats: a null value is shown as not defined.
    """

    task: str
    rows: pl.DataFrame
    layout: Layout
    warnings: tuple[str, ...]
    about: str = ""
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    reference: Reference | None = None

    def __post_init__(self) -> None:
        """Make the rows tidy."""
        object.__setattr__(self, "rows", tidy(self.rows))

    @property
    def scaled(self) -> bool:
        """Whether any of its values have a scale."""
        return self.rows["scale"].is_not_null().any()


@dataclass(frozen=True, slots=True)
class Report:
    """What the renderers get.

    Attributes:
        path: the run's folder.
        record: run.json.
        options: the choices made for this report.
        sections: one section per task.
        failures: columns FAILURES (see `evaluator.store.run`), of the whole run.
    """

    path: Path
    record: Mapping[str, Any]
    options: MeasureOptions
    sections: tuple[Section, ...]
    failures: pl.DataFrame

    @property
    def rows(self) -> pl.DataFrame:
        """The rows of all sections."""
        return pl.concat([pl.DataFrame(schema=TIDY), *(section.rows for section in self.sections)])

    @property
    def listed(self) -> pl.DataFrame:
        """The rows of all sections and of their references: a column `source` names a reference's run and is null for own rows.

        Without references the column is absent.
        """
        found = [each.reference.rows for each in self.sections if each.reference and each.reference.rows is not None]
        if not any(section.reference for section in self.sections):
            return self.rows
        own = self.rows.with_columns(source=pl.lit(None, pl.String))
        return pl.concat([own, *(rows.select(own.columns) for rows in found)])

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all sections, each with its task's name in front."""
        return tuple(f"{section.task}: {text}" for section in self.sections for text in section.warnings)

    @property
    def noted(self) -> RunNotes:
        """What every reader must know of the run's models and of the tasks that are shown."""
        shown = {section.task for section in self.sections}
        tasks = {name: entry for name, entry in self.record["tasks"].items() if name in shown}
        settings = (f"{name}: {chosen}." for name, chosen in self.options.settings.items() if name in shown and str(chosen))
        found = collect_notes({**self.record, "tasks": tasks})
        return RunNotes((*settings, *found.main), found.details)

    @property
    def notes(self) -> tuple[str, ...]:
        """The same, a line each: of details that are many of a kind their number and the first."""
        return self.noted.lines

    @property
    def choices(self) -> tuple[str, ...]:
        """Scale, interval and protocol in words, one per line."""
        options = self.options
        interval = f"interval: 95%, {BOOTSTRAPS[options.interval]}, {options.resamples:,} resamples, seed {options.seed}"
        if not set(self.rows["interval"].drop_nulls()) <= set(BOOTSTRAPS.values()):
            interval += "; tables name any other kind"
        lines = [interval, f"protocol: {options.protocol}"]
        if any(section.scaled for section in self.sections):
            lines.insert(0, f"scale: {options.scale} ({SCALES[options.scale]})")
        return tuple(lines)


def build_report(
    run: Run, options: MeasureOptions, tasks: Sequence[str] = (), models: Path | None = None, *, paths: bool = False
) -> Report:
    """Measure the tasks of a run (all of them if none are named); `models` is a table of facts of its models.

    Of absolute paths in the run's record and failures the report has the last parts only, unless `paths`.

    Raises InputError for a task that it doesn't have, or a wrong table.
    """
    run = run.snapshot()
    facts = model_facts(run.record["models"], models)
    sections = tuple(replace(measured(run, name, options), models=facts) for name in tasks or run.tasks)
    record, failures = run.record, run.failures()
    if not paths:
        record = named_only(record)
        failures = failures.with_columns(pl.col("reason").map_elements(without_folders, return_dtype=pl.String))
    return Report(run.path, record, options, sections, failures)


def check_scale(task: Task, scale: Scale) -> None:
    """Raise InputError where a task's rates can't be on this scale."""
    if scale not in task.scales:
        known = ", ".join(each for each in SCALES if each in task.scales)
        raise InputError(f"task {task.name} has no scale {scale}: choose {known}, or name other tasks with --task")


def measured(run: Run, name: str, options: MeasureOptions) -> Section:
    """One task's section; its rows and warnings are kept in RUN/tables until what they are made of changes."""
    run = run.snapshot()
    task = task_of(run, name)
    check_scale(task, options.scale)

    def compute() -> Measured:
        scores = scores_of(run, name)
        rows = tidy(task.measure(scores, options)).with_columns(
            protocol=pl.lit(run.protocol),
            condition=pl.col("model").replace_strict(run.conditions, default=None, return_dtype=pl.String),
        )
        warnings = task.warnings(scores, options)
        return Measured(rows, grouped([*_unanswered(run, name, scores), *warnings]))

    found = cached(run, task, options, compute)
    layout = task.layout(options) or plain_layout(found.rows)
    return Section(name, found.rows, layout, (*found.warnings, *few_by_group(found.rows, layout)), task.about)


def _unanswered(run: Run, name: str, scores: pl.DataFrame) -> Iterator[str]:
    """What the models of a run have no answer to yet."""
    silent = set(run.asked(name)) - set(scores["model"].unique())
    whole = run.failures().filter(pl.col("request") == "", pl.col("kind") == "unaskable")
    hopeless = dict(whole.select("model", "reason").iter_rows())
    for model in sorted(silent):
        yield f"{model} has no answers{f': {hopeless[model]}' if model in hopeless else ' yet: run the same command again'}"
    for model, (left, total) in run.unanswered(name).items():
        if model not in silent:
            message = f"{left:,} of {total:,} requests have no answer yet and the rates omit them: run the same command again"
            yield f"{model}: {message}"
