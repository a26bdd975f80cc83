"""Gender variants of a translation (GEST, Slavic masked LMs): prompts, extraction of the quoted part, filters, pairs.

A sentence is translated plainly, which gives one gender, and inside *He said: "…"* or *She said: "…"* for the opposite gender.
The quoted part of the second translation is the other variant, if both differ in one word with the same first letter.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.csv_file import read_columns
from evaluator.gender.text import normalize
from evaluator.gender.verdict import Gender, Verdict
from evaluator.text_file import NAME_IT
from evaluator_serving.errors import InputError

PromptStyle = Literal["pronoun", "noun"]

_SPEAKERS: dict[tuple[PromptStyle, Gender], str] = {
    ("pronoun", "masculine"): "He",
    ("pronoun", "feminine"): "She",
    ("noun", "masculine"): "The man",
    ("noun", "feminine"): "The woman",
}

OPPOSITE: dict[Gender, Gender] = {"masculine": "feminine", "feminine": "masculine"}

COLUMNS = ("translator", "language", "original", "stereotype", "male", "female")
"""Columns of the public gender_variants.csv."""

_QUOTES = '"“”„‟«»‹›‚‘’‛「」『』〝〞＂'
# ‘ and ’ are apostrophes between letters
_QUOTE = re.compile(rf"(?<!\w)[‘’‚‛]|[‘’‚‛](?!\w)|[{re.sub('[‘’‚‛]', '', _QUOTES)}]|''")
_TYPEWRITER = str.maketrans({**dict.fromkeys(_QUOTES, '"'), **dict.fromkeys("‐‑‒–—―−", "-")})
_FINAL = (".", "!", "?", "…")
_EDGE = re.compile(r"^\W*|\W*$")


def prompt(sentence: str, gender: Gender, style: PromptStyle = "pronoun", colon: bool = True) -> str:
    """The sentence to translate for a variant of this gender: `She said: "…"`.

    style: *He/She* (published) or *The man/The woman*; colon: published prompts for DeepL to Czech have none.
    """
    return f'{_SPEAKERS[style, gender]} said{":" if colon else ""} "{sentence}"'


def source_key(sentence: str) -> str:
    """An English sentence normalized for comparison, since files differ in apostrophes."""
    return " ".join(normalize(sentence).split())


def extract_quote(translation: str, source: str = "") -> str | None:
    """The quoted part of a prompted translation, with any quotation marks; None if there is none.

    Without quotation marks it begins after the first colon (`Muž povedal: Prší.`). A final `.`, `?` or `!` that the translator
    moved behind the closing mark, or dropped, is restored; a dropped one from `source`, the English sentence.
    """
    text = translation.strip()
    marks = list(_QUOTE.finditer(text))
    if marks:
        quoted, behind = _between_marks(text, marks)
    else:
        _, colon, quoted = text.partition(":")
        if not colon:
            return None
        quoted, behind = quoted.lstrip(" –—-"), ""
    return _restore_final(quoted.strip(), behind, source)


def _between_marks(text: str, marks: "list[re.Match[str]]") -> tuple[str, str]:
    """(the text inside the outermost quotation marks, the text behind them)."""
    first, last = marks[0], marks[-1]
    if len(marks) == 1:
        return text[first.end() :], ""
    behind = text[last.end() :]
    if re.search(r"\w", behind):
        # "Prší," povedal som.  The outer closing mark got lost: the marks belong to a quotation inside the sentence.
        return text[first.start() :], ""
    return text[first.end() : last.start()], behind


def _restore_final(quoted: str, behind: str, source: str) -> str | None:
    if not re.search(r"\w", quoted):
        return None
    bare = quoted.rstrip(",;").rstrip()
    if bare.rstrip(_QUOTES).endswith(_FINAL):
        return bare
    final = next((mark for mark in behind if mark in ".!?"), "") or next(
        (mark for mark in ".!?" if source.rstrip(_QUOTES + " ").endswith(mark)), ""
    )
    return bare + final


@dataclass(frozen=True, slots=True)
class Difference:
    """Two sentences that differ in one word: shared prefix, the two words, shared suffix."""

    prefix: str
    male: str
    female: str
    suffix: str


def one_word_difference(male: str, female: str) -> Difference | None:
    """The difference of two sentences with equally many words, None unless they differ in exactly one word.

    Words are separated by spaces; punctuation shared by both words belongs to prefix and suffix. Differences in spaces, dashes,
    quotation marks, final marks and the case of the first letter are ignored: prefix and suffix are those of `male`.
    """
    ours, theirs = male.split(), female.split()
    if len(ours) != len(theirs) or not ours:
        return None
    theirs = _dressed_like(ours, theirs)
    different = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if _plain(a) != _plain(b)]
    if len(different) != 1:
        return None
    position = different[0]
    word, other = ours[position], theirs[position]
    start = [match.start() for match in re.finditer(r"\S+", male)][position]
    before, after = _shared_punctuation(word, other)
    return Difference(
        prefix=male[: start + before],
        male=word[before : len(word) - after],
        female=other[before : len(other) - after],
        suffix=male[start + len(word) - after :],
    )


def _dressed_like(ours: list[str], theirs: list[str]) -> list[str]:
    """The words `theirs` with the case of the first letter and the final marks of `ours`."""
    words = list(theirs)
    first, model = words[0], ours[0]
    if first[0].swapcase() == model[0]:
        words[0] = model[0] + first[1:]
    stem = ours[-1].rstrip("".join(_FINAL))
    other_stem = words[-1].rstrip("".join(_FINAL))
    if stem and other_stem:
        words[-1] = other_stem + ours[-1][len(stem) :]
    return words


def _plain(word: str) -> str:
    """A word with ASCII dashes and quotation marks."""
    return word.translate(_TYPEWRITER)


def _shared_punctuation(word: str, other: str) -> tuple[int, int]:
    """Numbers of leading and trailing punctuation marks that both words share."""
    before = 0
    while before < min(len(word), len(other)) and word[before] == other[before] and not word[before].isalnum():
        before += 1
    after, longest = 0, min(len(word), len(other)) - before
    while after < longest and word[-1 - after] == other[-1 - after] and not word[-1 - after].isalnum():
        after += 1
    return before, after


def same_first_letter(difference: Difference) -> bool:
    """The published filter: inflection keeps a word's first letter (and its case), a change of wording mostly does not."""
    first, second = _EDGE.sub("", difference.male), _EDGE.sub("", difference.female)
    return bool(first and second) and first[0] == second[0]


