"""The first person's grammatical gender, sentence by sentence (`evaluator gender`)."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from evaluator.gender.factory import rules_detector, ud_detector
from evaluator.gender.verdict import GenderDetector, Verdict
from evaluator.text_file import opened
from evaluator_serving.errors import InputError

if TYPE_CHECKING:
    from evaluator.gender.ud.parser import Parser

BATCH = 256
"""Lines that are read and judged together."""


def first_person_genders(
    file: Path,
    language: str,
    *,
    detector: Literal["rules", "trankit", "stanza", "spacy", "conllu"] = "rules",
    trankit_python: str | None = None,
    trankit_cache: Path | None = None,
    parses: Path | None = None,
    parse_cache: Path | None = None,
) -> Iterator[Verdict]:
    """Yield a verdict on the first sentence of each line of a file; `-` is standard input.

    Args:
        detector: rules over words, or over the Universal Dependencies parses of this parser.
        trankit_python, trankit_cache: Python of the environment that has Trankit, and the folder with its weights.
        parses: CoNLL-U file, for the detector `conllu`.
        parse_cache: folder where parses are cached.

    Raises InputError for a language without rules, for a detector that lacks what it needs, and for a file that isn't UTF-8.
    """
    judge = _detector(language, detector, trankit_python, trankit_cache, parses, parse_cache)
    lines = _lines(file)
    while batch := list(itertools.islice(lines, BATCH)):
        yield from judge.detect(batch)


def _detector(
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
            raise InputError("--detector conllu needs --parses FILE: a CoNLL-U file with a `# text = …` line per sentence")
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
        with opened(file, wanted="give a file with one sentence per line") as text:
            yield from (row.rstrip("\r\n") for row in text)
        return
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise InputError(f"standard input, line {number}: not UTF-8 ({raw[:40]!r}): convert it to UTF-8") from None
