"""`evaluator import gest-predictions`."""

from pathlib import Path

import click

from evaluator.cli.options import RUN, LocalPath, calls, data_option
from evaluator.vocabulary import DataSource


@calls("evaluator.imports.gest_predictions:import_predictions")
@click.command(name="gest-predictions")
@click.argument("paths", nargs=-1, required=True, type=LocalPath(path_type=Path), metavar="PATH…")
@click.option("--kind", type=click.Choice(["mlm", "glm"]), required=True, help="Masked or generative models.")
@click.option("--out", type=RUN, required=True, help="The run's folder; an existing run is extended.")
@data_option
def command(paths: tuple[Path, ...], kind: str, out: Path, data: Path | None) -> None:
    """Import GEST's prediction files: MODEL_template-K.txt with one log10 score per line, or folders of them.

    For mlm, K = 0…3 are templates 1…4; for glm, K = 0, 1 are templates 3 and 4.

    \b
    Example:
      evaluator import gest-predictions --kind glm gpt2_template-0.txt gpt2_template-1.txt --out runs/published
    """
    from evaluator.imports.gest_predictions import import_predictions

    run = import_predictions(paths, "mlm" if kind == "mlm" else "glm", DataSource(data), out)
    click.echo(f"imported into {run.shown}, which now has {len(run.models)} models: evaluator report {run.shown}", err=True)
