"""`evaluator leaderboard`: the models of many runs on one page."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import RUN, LocalPath, calls, rates_options


@calls("evaluator.ranking.write:leaderboard")
@click.command(name="leaderboard")
@click.argument("runs", nargs=-1, metavar="RUN…", type=RUN)
@click.option("--out", type=LocalPath(path_type=Path, file_okay=False), required=True, metavar="DIR", help="Output folder.")
@rates_options
@click.option(
    "--models",
    type=LocalPath(path_type=Path, dir_okay=False),
    metavar="CSV",
    help="Facts of the models to filter by (as for `evaluator report`): parameters, family, tuned, release.",
)
@click.option("--published", is_flag=True, help="Include the published models (see `evaluator data fetch published`).")
def command(runs: tuple[Path, ...], out: Path, **arguments: Any) -> None:
    """Write DIR/leaderboard.html and DIR/leaderboard.csv: one row per model, main numbers with intervals and ranks.

    A rank comes with the central 95% of the ranks over bootstrap resamples, and with how often the next lower model is not
    lower. Models are ranked among those with the same settings. The page sorts and filters by size, family, language
    and date without a server.

    \b
    Examples:
      evaluator leaderboard runs/gest runs/more --out board
      evaluator leaderboard runs/gest --published --models models.csv --out board
    """
    from evaluator.ranking.write import PAGE, leaderboard

    table = leaderboard(*runs, out=out, **arguments)
    click.echo(f"{table.height} models: {out / PAGE}", err=True)
