"""`evaluator validity`: do a run's GEST rates agree with WinoBias over its models?"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import get_args

import click
import polars as pl

from evaluator.cli.options import RUN, LocalPath
from evaluator.measures import validity
from evaluator.reports.blocks import correlation
from evaluator.reports.page import check_libraries
from evaluator.reports.report import check_scale
from evaluator.store.run import Run
from evaluator.tasks import tasks_that
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import MeasureOptions, Scale, tidy
from evaluator_serving.errors import InputError


def measured(run: Run, name: str, options: MeasureOptions) -> pl.DataFrame:
    """A task's tidy rows over all models of a run. Raises InputError where they can't be on the scale."""
    task = task_of(run, name)
    check_scale(task, options.scale)
    return tidy(task.measure(scores_of(run, name), options))


def task_with(run: Run, measures: Collection[str], option: str = "") -> str:
    """The run's task that gives these measures. Raises InputError unless it has exactly one; `option` says which is meant."""
    found = tasks_with(run, measures)
    if len(found) != 1:
        known = tasks_that(lambda each: set(measures) <= set(each.measures))
        remedy = f"choose one with {option}" if found and option else f"add one of {known} with `evaluator run TASK … --out`"
        raise InputError(
            f"{run.shown} has {len(found)} tasks that give {' and '.join(measures)} ({', '.join(found) or 'none'}): {remedy}"
        )
    return found[0]


def tasks_with(run: Run, measures: Collection[str]) -> list[str]:
    """The run's tasks that give these measures."""
    return [name for name in run.tasks if set(measures) <= set(task_of(run, name).measures)]


@click.command(name="validity")
@click.argument("run", type=RUN)
@click.option("--gest", "checked", help="The GEST task to check (default: the run's only one).")
@click.option("--scale", type=click.Choice(get_args(Scale)), default="ratio", show_default=True, help="Units of the rates.")
@click.option(
    "--plot",
    type=LocalPath(path_type=Path, dir_okay=False),
    help="Write a scatter plot of g_s against ĝ_s here (.svg, .png or .pdf; default RUN/tables/validity.svg).",
)
@click.option(
    "--figures",
    type=LocalPath(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write each figure there as SVG, PNG, CSV.",
)
@click.option("--format", "format_", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
def command(run: Path, checked: str | None, scale: Scale, plot: Path | None, figures: Path | None, format_: str) -> None:
    """Correlate GEST's rates with WinoBias's ĝ_s over the models of a run (Pearson and Spearman, 95% intervals).

    Of models that were also asked in words who said GEST's sentences, q is put beside what they said, by stereotype.

    \b
    Examples:
      evaluator run gest gest-who --model some/chat-model --out runs/words; evaluator validity runs/words
      evaluator run gest winobias --model bert-base-uncased --model roberta-base … --out runs/check
      evaluator validity runs/check --plot validity.svg
    """
    if plot or figures:
        check_libraries("--plot" if plot else "--figures")
    opened = Run.open(run)
    name = checked or task_with(opened, validity.CHECKED, "--gest")
    options = MeasureOptions(scale=scale, protocol=opened.protocol)
    words = _beside_words(opened, name, options)
    if words is not None and not tasks_with(opened, validity.CHECK):
        if plot or figures:
            option = "--plot" if plot else "--figures"
            raise InputError(f"{option} shows {name} against WinoBias, which {opened.shown} doesn't have: leave it out")
        if words.is_empty():
            spoken = ", ".join(tasks_with(opened, validity.SPOKEN))
            raise InputError(f"{opened.shown}: no model has both {name} and {spoken} scores: score both tasks on each model")
        _print(words, format_)
        return
    check = task_with(opened, validity.CHECK)
    points = validity.points(measured(opened, name, options), measured(opened, check, options))
    if points.is_empty():
        raise InputError(f"{opened.shown}: no model has both {name} and {check} scores: score both tasks on each model")
    if "g_s" not in points["group"]:
        raise InputError(
            f"{opened.shown}: no model has a g_s of {name} beside a ĝ_s of {check}: "
            "it needs samples of groups of both polarities"
        )
    rows = validity.correlations(points, scale).with_columns(protocol=pl.lit(opened.protocol))
    kept = _keep(opened, rows)
    written = _draw(points, rows, (name, check), plot or kept, figures)
    _print(rows if words is None else pl.concat([rows, words]), format_)
    for line in written:
        click.echo(line, err=True)


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
    spoken = tasks_with(run, validity.SPOKEN)
    if not spoken:
        return None
    q = measured(run, gest, options)
    made = [validity.within(q, measured(run, name, options), options.scale) for name in spoken]
    return pl.concat(made).with_columns(
        protocol=pl.lit(run.protocol),
        condition=pl.col("model").replace_strict(run.conditions, default=None, return_dtype=pl.String),
    )


def _keep(run: Run, rows: pl.DataFrame) -> Path | None:
    """Keep the rows in RUN/tables; the place of a plot beside them, or None where nothing can be written there."""
    try:
        kept = run.write_table("validity", rows).with_suffix(".svg")
    except OSError as error:  # someone else's run or a read-only disk: what was asked for is printed all the same
        click.echo(f"not kept in {run.path / 'tables'}: {error.strerror}", err=True)
        return None
    return kept if _drawable() else None


def _drawable() -> bool:
    """Whether what draws is installed: without it the picture that wasn't asked for isn't made."""
    try:
        check_libraries("")
    except InputError:
        return False
    return True


def _print(rows: pl.DataFrame, format_: str) -> None:
    if format_ == "csv":
        click.echo(rows.write_csv(), nl=False)
    elif format_ == "json":
        click.echo(rows.write_json())
    else:
        of_words = pl.col("model") != validity.OVERALL
        over_models = rows.filter(~of_words)
        if over_models.height:
            title = f"GEST against WinoBias ĝ_s over models, {over_models['scale'][0]} scale"
            places = {"language": "language", "template": "split", "group": "GEST rate", "measure": "measure"}
            _table(title, places, "models", over_models)
        words = rows.filter(of_words & (pl.col("measure") == "spearman"))
        if words.height:
            title = "GEST's q beside what models say in words, over the stereotypes"
            places = {"model": "model", "language": "language", "template": "asked by", "measure": "measure"}
            _table(title, places, "stereotypes", words)


def _table(title: str, places: Mapping[str, str], counted: str, rows: pl.DataFrame) -> None:
    """The rows with these columns and their headings; the language only where there are several."""
    from rich.console import Console
    from rich.table import Table

    columns = [column for column in places if column != "language" or rows[column].n_unique() > 1]
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(places[column])
    table.add_column(f"value [95%] ({counted})", justify="right")
    for row in rows.iter_rows(named=True):
        table.add_row(*(row[column] for column in columns), correlation(row))
    Console().print(table)
