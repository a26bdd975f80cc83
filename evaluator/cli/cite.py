"""`evaluator cite`: BibTeX of what a run was made with."""

from pathlib import Path

import click

from evaluator.cli.options import RUN, calls
from evaluator.cli.output import write


@calls("evaluator.exports.citation:cite")
@click.command(name="cite")
@click.argument("run", type=RUN)
def command(run: Path) -> None:
    """Print BibTeX of the program, of each data set and of each method that RUN used, with their versions.

    \b
    Example:
      evaluator cite runs/gest > citations.bib
    """
    from evaluator.exports.citation import cite

    write(cite(run))
