"""Readers of the word-filling data sets with control groups: quadruples with a keyword in <brackets>.

M. Pikuliak, I. Beňová, V. Bachratý: In-Depth Look at Word Filling Societal Bias Measures (EACL 2023). A sample has four
sentences: s0 (stereotype) and s1 (anti-stereotype) for the original group, s2 and s3 for the control group.
"""

import io
import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.csv_file import parsed
from evaluator.text_file import read_text
from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

SENTENCES = ("s0", "s1", "s2", "s3")

QUADRUPLES: dict[str, pl.DataType] = {
    "sample": pl.Int64(),
    "original": pl.Int64(),
    "s0": pl.String(),
    "s1": pl.String(),
    "s2": pl.String(),
    "s3": pl.String(),
}
"""Columns of a frame of quadruples. `original` numbers the pairs of the original group: samples with the same number share two
sentences and are not independent. Sentences are unchanged, with keywords in brackets."""

GENERATED: dict[str, pl.DataType] = {
    **QUADRUPLES,
    "example": pl.String(),
    "original_term": pl.String(),
    "control_term": pl.String(),
}
"""Columns of quadruples with drawn control terms: also the StereoSet example's id and the two group terms."""

DRAWS = 10
SEED = 0

WANTED = "give the folder of data sets with --data"

_KEYWORD = re.compile(r"([^<>]*)<([^<>]*)>([^<>]*)")
_INFLECTED = r"(?=(?:e?s)?(?!\w))"
_FLAGS = ("n", "?")


class BadSampleError(Exception):
    """A sample is invalid, for the reason in the message."""


def read_csv(path: Path) -> tuple[list[list[str]], str]:
    """A CSV file's rows and sha256. Raises InputError, with the line, for invalid quotation marks or rows of unequal length."""
    text, digest = read_text(path, wanted=WANTED)
    return [row for _, row in parsed(io.StringIO(text, newline=""), path)], digest


def split_keyword(sentence: str) -> tuple[str, str, str]:
    """The text before, in and after the brackets. Raises BadSampleError unless there is exactly one keyword."""
    match = _KEYWORD.fullmatch(sentence)
    if match is None:
        count = f"{sentence.count('<')} < and {sentence.count('>')} >"
        raise BadSampleError(f"a sentence needs one keyword in <brackets>, this one has {count}")
    before, keyword, after = match.groups()
    if not keyword.strip():
        raise BadSampleError("the brackets are empty")
    return before, keyword, after


def plain(sentence: str) -> str:
    """The sentence without its brackets."""
    return sentence.replace("<", "").replace(">", "")


def check_pair(first: str, second: str) -> None:
    """Raise BadSampleError if one of two sentences is empty, or they have no word in common."""
    if not first.strip() or not second.strip():
        raise BadSampleError("a sentence is empty")
    words = [set(re.findall(r"\w+", text.casefold())) for text in (first, second)]
    if not words[0] & words[1]:
        raise BadSampleError("two sentences that are compared share no word")


def check_unequal(first: str, second: str) -> None:
    """Raise BadSampleError if one sentence of a pair is empty, or both are equal."""
    if not first.strip() or not second.strip():
        raise BadSampleError("one sentence of the pair is empty")
    if first.strip() == second.strip():
        raise BadSampleError("both sentences of the pair are equal")


def check_quadruple(sentences: Sequence[str]) -> None:
    """Raise BadSampleError unless the four bracketed sentences can be scored."""
    for sentence in sentences:
        if not sentence.strip():
            raise BadSampleError("a sentence is empty")
        split_keyword(sentence)
    bare = [plain(sentence) for sentence in sentences]
    for first, second in ((0, 2), (1, 3)):
        check_pair(bare[first], bare[second])


# --- StereoSet gender with swapped controls ----------------------------------------------------------------------------


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Blocks of lines between blank lines, each with the number of its first line."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip():
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []


def read_quadruples(path: Path) -> Samples:
    """Read the gender-swapped StereoSet: blocks of two lines (original, control), stereotype first, then anti-stereotype.

    A sample with a block of other than two lines, or a sentence without exactly one keyword, is added to `failures`. Raises
    InputError for an unreadable file or an odd number of blocks.
    """
    text, digest = read_text(path, wanted=WANTED)
    blocks = list(_blocks(text))
    if len(blocks) % 2 or not blocks:
        line = blocks[-1][0] if blocks else 1
        raise InputError(
            f"{path}, line {line}: {len(blocks)} blocks of lines, but each sample needs two (stereotype, anti-stereotype): "
            "restore the missing block"
        )
    rows: list[dict[str, object]] = []
    failures: list[tuple[str, str]] = []
    for number, (stereotype, anti) in enumerate(zip(blocks[::2], blocks[1::2], strict=True)):
        try:
            for line, block in (stereotype, anti):
                if len(block) != 2:
                    raise BadSampleError(f"the block at line {line} has {len(block)} lines instead of 2")
            sentences = [stereotype[1][0], anti[1][0], stereotype[1][1], anti[1][1]]
            check_quadruple(sentences)
        except BadSampleError as error:
            failures.append((f"{path.name} line {stereotype[0]}", str(error)))
            continue
        rows.append({"sample": number, "original": number, **dict(zip(SENTENCES, sentences, strict=True))})
    return Samples(pl.DataFrame(rows, schema=QUADRUPLES), {path.name: digest}, failures=tuple(failures))


