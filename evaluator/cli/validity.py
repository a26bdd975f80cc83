"""`evaluator validity`: do a run's GEST rates agree with WinoBias over its models?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import click
import polars as pl

from evaluator.cli.options import RUN, LocalPath, calls, figures_option
from evaluator.measures import validity
from evaluator.reports.blocks import correlation
from evaluator.reports.validity import check_validity
from evaluator.vocabulary import Scale


@calls("evaluator.reports.validity:check_validity")
@click.command(name="validity")
@click.argument("run", type=RUN)
@click.option("--gest", help="The GEST task to check (default: the run's only one).")
@click.option("--scale", type=click.Choice(get_args(Scale)), default="ratio", show_default=True, help="Units of the rates.")
@click.option(
    "--plot",
    type=LocalPath(path_type=Path, dir_okay=False),
    help="Write a scatter plot of g_s against ĝ_s to this file (.svg, .png or .pdf; default RUN/tables/validity.svg).",
)
@figures_option
@click.option("--format", "format_", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
def command(format_: str, **arguments: Any) -> None:
    """Correlate GEST's rates with WinoBias's ĝ_s over the models of a run (Pearson and Spearman, 95% intervals).

    For models that were also scored on gest-who, GEST's q is correlated with gest-who's lean over the stereotypes.

    \b
    Examples:
      evaluator run gest gest-who --model some/chat-model --out runs/words; evaluator validity runs/words
      evaluator run gest winobias --model bert-base-uncased --model roberta-base … --out runs/check
      evaluator validity runs/check --plot validity.svg
    """
    found = check_validity(**arguments, report=lambda line: click.echo(line, err=True))
    _print(found.rows, format_)
    for line in found.written:
        click.echo(line, err=True)


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
            title = "GEST's q against gest-who's lean, over the stereotypes"
            places = {"model": "model", "language": "language", "template": "template", "measure": "measure"}
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