def released_first_letter(male: str, female: str) -> bool:
    """The filter as in the released code: on the first pair of words that differ at all, whatever the number of words."""
    words = zip(male.split(), female.split(), strict=False)
    return next((one[0] == other[0] for one, other in words if one != other), False)


@dataclass(frozen=True, slots=True)
class Variant:
    """A sentence in both genders. translator, language: its origin; original, stereotype: the English sample."""

    translator: str
    language: str
    original: str
    stereotype: int
    male: str
    female: str


Outcome = Literal["pair", "unknown gender", "no prompted translation", "no quotation", "several words", "first letter"]


@dataclass(frozen=True, slots=True)
class PairingResult:
    """The pairs, the number of samples by outcome, and the sentences whose translation has no quotation."""

    pairs: tuple[Variant, ...]
    outcomes: Mapping[Outcome, int]
    unquoted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlainTranslation:
    """A sample with its plain translation and the gender in it."""

    original: str
    stereotype: int
    translation: str
    verdict: Verdict


def build_pairs(
    samples: Iterable[PlainTranslation], prompted: Mapping[tuple[str, Gender], str], translator: str, language: str
) -> PairingResult:
    """Pair plain translations with the quoted parts of the opposite gender's prompts, without de-duplication.

    prompted: (English sentence, gender of the prompt) → translation of that prompt.
    """
    by_source = {(source_key(sentence), gender): translation for (sentence, gender), translation in prompted.items()}
    pairs: list[Variant] = []
    outcomes: Counter[Outcome] = Counter()
    unquoted: list[str] = []
    for sample in samples:
        outcome, pair = _pair(sample, by_source, translator, language)
        outcomes[outcome] += 1
        if pair:
            pairs.append(pair)
        elif outcome == "no quotation":
            unquoted.append(sample.original)
    return PairingResult(tuple(pairs), outcomes, tuple(unquoted))


def _pair(
    sample: PlainTranslation, prompted: Mapping[tuple[str, Gender], str], translator: str, language: str
) -> tuple[Outcome, Variant | None]:
    gender = sample.verdict.gender
    if gender == "unknown":
        return "unknown gender", None
    translation = prompted.get((source_key(sample.original), OPPOSITE[gender]))
    if translation is None:
        return "no prompted translation", None
    quoted = extract_quote(translation, sample.original)
    if quoted is None:
        return "no quotation", None
    difference = one_word_difference(sample.translation, quoted)
    if difference is None:
        return "several words", None
    if not same_first_letter(difference):
        return "first letter", None
    # The other variant is the plain translation with the word exchanged, so that the two differ in nothing else.
    swapped = f"{difference.prefix}{difference.female}{difference.suffix}"
    male, female = (sample.translation, swapped) if gender == "masculine" else (swapped, sample.translation)
    return "pair", Variant(translator, language, sample.original, sample.stereotype, male, female)


def deduplicate(variants: Iterable[Variant], scope: Literal["language", "published"] = "language") -> list[Variant]:
    """Keep the first of equal pairs, within each language or (`published`) across all systems and languages."""
    first: dict[tuple[str, ...], Variant] = {}
    for variant in variants:
        pair = (variant.male, variant.female)
        first.setdefault(pair if scope == "published" else (variant.language, *pair), variant)
    return list(first.values())


def read_variants(path: Path, encoding: str | None = None) -> Iterator[Variant]:
    """Read the public gender_variants.csv, or a file with its columns; `encoding`: see `text_file`.

    Raises InputError for missing columns and for rows that cannot be pairs.
    """
    rows = read_columns(path, COLUMNS, remedy=NAME_IT, encoding=encoding)
    for line, (translator, language, original, stereotype, male, female) in rows:
        if not stereotype.isdigit():
            raise InputError(f"{path}, line {line}: stereotype {stereotype!r} is not a number: correct the row")
        if not (male and female):
            raise InputError(f"{path}, line {line}: a variant is empty: complete or delete the row")
        yield Variant(translator, language, original, int(stereotype), male, female)
