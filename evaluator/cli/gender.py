"""`evaluator gender`: the grammatical gender of the first person, one sentence a line."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaluator.cli.options import LocalPath
from evaluator.gender import LANGUAGES, GenderDetector, Verdict, rules_detector, ud_detector
from evaluator.text_file import opened
from evaluator_serving.errors import InputError

if TYPE_CHECKING:
    from evaluator.gender.ud.parser import Parser

BATCH = 256
"""Lines read, judged and printed together."""


def line(verdict: Verdict, explain: bool) -> str:
    """What is printed for one sentence: the gender, and with `explain` the rule, the word and `conflict`, tab-separated."""
    if not explain:
        return verdict.gender
    return "\t".join([verdict.gender, verdict.rule, verdict.word, "conflict" if verdict.conflict else ""]).rstrip("\t")


def make_detector(
    language: str, name: str, python: str | None, weights: Path | None, parses: Path | None, cache: Path | None
) -> GenderDetector:
    """The detector that the options ask for. Raises InputError where one is missing."""
    if name == "rules":
        return rules_detector(language)
    parser: Parser
    if name == "trankit":
        from evaluator.gender.ud.trankit_client import TrankitParser

        if not (python and weights):
            raise InputError(
                "--detector trankit needs --trankit-python (the Python of Trankit's own environment, made by "
                "deploy/trankit-env.sh) and --trankit-cache (the folder with its weights)"
            )
        parser = TrankitParser(python, weights)
    elif name == "conllu":
        from evaluator.gender.ud.conllu import ConlluParser

        if not parses:
            raise InputError("--detector conllu needs --parses FILE: a CoNLL-U file with a `# text = …` line a sentence")
        parser = ConlluParser(parses)
    else:
        from evaluator.gender.ud.optional_parsers import SpacyParser, StanzaParser

        parser = StanzaParser() if name == "stanza" else SpacyParser()
    if cache:
        from evaluator.gender.ud.parse_cache import CachedParser

        parser = CachedParser(parser, cache)
    return ud_detector(language, parser)


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file, or of standard input as they come. Raises InputError where one isn't UTF-8."""
    if file.name != "-":
        with opened(file, wanted="give a file with a sentence a line") as text:
            yield from (row.rstrip("\r\n") for row in text)
        return
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise InputError(f"standard input, line {number}: not UTF-8 ({raw[:40]!r}): convert it to UTF-8") from None


@click.command(name="gender")
@click.option("--language", required=True, metavar="CODE", help=f"One of {' '.join(LANGUAGES)}.")
@click.option(
    "--detector",
    type=click.Choice(["rules", "trankit", "stanza", "spacy", "conllu"]),
    default="rules",
    show_default=True,
    help="Rules over words (no parser), or over a Universal Dependencies parse.",
)
@click.option("--explain", is_flag=True, help="Add the rule, the word that it read, and `conflict` where the rules disagree.")
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
@click.option("--parse-cache", type=LocalPath(path_type=Path, file_okay=False), help="Folder that remembers parses.")
def command(
    file: Path,
    language: str,
    detector: str,
    explain: bool,
    trankit_python: str | None,
    trankit_cache: Path | None,
    parses: Path | None,
    parse_cache: Path | None,
) -> None:
    """Read one sentence a line (FILE or standard input) and print masculine, feminine or unknown, a line each.

    Only the first sentence of a line is read, as the published pipeline does. An empty line is unknown.

    \b
    Example:
      echo "Bola som doma." | evaluator gender --language sk --explain
    """
    judge = make_detector(language, detector, trankit_python, trankit_cache, parses, parse_cache)
    lines = _lines(file)
    while batch := list(itertools.islice(lines, BATCH)):
        for verdict in judge.detect(batch):
            click.echo(line(verdict, explain))
