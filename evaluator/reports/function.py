"""A report of a run, for `evaluator report` and for notebooks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from evaluator.reports.beside import sources, with_references
from evaluator.reports.report import Report, build_report
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.parameters import parse_settings
from evaluator.tasks.stored import settings_of
from evaluator.vocabulary import MeasureOptions, RateChoices


def report(
    run: str | Path,
    tasks: Sequence[str] = (),
    *,
    settings: Mapping[str, str] | None = None,
    models: Path | None = None,
    paths: bool = False,
    published: bool = False,
    beside: Sequence[str | Path] = (),
    **choices: Unpack[RateChoices],
) -> Report:
    """The rates of a run's tasks with intervals, notes and layouts; of all tasks unless some are named.

    Args:
        settings: the tasks' parameters of a report, as `--set` takes them.
        models: CSV file of facts of the models, for figures over models.
        paths: show absolute paths of the machine that made the run.
        published, beside: references that are shown beside the run's models: the published ones, those of other runs.
        choices: see `evaluator.vocabulary.RateChoices`.

    Raises InputError for wrong choices, and for references that aren't here.
    """
    opened = Run.open(run_folder(run))
    options = options_of(opened, tasks, settings, **choices)
    references = sources(published, [run_folder(each) for each in beside], [opened.path])
    return with_references(build_report(opened, options, tuple(tasks), models, paths=paths), opened, references)


def options_of(
    run: Run, tasks: Sequence[str] = (), settings: Mapping[str, str] | None = None, **choices: Unpack[RateChoices]
) -> MeasureOptions:
    """The options of a report on a run's tasks (default: all). Raises InputError for unknown tasks and wrong settings."""
    return MeasureOptions(**choices, protocol=run.protocol, settings=parse_settings(settings_of(run, tasks), settings or {}))
