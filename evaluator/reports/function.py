"""A report of a run, for `evaluator report` and for notebooks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluator.reports.beside import sources, with_references
from evaluator.reports.report import Report, build_report
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.parameters import parse_settings
from evaluator.tasks.stored import settings_of
from evaluator.vocabulary import Interval, MeasureOptions, Scale


def report(
    run: str | Path,
    tasks: Sequence[str] = (),
    *,
    scale: Scale = "ratio",
    interval: Interval = "percentile",
    resamples: int = 1000,
    seed: int = 0,
    settings: Mapping[str, str] | None = None,
    models: Path | None = None,
    paths: bool = False,
    published: bool = False,
    beside: Sequence[str | Path] = (),
) -> Report:
    """The rates of a run's tasks with intervals, notes and layouts; of all tasks unless some are named.

    Args:
        settings: the tasks' parameters of a report, as `--set` takes them.
        models: CSV file of facts of the models, for figures over models.
        paths: show absolute paths of the machine that made the run.
        published, beside: references that are shown beside the run's models: the published ones, those of other runs.

    Raises InputError for wrong choices, and for references that aren't here.
    """
    opened = Run.open(run_folder(run))
    own = parse_settings(settings_of(opened, tasks), settings or {})
    options = MeasureOptions(scale, interval, resamples, seed, opened.protocol, own)
    references = sources(published, [run_folder(each) for each in beside], [opened.path])
    return with_references(build_report(opened, options, tuple(tasks), models, paths=paths), opened, references)
