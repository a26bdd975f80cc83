"""`evaluator gender`: the grammatical gender of the first person, one sentence per line."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import LocalPath, calls
from evaluator.gender import LANGUAGES, Verdict
from evaluator.gender.function import first_person_genders


def line(verdict: Verdict, explain: bool) -> str:
    """What is printed for one sentence: the gender, and with `explain` the rule, the word and `conflict`, tab-separated."""
    if not explain:
        return verdict.gender
    return "\t".join([verdict.gender, verdict.rule, verdict.word, "conflict" if verdict.conflict else ""]).rstrip("\t")


@calls("evaluator.gender.function:first_person_genders")
@click.command(name="gender")
@click.option("--language", required=True, metavar="CODE", help=f"One of {' '.join(LANGUAGES)}.")
@click.option(
    "--detector",
    type=click.Choice(["rules", "trankit", "stanza", "spacy", "conllu"]),
    default="rules",
    show_default=True,
    help="Rules over words (no parser), or over a Universal Dependencies parse.",
)
@click.option("--explain", is_flag=True, help="Add the rule, the word that it matched, and `conflict` if rules disagree.")
@click.option(
    "--trankit-python",
    envvar="EVALUATOR_TRANKIT_PYTHON",
    help="Python of the environment that has Trankit (EVALUATOR_TRANKIT_PYTHON).",
)
@click.option(
    "--trankit-cache",
    type=LocalPath(path_type=Path, file_okay=False),
    envvar="EVALUATOR_TRANKIT_CACHE",
    help="Folder with Trankit's weights (EVALUATOR_TRANKIT_CACHE).",
)
@click.argument("file", type=LocalPath(path_type=Path, allow_dash=True), default="-")
@click.option("--parses", type=LocalPath(path_type=Path, dir_okay=False), help="CoNLL-U file for --detector conllu.")
@click.option("--parse-cache", type=LocalPath(path_type=Path, file_okay=False), help="Folder that caches parses.")
def command(explain: bool, **arguments: Any) -> None:
    """Read one sentence per line (FILE or standard input) and print masculine, feminine or unknown, one per line.

    Only the first sentence of a line is read, as the published pipeline does. An empty line is unknown.

    \b
    Example:
      echo "Bola som doma." | evaluator gender --language sk --explain
    """
    for verdict in first_person_genders(**arguments):
        click.echo(line(verdict, explain))
