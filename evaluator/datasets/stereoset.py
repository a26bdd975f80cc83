"""Reader of StereoSet in its public JSON schema, and of translations with `word` and `target_original`.

M. Nadeem, A. Bethke, S. Reddy: StereoSet (2021); I. S. Öztürk et al.: How Different Is Stereotypical Bias Across
Languages? (2023).
"""

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

BLANK = "BLANK"
LABELS = ("stereotype", "anti-stereotype", "unrelated")
"""Gold labels, in the order of an example's candidates throughout the program."""

TESTS = ("intrasentence", "intersentence")

FRAME: dict[str, pl.DataType] = {
    "sample": pl.Int64(),
    "template": pl.String(),
    "example": pl.String(),
    "bias_type": pl.String(),
    "target": pl.String(),
    "context": pl.String(),
    "sentences": pl.List(pl.String()),
    "ids": pl.List(pl.String()),
    "words": pl.List(pl.String()),
    "words_published": pl.List(pl.String()),
}
"""Columns of Samples.frame. `template` is the test; lists hold the three candidates in the order of LABELS; `words` are
the candidate words of an intrasentence example (null for intersentence); `target` is the English term (the class)."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)


class _WrongError(Exception):
    """An example is invalid, for the reason in the message."""


def file_name(language: str) -> str:
    """File name of a language in the public layout."""
    return "dev.json" if language == "en" else f"dev_{language}.json"


def aligned_word(context: str, sentence: str) -> str | None:
    """The text in place of every BLANK of `context` in `sentence`, ignoring case; None if they do not match."""
    parts = context.split(BLANK)
    blanks = len(parts) - 1
    # Letter case does not change lengths, so the length of the word, equal for all BLANKs, is known.
    length, rest = divmod(len(sentence) - sum(map(len, parts)), max(blanks, 1))
    if not blanks or rest or length < 1:
        return None
    word = sentence[len(parts[0]) : len(parts[0]) + length]
    return word.strip() or None if word.join(parts).casefold() == sentence.casefold() else None


def published_word(context: str, sentence: str) -> str | None:
    """The candidate word by the released code's rule: the word at the last BLANK's index, without punctuation."""
    places = [index for index, word in enumerate(context.split(" ")) if BLANK in word]
    words = sentence.split(" ")
    if not places or places[-1] >= len(words):
        return None
    return words[places[-1]].translate(_PUNCTUATION) or None


def read(path: Path) -> Samples:
    """Read a StereoSet file.

    Samples are numbered through both tests, intrasentence first, in the file's order.

    Invalid examples (a missing or repeated gold label, a word that does not match its sentence, …) are skipped and listed in
    `failures`. Raises InputError if the file is not in StereoSet's format.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror}): give the folder of data sets with --data") from error
    try:
        data = json.loads(content)["data"]
        tests = {test: list(data.get(test, [])) for test in TESTS}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path} is not in StereoSet's format ({type(error).__name__}: {error}): expected "
            '{"data": {"intrasentence": […], "intersentence": […]}}'
        ) from error
    rows: list[dict[str, Any]] = []
    failures: list[tuple[str, str]] = []
    seen: set[str] = set()
    number = 0
    for test, examples in tests.items():
        for index, example in enumerate(examples):
            try:
                row = _row(test, example, seen)
                rows.append({"sample": number, "template": test, **row})
                seen.update([row["example"], *row["ids"]])
            except _WrongError as error:
                failures.append((_name(test, index, example), str(error)))
            number += 1
    if not rows:
        raise InputError(f"{path} has no valid example ({len(failures)} invalid): check that it is a StereoSet file")
    return Samples(
        frame=pl.DataFrame({column: [row[column] for row in rows] for column in FRAME}, schema=FRAME),
        sha256={path.name: hashlib.sha256(content).hexdigest()},
        failures=tuple(failures),
    )


def _name(test: str, index: int, example: Any) -> str:
    named = isinstance(example, Mapping) and isinstance(example.get("id"), str) and example["id"]
    return str(example["id"]) if named else f"{test}[{index}]"


def _text(source: Any, field: str) -> str:
    value = source.get(field) if isinstance(source, Mapping) else None
    if not isinstance(value, str) or not value.strip():
        raise _WrongError(f"no {field}")
    return value


def _row(test: str, example: Any, seen: set[str]) -> dict[str, Any]:
    """One example as a row of FRAME, without number and test. Raises _WrongError."""
    name = _text(example, "id")
    context = _text(example, "context")
    candidates = _by_label(example.get("sentences"))
    ids = [_text(candidate, "id") for candidate in candidates]
    if repeated := seen.intersection([name, *ids]):
        raise _WrongError(f"id {min(repeated)} occurs twice in the file")
    row = {
        "example": name,
        "bias_type": _text(example, "bias_type"),
        "target": _text(example, "target_original" if "target_original" in example else "target"),
        "context": context,
        "sentences": [_text(candidate, "sentence") for candidate in candidates],
        "ids": ids,
        "words": None,
        "words_published": None,
    }
    if test == "intrasentence":
        row["words"], row["words_published"] = _words(context, candidates)
    return row


def _by_label(candidates: Any) -> list[Mapping[str, Any]]:
    """The three candidates in the order of LABELS."""
    if not isinstance(candidates, Sequence) or len(candidates) != len(LABELS):
        raise _WrongError(f"needs {len(LABELS)} candidate sentences")
    by_label: dict[str, Mapping[str, Any]] = {}
    for candidate in candidates:
        label = _text(candidate, "gold_label")
        if label not in LABELS:
            raise _WrongError(f"unknown gold_label {label!r}")
        if label in by_label:
            raise _WrongError(f"two candidates labelled {label}")
        by_label[label] = candidate
    return [by_label[label] for label in LABELS]


def _words(context: str, candidates: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The candidates' words by the default and the published rule; words in the file take precedence."""
    if BLANK not in context:
        raise _WrongError(f"no {BLANK} in the context")
    words, published = [], []
    for candidate in candidates:
        sentence = _text(candidate, "sentence")
        aligned = aligned_word(context, sentence)
        if aligned is None:
            raise _WrongError(f"candidate {candidate['id']} can't be aligned with its context")
        word = candidate.get("word")
        if word is not None and context.replace(BLANK, str(word)).casefold() != sentence.casefold():
            raise _WrongError(f"candidate {candidate['id']}: the context with its word differs from its sentence")
        words.append(str(word) if word is not None else aligned)
        published.append(str(word) if word is not None else published_word(context, sentence) or aligned)
    return words, published
