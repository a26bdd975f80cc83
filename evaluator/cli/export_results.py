"""`evaluator export-results`: a run's results for other programs."""

from pathlib import Path
from typing import Any, get_args

import click

from evaluator.cli.options import RUN, LocalPath, calls, data_option, rates_options
from evaluator.exports.every_eval_ever import Relationship
from evaluator.exports.write import Format, export_results


@calls("evaluator.exports.write:export_results")
@click.command(name="export-results")
@click.argument("run", type=RUN)
@click.option("--format", type=click.Choice(get_args(Format)), required=True, help="Format of the files.")
@click.option("--out", type=LocalPath(path_type=Path, file_okay=False), required=True, metavar="DIR", help="Output folder.")
@rates_options
@click.option("--instances", is_flag=True, help="every-eval-ever: also write a record for each sample's score.")
@click.option(
    "--text",
    is_flag=True,
    help="Include the sentences. They can offend, and the data set's licence may not allow redistribution.",
)
@click.option(
    "--organization", default="unknown", metavar="NAME", help="every-eval-ever: organization that reports the results."
)
@click.option(
    "--relationship",
    type=click.Choice(get_args(Relationship)),
    default="other",
    show_default=True,
    help="every-eval-ever: its relationship to the models' developers.",
)
@click.option("--url", help="hugging-face: URL where the results can be viewed.")
@data_option
def command(**arguments: Any) -> None:
    """Write a run's results for other programs.

    every-eval-ever: a JSON document for each model and task (schema 0.3.0) below DIR/data. hugging-face: for each model
    .eval_results/TASK.yaml and model-card.md, for its repository. lm-eval: results as lm-evaluation-harness writes them.

    \b
    Examples:
      evaluator export-results runs/gest --format every-eval-ever --out export --organization "A lab"
      evaluator export-results runs/gest --format hugging-face --out export
      evaluator export-results runs/gest --format lm-eval --out export
    """
    files = export_results(**arguments)
    click.echo(f"{len(files)} files in {arguments['out']}")
