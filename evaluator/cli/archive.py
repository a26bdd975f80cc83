"""`evaluator archive`: a run with its rates in one file."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import RUN, LocalPath, calls, data_option, rates_options
from evaluator_serving.errors import InputError


@calls("evaluator.exports.archive:archive")
@click.command(name="archive")
@click.argument("run", type=RUN)
@click.argument("out", metavar="OUT.zip", type=LocalPath(path_type=Path, dir_okay=False))
@rates_options
@click.option("--text", is_flag=True, help="Also the sentences: they can offend, and have the licence of their data set.")
@click.option("--licence", metavar="SPDX", help="Under which the archive is given away, e.g. CC-BY-4.0.")
@data_option
def command(tasks: tuple[str, ...], **arguments: Any) -> None:
    """Write RUN and its rates into OUT.zip, an RO-Crate 1.2, for a repository or a paper's reviewers.

    It holds everything that the rates follow from, so that `evaluator verify OUT.zip` can compute them again without a model:
    the record of what was asked, the models' answers, what to cite. Sentences are left out unless --text is given.

    \b
    Examples:
      evaluator archive runs/gest gest.zip --licence CC-BY-4.0
      evaluator verify gest.zip
    """
    from evaluator.exports.archive import archive

    if tasks:
        raise InputError("--task: an archive holds all tasks of its run: leave it out")
    made = archive(**arguments)
    click.echo(f"{made}: {made.stat().st_size / 1e6:.1f} MB")