# --- Slovak gender -----------------------------------------------------------------------------------------------------


def read_slovak(path: Path) -> Samples:
    """Read the Slovak gender data set: columns veta1 … veta4 are s0 … s3.

    Rows that a judge flagged `n` or `?` under `competence?` or `misogynistic?` are dropped and counted. Raises InputError for
    an unreadable file or a missing column.
    """
    rows, digest = read_csv(path)
    columns = ("ID", "veta1", "veta2", "veta3", "veta4", "competence?", "misogynistic?")
    table = records(path, rows, columns)
    usable: list[dict[str, object]] = []
    dropped: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    for number, record in enumerate(table):
        flags = [flag for flag in columns[5:] if record[flag].strip() in _FLAGS]
        if flags:
            dropped[f"flagged n or ? under {' and '.join(flags)}"] += 1
            continue
        sentences = [record[column] for column in columns[1:5]]
        try:
            check_quadruple(sentences)
        except BadSampleError as error:
            failures.append((f"ID {record['ID']}", str(error)))
            continue
        place = {"sample": number, "original": number, "id": record["ID"]}
        usable.append({**place, **dict(zip(SENTENCES, sentences, strict=True))})
    return Samples(
        pl.DataFrame(usable, schema={**QUADRUPLES, "id": pl.String()}), {path.name: digest}, dict(dropped), tuple(failures)
    )


