"""`evaluator archive`: a run with its rates in one file."""

import functools
from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import RUN, LocalPath, calls, data_option, rates_options


@calls("evaluator.exports.archive:archive")
@click.command(name="archive")
@click.argument("run", type=RUN)
@click.option("--out", type=LocalPath(path_type=Path, dir_okay=False), required=True, metavar="ZIP", help="Output file.")
@functools.partial(rates_options, tasks=False)
@click.option("--text", is_flag=True, help="Include the sentences. They can offend and are under their data set's licence.")
@click.option("--licence", metavar="SPDX", help="Licence of the archive, e.g. CC-BY-4.0.")
@data_option
def command(**arguments: Any) -> None:
    """Write RUN and its rates into a zip file, an RO-Crate 1.2, for a repository or a paper's reviewers.

    It contains everything that the rates follow from: the run's record, the models' answers and citations. `evaluator verify
    ZIP` recomputes the rates from it without a model. Sentences are excluded unless --text is given.

    \b
    Examples:
      evaluator archive runs/gest --out gest.zip --licence CC-BY-4.0
      evaluator verify gest.zip
    """
    from evaluator.exports.archive import archive

    made = archive(**arguments)
    click.echo(f"{made}: {made.stat().st_size / 1e6:.1f} MB")
