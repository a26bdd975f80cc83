"""`evaluator validity`: do a run's GEST rates agree with WinoBias over its models?"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import polars as pl

from evaluator.cli.options import RUN
from evaluator.measures import validity
from evaluator.store.run import Run
from evaluator.tasks import tasks_that
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import MeasureOptions, Scale, tidy
from evaluator_serving.errors import InputError


def measured(run: Run, name: str, options: MeasureOptions) -> pl.DataFrame:
    """A task's tidy rows over all models of a run."""
    return tidy(task_of(run, name).measure(scores_of(run, name), options))


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


def scatter(points: pl.DataFrame, rows: pl.DataFrame, path: Path) -> None:
    """Draw g_s against ĝ_s, a panel a split, with both intervals. The file's suffix chooses the format (svg, png, pdf).

    Raises InputError without matplotlib or for an unknown suffix.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("--plot needs matplotlib: pip install 'stereotype-evaluator[report]'") from None
    shown = points.filter(pl.col("group") == "g_s")
    splits = shown["template"].unique(maintain_order=True).to_list()
    figure = Figure(figsize=(4.2 * len(splits), 4.2), layout="constrained")
    for axes, split in zip(figure.subplots(1, len(splits), squeeze=False)[0], splits, strict=True):
        part = shown.filter(pl.col("template") == split)
        errors = [
            [side.fill_null(0).clip(0).to_list() for side in (part[v] - part[f"{v}_low"], part[f"{v}_high"] - part[v])]
            for v in ("x", "y")
        ]
        axes.errorbar(part["x"], part["y"], xerr=errors[0], yerr=errors[1], fmt="o", elinewidth=0.7, markersize=4)
        for model, x, y in part.select("model", "x", "y").iter_rows():
            axes.annotate(model.rsplit("/", 1)[-1], (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7)
        r = rows.filter((pl.col("template") == split) & (pl.col("group") == "g_s") & (pl.col("measure") == "pearson"))
        axes.set_title(f"WinoBias {split}: Pearson {_shown(r.row(0, named=True))}", fontsize=9)
        axes.set_xlabel(f"GEST g_s ({r['scale'][0]} scale)")
        axes.set_ylabel("WinoBias ĝ_s")
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise InputError(f"--plot {path}: {error}") from None


def _shown(row: dict[str, Any]) -> str:
    if row["value"] is None:
        return f"undefined (n = {row['n']})"
    interval = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['value']:.2f}{interval} (n = {row['n']})"


@click.command(name="validity")
@click.argument("run", type=RUN)
@click.option("--gest", "checked", help="The GEST task to check (default: the run's only one).")
@click.option("--scale", type=click.Choice(get_args(Scale)), default="ratio", show_default=True, help="Units of the rates.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a scatter plot of g_s against ĝ_s here (.svg, .png or .pdf; default RUN/tables/validity.svg).",
)
@click.option("--format", "format_", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
def command(run: Path, checked: str | None, scale: Scale, plot: Path | None, format_: str) -> None:
    """Correlate GEST's rates with WinoBias's ĝ_s over the models of a run (Pearson and Spearman, 95% intervals).

    Of models that were also asked in words who said GEST's sentences, q is put beside what they said, by stereotype.

    \b
    Examples:
      evaluator run gest gest-who --model some/chat-model --out runs/words; evaluator validity runs/words
      evaluator run gest winobias --model bert-base-uncased --model roberta-base … --out runs/check
      evaluator validity runs/check --plot validity.svg
    """
    opened = Run.open(run)
    name = checked or task_with(opened, validity.CHECKED, "--gest")
    options = MeasureOptions(scale=scale, protocol=opened.protocol)
    words = _beside_words(opened, name, options)
    if words is not None and not tasks_with(opened, validity.CHECK):
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
    target = plot or kept
    if target:
        scatter(points, rows, target)
    _print(rows if words is None else pl.concat([rows, words]), format_)
    if target:
        click.echo(f"plot: {target}", err=True)


def _beside_words(run: Run, gest: str, options: MeasureOptions) -> pl.DataFrame | None:
    """q beside what models said when they were asked in words, and the rank correlations; None where none was."""
    spoken = tasks_with(run, validity.SPOKEN)
    if not spoken:
        return None
    q = measured(run, gest, options)
    made = [validity.within(q, measured(run, name, options), options.scale) for name in spoken]
    return pl.concat(made).with_columns(protocol=pl.lit(run.protocol))


def _keep(run: Run, rows: pl.DataFrame) -> Path | None:
    """Keep the rows in RUN/tables; the place of a plot beside them, or None where nothing can be written there."""
    try:
        return run.write_table("validity", rows).with_suffix(".svg")
    except OSError as error:  # someone else's run or a read-only disk: what was asked for is printed all the same
        click.echo(f"not kept in {run.path / 'tables'}: {error.strerror}", err=True)
        return None


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
            _table(title, ("split", "GEST rate", "measure"), "models", ("template", "group", "measure"), over_models)
        words = rows.filter(of_words & (pl.col("measure") == "spearman"))
        if words.height:
            title = "GEST's q beside what models say in words, over the stereotypes"
            _table(title, ("model", "asked by", "measure"), "stereotypes", ("model", "template", "measure"), words)


def _table(title: str, heads: Sequence[str], counted: str, columns: Sequence[str], rows: pl.DataFrame) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head)
    table.add_column(f"value [95%] ({counted})", justify="right")
    for row in rows.iter_rows(named=True):
        table.add_row(*(row[column] for column in columns), _shown(row))
    Console().print(table)