def records(path: Path, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> list[Mapping[str, str]]:
    """Rows as mappings from column names. Raises InputError if one of `columns` is missing or repeated."""
    header = list(rows[0]) if rows else []
    for column in columns:
        if column not in header:
            raise InputError(f"{path}, line 1: no column {column!r} (found: {', '.join(header)}): the header must name it")
        if header.count(column) > 1:
            raise InputError(f"{path}, line 1: {header.count(column)} columns {column!r}: the header must name it once")
    return [dict(zip(header, row, strict=True)) for row in rows[1:]]


# --- StereoSet race and profession with drawn controls -----------------------------------------------------------------


def control_terms(bias_type: str, *, stripped: bool = True) -> list[list[str]]:
    """The published lists of group terms of a bias type (`race` has two: countries and adjectives). A control term comes from
    the list of the term that it replaces. `stripped` removes the outer spaces of the published terms.

    Raises InputError for a bias type without lists.
    """
    lists: dict[str, dict[str, list[str]]] = json.loads(
        files("evaluator.datasets").joinpath("control_terms.json").read_text(encoding="utf8")
    )
    if bias_type not in lists:
        raise InputError(f"no control terms for bias type {bias_type!r}: choose {' or '.join(lists)}")
    return [[term.strip() if stripped else term for term in terms] for terms in lists[bias_type].values()]


@dataclass(frozen=True, slots=True)
class Drawing:
    """The steps of drawing control groups.

    Attributes:
        bracketed: word → word with brackets around its keyword, None if it has no keyword.
        drawn: (example, a row of StereoSet; its two bracketed sentences) → (the group term in both, its replacements), None
            if there is no term.
        replaced: (sentence, group term, replacement) → the control's sentence.
        unfound: reason under which examples without a term are counted.
    """

    bracketed: Callable[[str], str | None]
    drawn: Callable[[Mapping[str, Any], tuple[str, str]], tuple[str, Sequence[str]] | None]
    replaced: Callable[[str, str, str], str]
    unfound: str


def with_controls(source: Samples, bias_type: str, drawing: Drawing) -> Samples:
    """Quadruples from StereoSet's intrasentence examples of one bias type: s0 and s1 are an example's stereotype and
    anti-stereotype, s2 and s3 the same with another group term.

    Dropped and counted are other examples, sentences with brackets or without exactly one differing word, and those without a
    group term.
    """
    examples = source.frame.filter((pl.col("template") == "intrasentence") & (pl.col("bias_type") == bias_type))
    dropped = Counter({"StereoSet examples of another test or bias type": source.frame.height - examples.height})
    rows: list[dict[str, object]] = []
    original = 0
    for each in examples.iter_rows(named=True):
        example, sentences = each["example"], each["sentences"]
        pair = _one_word_apart(sentences[0], sentences[1], drawing.bracketed)
        if pair is None:
            dropped["the two sentences don't differ in exactly one word"] += 1
            continue
        draw = drawing.drawn(each, pair)
        if draw is None:
            dropped[drawing.unfound] += 1
            continue
        term, terms = draw
        for drawn in terms:
            control = (drawing.replaced(sentence, term, drawn) for sentence in pair)
            quadruple = dict(zip(SENTENCES, (*pair, *control), strict=True))
            terms_of = {"id": example, "example": example, "original_term": term, "control_term": drawn}
            rows.append({"sample": len(rows), "original": original, **quadruple, **terms_of})
        original += 1
    return Samples(pl.DataFrame(rows, schema={**GENERATED, "id": pl.String()}), source.sha256, dict(dropped), source.failures)


def _one_word_apart(first: str, second: str, bracketed: Callable[[str], str | None]) -> tuple[str, str] | None:
    """Two sentences with brackets in the single word in which they differ; None if there is no such word."""
    words = first.split(), second.split()
    if len(words[0]) != len(words[1]) or any(sign in first + second for sign in "<>"):
        return None
    different = [i for i, (a, b) in enumerate(zip(*words, strict=True)) if a != b]
    if len(different) != 1:
        return None
    for side in words:
        marked = bracketed(side[different[0]])
        if marked is None:
            return None
        side[different[0]] = marked
    return " ".join(words[0]), " ".join(words[1])


def drawn_controls(source: Samples, bias_type: str, draws: int = DRAWS, seed: int = SEED) -> Samples:
    """Quadruples with `draws` control groups per example (see `with_controls`): terms drawn without replacement from the group
    term's list, never the term itself or a part of the keyword. Draws depend only on the seed and the example's id.
    """
    lists = control_terms(bias_type)

    def drawn(example: Mapping[str, Any], pair: tuple[str, str]) -> tuple[str, Sequence[str]] | None:
        found = _group_term(pair, example["target"], lists)
        if found is None:
            return None
        term, terms = found
        others = [other for other in terms if other.casefold() != term.casefold()]
        return term, random.Random(f"{seed}/{example['example']}").sample(others, draws)

    return with_controls(source, bias_type, Drawing(_bracketed, drawn, _replace, "no listed group term outside the keyword"))


def _bracketed(word: str) -> str | None:
    """The word in brackets, without its outer punctuation."""
    keyword = word.strip(string.punctuation)
    return word.replace(keyword, f"<{keyword}>", 1) if keyword else None


def _around(sentence: str) -> str:
    """The sentence without its keyword."""
    before, _, after = split_keyword(sentence)
    return f"{before}<>{after}"


def _group_term(pair: tuple[str, str], target: str, lists: Sequence[list[str]]) -> tuple[str, list[str]] | None:
    """The listed term for the sentences' group, and its list; None if there is none outside the keywords.

    Preferred are whole words (or their plural) to beginnings of words, then StereoSet's target term or a part of it, then
    longer terms (`South African` to `African`).
    """
    texts = [_around(sentence) for sentence in pair]
    best: tuple[tuple[bool, bool, int], str, list[str]] | None = None
    for terms in lists:
        for term in terms:
            if not all(term.casefold() in text.casefold() for text in texts):
                continue
            begin = rf"(?<!\w){re.escape(term)}"
            if not all(re.search(begin, text, re.IGNORECASE) for text in texts):
                continue
            whole = all(re.search(begin + _INFLECTED, text, re.IGNORECASE) for text in texts)
            related = term.casefold() in target.casefold() or target.casefold() in term.casefold()
            rank = (whole, related, len(term))
            if best is None or rank > best[0]:
                best = (rank, term, terms)
    return best and best[1:]


def _replace(sentence: str, term: str, drawn: str) -> str:
    """The sentence with every `term` outside the keyword replaced by `drawn`, in the letter case of the replaced text.

    StereoSet writes many names of peoples in lower case; a control in upper case would differ in more than the group.
    """
    before, keyword, after = split_keyword(sentence)
    pattern = rf"(?<!\w){re.escape(term)}"
    if re.search(pattern + _INFLECTED, before + after, re.IGNORECASE):
        pattern += _INFLECTED

    def cased(match: re.Match[str]) -> str:
        found = match.group()
        if found == found.lower():
            return drawn.lower()
        return drawn[0].upper() + drawn[1:] if found[0].isupper() else drawn

    before, after = (re.sub(pattern, cased, text, flags=re.IGNORECASE) for text in (before, after))
    return f"{before}<{keyword}>{after}"


# --- word counts -------------------------------------------------------------------------------------------------------


def read_word_counts(path: Path) -> pl.DataFrame:
    """Corpus frequencies from a text file with a word, a tab or comma, and a count per line. Columns `word` (case-folded),
    `count`.

    Counts of words that differ only in letter case are summed. Raises InputError with the line of an invalid count.
    """
    text, _ = read_text(path, wanted="name a file of words and their counts")
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        word, _, count = line.replace("\t", ",").rpartition(",")
        if not word.strip() or not count.strip().isdecimal() or int(count) == 0:
            raise InputError(f"{path}, line {number}: not a word, a tab or comma, and a count above 0: correct the line")
        counts[word.strip().casefold()] += int(count)
    return pl.DataFrame({"word": list(counts), "count": list(counts.values())}, schema={"word": pl.String, "count": pl.Float64})
