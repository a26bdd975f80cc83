"""`evaluator translate-dataset`: a data set in a new language."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import LocalPath, calls, data_option
from evaluator.cli.translators import answer_options, talking_options
from evaluator.translate import TRANSLATED


@calls("evaluator.translation.dataset:translate_dataset")
@click.command(name="translate-dataset")
@click.argument("dataset", type=click.Choice(TRANSLATED))
@click.option("--to", "language", required=True, metavar="LANG", help="Two-letter code of the language.")
@click.option(
    "--translator",
    required=True,
    metavar="T",
    help="amazon, deepl, google, model:SPEC, llm:SPEC (a chat model, or URL#NAME) or folder:PATH (LANG/translations.csv).",
)
@click.option("--out", type=LocalPath(path_type=Path, file_okay=False), required=True, help="Output data folder.")
@answer_options("in the user's cache")
@click.option("--repairs", type=LocalPath(path_type=Path, exists=True), help="A corrected list of failures.")
@talking_options
@data_option
def command(**arguments: Any) -> None:
    """Translate StereoSet's English file, protecting BLANK and checking that it and the final punctuation survived.

    Writes OUT/stereoset/dev_LANG.json, and what failed to OUT/stereoset/dev_LANG.failures.csv: correct the column `translation`
    there and give the file as --repairs. Every answer is cached: running the command again repeats no request.

    \b
    Example:
      evaluator translate-dataset stereoset --to sk --translator deepl --max-cost 15 --out mydata
      evaluator run stereoset-sk --data mydata --model bert-base-multilingual-cased --out runs/sk
    """
    from evaluator.translation.dataset import translate_dataset

    made = translate_dataset(**arguments, report=lambda line: click.echo(line, err=True))
    for name, reason in made.skipped:
        click.echo(f"skipped: example {name} of the English file: {reason}", err=True)
    click.echo(f"{made.path}: {made.file.examples} examples{made.outcomes}")
    if made.file.failures:
        click.echo(
            f"{made.listed}: {len(made.file.failures)} translations to correct: correct them there and give the "
            "file with --repairs"
        )
