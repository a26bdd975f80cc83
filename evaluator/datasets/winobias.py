"""Reader of WinoBias: sentences in a pro-stereotypical and an anti-stereotypical version with different pronouns.

J. Zhao, T. Wang, M. Yatskar, V. Ordonez, K.-W. Chang: Gender Bias in Coreference Resolution (NAACL 2018). M. Pikuliak et al.
(2024) use it to validate GEST.
"""

import re
from collections import Counter
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path

import polars as pl

from evaluator.datasets.word_filling import WANTED, BadSampleError
from evaluator.text_file import read_text
from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

SPLITS = ("type1-dev", "type1-test", "type2-dev", "type2-test")

PRONOUNS = (("he", "she"), ("his", "her"), ("him", "her"), ("himself", "herself"))
"""Masculine and feminine forms of one pronoun."""

FRAME: dict[str, pl.DataType] = {
    "sample": pl.Int64(),
    "split": pl.String(),
    "line": pl.Int64(),
    "gender": pl.String(),
    "occupation": pl.String(),
    "parts": pl.List(pl.String()),
    "male": pl.List(pl.String()),
    "female": pl.List(pl.String()),
}
"""Columns of the frame. `gender` is the stereotypical gender of the bracketed `occupation`. The sentence is `parts` joined by
the words of `male` or `female`, in which the two versions differ; the rest is spelt as in the first version."""

_EDITS = ({"s", ""}, {"is", "er"}, {"im", "er"})
_LINE = re.compile(r"(\d+) (.+)")
_TOKENS = re.compile(r"\w+|[^\w\s]|\s+")


def same_but_pronouns(first: str, second: str) -> bool:
    """The noise filter: whether two sentences differ only in the letters that differ in he/she, his/her and him/her.

    It compares letters, as in the released code, and so accepts one pair in which a noun has a final s in one version only.
    This gives the published 392 pairs of the type 2 test set.
    """
    edits = SequenceMatcher(None, first, second).get_opcodes()
    return all({first[a:b], second[c:d]} in _EDITS for tag, a, b, c, d in edits if tag != "equal")


def read(folder: Path) -> Samples:
    """Read the four pairs of files and the two lists of occupations in WinoBias's folder.

    Pairs rejected by the noise filter are dropped and counted by split. A line without number, brackets or a listed occupation
    is added to `failures`. Raises InputError for an unreadable file, and for a pair of files with different numbers of lines.
    """
    digests: dict[str, str] = {}
    occupations: dict[str, str] = {}
    for gender in ("male", "female"):
        path = folder / f"{gender}_occupations.txt"
        text, digests[path.name] = read_text(path, wanted=WANTED)
        occupations |= {line.strip().casefold(): gender for line in text.splitlines() if line.strip()}
    rows: list[dict[str, object]] = []
    dropped: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    number = 0
    for split in SPLITS:
        kind, part = split.split("-")
        paths = [folder / f"{side}_stereotyped_{kind}.txt.{part}" for side in ("pro", "anti")]
        versions = []
        for path in paths:
            text, digests[path.name] = read_text(path, wanted=WANTED)
            versions.append([line for line in text.splitlines() if line.strip()])
        if len(versions[0]) != len(versions[1]):
            counts = f"{len(versions[0])} and {len(versions[1])} lines"
            raise InputError(f"{paths[0]} and {paths[1].name} have {counts}, but must be aligned by line: restore both")
        for line, pair in enumerate(zip(*versions, strict=True), start=1):
            try:
                row = _row(pair[0], pair[1], occupations)
            except BadSampleError as error:
                failures.append((f"{split} line {line}", str(error)))
            else:
                if row is None:
                    dropped[f"{split}: the two versions differ in more than pronouns"] += 1
                else:
                    rows.append({"sample": number, "id": f"{split}:{line}", "split": split, "line": line, **row})
            number += 1
    return Samples(pl.DataFrame(rows, schema=FRAME), digests, dict(dropped), tuple(failures))


def _row(pro: str, anti: str, occupations: Mapping[str, str]) -> dict[str, object] | None:
    """The columns from `gender` on for a line of both files; None if the noise filter rejects it. Raises BadSampleError."""
    matches = [_LINE.fullmatch(line.strip()) for line in (pro, anti)]
    if matches[0] is None or matches[1] is None or matches[0][1] != matches[1][1]:
        raise BadSampleError("the two lines don't begin with the same number")
    first, second = matches[0][2], matches[1][2]
    terms = [re.sub(r"^(the|an?)\s+", "", term.strip().casefold()) for term in re.findall(r"\[(.*?)\]", first)]
    named = [term for term in terms if term in occupations]
    if not same_but_pronouns(first, second):
        return None
    if len(named) != 1:
        raise BadSampleError(f"{len(named)} listed occupations in brackets instead of one")
    parts, words = _differences(first, second)
    if not words:
        raise BadSampleError("the two versions don't differ")
    male, female = _by_gender(words)
    return {"gender": occupations[named[0]], "occupation": named[0], "parts": parts, "male": male, "female": female}


def _differences(first: str, second: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The differing words of two sentences, and the texts around them, without brackets."""
    parts, words = [""], []
    tokens = [_TOKENS.findall(re.sub(r"[\[\]]", "", text)) for text in (first, second)]
    for a, b in zip(*tokens, strict=True):
        if a == b:
            parts[-1] += a
        else:
            words.append((a, b))
            parts.append("")
    return parts, words


def _by_gender(words: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """The differing words of the masculine and of the feminine version. Raises BadSampleError if genders are mixed."""
    directions = {
        (a.casefold(), b.casefold()) in PRONOUNS
        for a, b in words
        if (a.casefold(), b.casefold()) in PRONOUNS or (b.casefold(), a.casefold()) in PRONOUNS
    }
    if len(directions) != 1:
        raise BadSampleError("the pronouns of one version are not of one gender")
    male, female = zip(*(words if directions == {True} else [(b, a) for a, b in words]), strict=True)
    return list(male), list(female)
