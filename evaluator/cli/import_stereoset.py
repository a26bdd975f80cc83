"""`evaluator import stereoset-predictions`."""

from pathlib import Path

import click

from evaluator.cli.options import RUN, LocalPath, calls, data_option
from evaluator.vocabulary import DataSource


@calls("evaluator.imports.stereoset_predictions:import_predictions")
@click.command(name="stereoset-predictions")
@click.argument("paths", nargs=-1, required=True, type=LocalPath(path_type=Path), metavar="PATH…")
@click.option("--language", required=True, metavar="L", help="Two-letter code: en, de, fr, es, tr or another one.")
@click.option("--out", type=RUN, required=True, help="The run's folder; an existing run is extended.")
@data_option
def command(paths: tuple[Path, ...], language: str, out: Path, data: Path | None) -> None:
    """Import public prediction files as a run: {"intrasentence": [{"id", "score"}, …], "intersentence": […]}.

    Every file becomes a model with the file's name, without its suffix and language. Examples that lack a score are named
    on stderr and in the run's failures; the rest is imported.

    \b
    Example:
      evaluator import stereoset-predictions --language en DATA/stereoset/predictions/*_en.json --out runs/published
      evaluator report runs/published
    """
    from evaluator.imports.stereoset_predictions import import_predictions

    run, notes = import_predictions(paths, language, DataSource(data), out)
    for note in notes:
        click.echo(f"skipped: {note}", err=True)
    click.echo(f"{len(paths)} models in {run.shown}, {len(notes)} examples skipped")
