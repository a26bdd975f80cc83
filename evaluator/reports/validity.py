"""Do a run's GEST rates agree with WinoBias, and with what models say in words? For `evaluator validity` and for notebooks."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from evaluator.measures import validity
from evaluator.reports.page import check_libraries
from evaluator.reports.report import check_scale
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks import tasks_that
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import MeasureOptions, Scale, tidy
from evaluator_serving.errors import InputError


@dataclass(frozen=True, slots=True)
class Validity:
    """Correlations of GEST's rates.

    Attributes:
        rows: with WinoBias's over models (see `evaluator.measures.validity.correlations`), then with what each model says in
            words, over the stereotypes (`within`), as far as the run has them.
        written: a line for each place that figures were written to.
    """

    rows: pl.DataFrame
    written: tuple[str, ...] = ()


def check_validity(
    run: str | Path,
    gest: str | None = None,
    *,
    scale: Scale = "ratio",
    plot: Path | None = None,
    figures: Path | None = None,
    report: Callable[[str], None] = print,
) -> Validity:
    """Correlate GEST's rates with WinoBias's over the models of a run; the rows over models are kept in RUN/tables.

    Args:
        gest: the GEST task to check (default: the run's only one).
        plot: file of a scatter plot (default: RUN/tables/validity.svg).
        figures: folder that each figure is also written into.
        report: called with a line where nothing can be written into the run.

    Raises InputError where the run lacks tasks, or no model has scores of both.
    """
    if plot or figures:
        check_libraries("--plot" if plot else "--figures")
    opened = Run.open(run_folder(run))
    name = gest or _task_with(opened, validity.CHECKED, "--gest")
    options = MeasureOptions(scale=scale, protocol=opened.protocol)
    words = _beside_words(opened, name, options)
    if words is not None and not _tasks_with(opened, validity.CHECK):
        if plot or figures:
            option = "--plot" if plot else "--figures"
            raise InputError(f"{option} shows {name} against WinoBias, which {opened.shown} doesn't have: remove it")
        if words.is_empty():
            spoken = ", ".join(_tasks_with(opened, validity.SPOKEN))
            raise InputError(f"{opened.shown}: no model has both {name} and {spoken} scores: score both tasks on each model")
        return Validity(words)
    check = _task_with(opened, validity.CHECK)
    points = validity.points(_measured(opened, name, options), _measured(opened, check, options))
    if points.is_empty():
        raise InputError(f"{opened.shown}: no model has both {name} and {check} scores: score both tasks on each model")
    if "g_s" not in points["group"]:
        raise InputError(
            f"{opened.shown}: no model has a g_s of {name} beside a ĝ_s of {check}: "
            "it needs samples of groups of both polarities"
        )
    rows = validity.correlations(points, scale).with_columns(protocol=pl.lit(opened.protocol))
    plot_path = _keep(opened, rows, report)
    written = _draw(points, rows, (name, check), plot or plot_path, figures)
    return Validity(rows if words is None else pl.concat([rows, words]), tuple(written))


def _measured(run: Run, name: str, options: MeasureOptions) -> pl.DataFrame:
    """A task's tidy rows over all models of a run. Raises InputError where they can't be on the scale."""
    task = task_of(run, name)
    check_scale(task, options.scale)
    return tidy(task.measure(scores_of(run, name), options))


def _task_with(run: Run, measures: Collection[str], option: str = "") -> str:
    """The run's task that gives these measures. Raises InputError unless it has exactly one; `option` says which is meant."""
    found = _tasks_with(run, measures)
    if len(found) != 1:
        known = tasks_that(lambda each: set(measures) <= set(each.measures))
        remedy = f"choose one with {option}" if found and option else f"add one of {known} with `evaluator run TASK … --out`"
        raise InputError(
            f"{run.shown} has {len(found)} tasks that give {' and '.join(measures)} ({', '.join(found) or 'none'}): {remedy}"
        )
    return found[0]


def _tasks_with(run: Run, measures: Collection[str]) -> list[str]:
    """The run's tasks that give these measures."""
    return [name for name in run.tasks if set(measures) <= set(task_of(run, name).measures)]


def _draw(
    points: pl.DataFrame, rows: pl.DataFrame, tasks: tuple[str, str], plot: Path | None, folder: Path | None
) -> list[str]:
    """Write the figures; returns a line for each place."""
    if not plot and not folder:
        return []
    from evaluator.reports.export import write_figures, write_picture
    from evaluator.reports.figures.across import validity_figures

    figures = list(validity_figures(points, rows, *tasks))
    made = []
    if plot:
        write_picture(figures, plot)
        made.append(f"plot: {plot}")
    if folder:
        made.append(f"figures: {len(write_figures(figures, folder))} files in {folder}")
    return made


def _beside_words(run: Run, gest: str, options: MeasureOptions) -> pl.DataFrame | None:
    """q beside what models said when they were asked in words, and the rank correlations; None where none was."""
    spoken = _tasks_with(run, validity.SPOKEN)
    if not spoken:
        return None
    q = _measured(run, gest, options)
    made = [validity.within(q, _measured(run, name, options), options.scale) for name in spoken]
    return pl.concat(made).with_columns(
        protocol=pl.lit(run.protocol),
        condition=pl.col("model").replace_strict(run.conditions, default=None, return_dtype=pl.String),
    )


def _keep(run: Run, rows: pl.DataFrame, report: Callable[[str], None]) -> Path | None:
    """Keep the rows in RUN/tables; the place of a plot beside them, or None where nothing can be written there."""
    try:
        svg = run.write_table("validity", rows).with_suffix(".svg")
    except OSError as error:  # someone else's run or a read-only disk: what was asked for is printed all the same
        report(f"not kept in {run.path / 'tables'}: {error.strerror}")
        return None
    return svg if _drawable() else None


def _drawable() -> bool:
    """Whether what draws is installed: without it the picture that wasn't asked for isn't made."""
    try:
        check_libraries("")
    except InputError:
        return False
    return True
