"""`evaluator translate`: translate a data set's sentences, and make gender pairs of the translations."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import LocalPath, calls, data_option
from evaluator.cli.translators import answer_options, talking_options


@calls("evaluator.translation.sentences:translate_task")
@click.command(name="translate")
@click.argument("dataset", metavar="TASK")
@click.option("--to", "languages", multiple=True, required=True, metavar="CODE", help="Language, e.g. sk; may be repeated.")
@click.option(
    "--translator",
    required=True,
    metavar="SPEC",
    help="amazon, deepl, google, model:SPEC (e.g. NLLB), llm:SPEC (a chat model, or URL#NAME of one at a server) or "
    "folder:PATH; a local SPEC may end in ?pickle or ?trust-remote-code.",
)
@click.option("--prompted", metavar="SPEC", help="With --variants: another translator for the prompts, e.g. folder:PATH.")
@click.option("--variants", is_flag=True, help="Also translate the opposite gender's prompts and write gender_variants.csv.")
@click.option(
    "--prompt-style", type=click.Choice(["pronoun", "noun"]), default="pronoun", help="He/She said, or The man/woman."
)
@click.option("--out", type=LocalPath(path_type=Path), required=True, help="Folder for SYSTEM/LANGUAGE/translations.csv.")
@click.option("--name", metavar="SYSTEM", help="Name of the system in that folder and in results [its own name, +PROMPT].")
@answer_options("OUT/answers.jsonl")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Replicas of a local model, on Ray.")
@talking_options
@data_option
def command(**arguments: Any) -> None:
    """Translate GEST's sentences for the tasks gest-mt and gest-slavic.

    Every answer is cached on disk: an interrupted command resumes, and no answer is paid for twice.

    \b
    Examples:
      evaluator translate gest --to sk --translator model:facebook/nllb-200-3.3B --out translations --data DATA
      evaluator translate gest --to sk --translator deepl --max-cost 10 --variants --out translations
      evaluator translate gest --to sk --translator llm:utter-project/EuroLLM-9B-Instruct --dtype bfloat16 --out translations
      evaluator translate gest --to sk --translator llm:https://api.openai.com/v1#gpt-4.1 --max-cost 5 \\
          --extra prompt_price=2 --extra answer_price=8 --out translations
      evaluator run gest-mt --translations translations --data DATA
    """
    from evaluator.translation.sentences import translate_task

    for file in translate_task(**arguments, report=lambda line: click.echo(line, err=True)):
        click.echo(f"{file.path}: {file.content}")
