"""StereoSet in a new language: contexts, words, sentences and target terms through a translator, with checks."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evaluator.csv_file import read_columns
from evaluator.datasets.stereoset import BLANK, LABELS, TESTS
from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

PLACEHOLDERS = (BLANK, f"[{BLANK}]", "____", "XXX")
"""What stands for BLANK while a context is translated: the next one is tried where one is lost."""

MARKS = ".!?"
_SAME_MARK = {"。": ".", "．": ".", "।": ".", "۔": ".", "！": "!", "？": "?", "؟": "?"}
_CLOSING = "\"'”’“»)]"

FAILURE_COLUMNS = ("example", "field", "source", "translation", "reason")


class Translate(Protocol):
    """What is needed of a translator here."""

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language`, in their order."""


@dataclass(frozen=True, slots=True)
class Field:
    """One text of one example: `context`, `target` or a label of LABELS."""

    example: str
    name: str
    source: str
    test: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A field whose translation can't be used."""

    field: Field
    translation: str
    reason: str


@dataclass(frozen=True, slots=True)
class TranslatedFile:
    """`data` is a StereoSet file's content; examples with a failure are not in it."""

    data: Mapping[str, Any]
    failures: tuple[Failure, ...]

    @property
    def examples(self) -> int:
        """Examples that came through."""
        return sum(len(self.data["data"][test]) for test in TESTS)


def translate_stereoset(
    samples: Samples, translator: Translate, language: str, repairs: Mapping[tuple[str, str], str]
) -> TranslatedFile:
    """Translate all examples. `repairs` are hand-made translations by (example, field); they are checked like the others.

    Candidate sentences of the intrasentence test are the translated context with the translated word in place of BLANK, as in
    the published translations. Raises what the translator raises.
    """
    fields = list(_fields(samples))
    unknown = set(repairs) - {(field.example, field.name) for field in fields}
    if unknown:
        raise InputError(f"repair of {'/'.join(min(unknown))}: there is no such example and field: correct the repairs file")
    done: dict[tuple[str, str], str] = dict(repairs)
    todo = [field for field in fields if (field.example, field.name) not in done]
    plain = [field for field in todo if BLANK not in field.source]
    answers = translator.translate(list(dict.fromkeys(field.source for field in plain)), language)
    by_source = dict(zip(dict.fromkeys(field.source for field in plain), answers, strict=True))
    done |= {(field.example, field.name): by_source[field.source] for field in plain}
    done |= _blanks([field for field in todo if BLANK in field.source], translator, language)
    failures = []
    for field in fields:
        key = field.example, field.name
        done[key] = _tidied(field, done[key])
        if reason := problem(field, done[key]):
            failures.append(Failure(field, done[key], reason))
    wrong = {failure.field.example for failure in failures}
    return TranslatedFile(_content(samples, done, wrong), tuple(failures))


def _fields(samples: Samples) -> Iterator[Field]:
    for row in samples.frame.sort("sample").iter_rows(named=True):
        texts = row["words"] or row["sentences"]
        for name, source in (("context", row["context"]), ("target", row["target"]), *zip(LABELS, texts, strict=True)):
            yield Field(row["example"], name, source, row["template"])


def _blanks(fields: Sequence[Field], translator: Translate, language: str) -> dict[tuple[str, str], str]:
    """Translations of contexts with BLANK; the last attempt's where every placeholder is lost."""
    done: dict[tuple[str, str], str] = {}
    pending = list(fields)
    for placeholder in PLACEHOLDERS:
        sources = list(dict.fromkeys(field.source.replace(BLANK, placeholder) for field in pending))
        answers = dict(zip(sources, translator.translate(sources, language), strict=True)) if sources else {}
        lost = []
        for field in pending:
            answer = answers[field.source.replace(BLANK, placeholder)].replace(placeholder, BLANK)
            # The first attempt is what a person who repairs it wants to see, unless a later one is right.
            kept = answer.count(BLANK) == field.source.count(BLANK)
            if kept or placeholder == PLACEHOLDERS[0]:
                done[field.example, field.name] = answer
            if not kept:
                lost.append(field)
        pending = lost
    return done


def _mark(text: str) -> str:
    """The full stop, exclamation or question mark at a text's end, empty if there is none."""
    last = text.rstrip().rstrip(_CLOSING)[-1:]
    last = _SAME_MARK.get(last, last)
    return last if last and last in MARKS else ""


def _tidied(field: Field, translation: str) -> str:
    """Without outer spaces; a word or term without the full stop that some systems put behind everything."""
    text = translation.strip()
    whole = field.name == "context" or (field.test == "intersentence" and field.name != "target")
    if not whole and not _mark(field.source):
        text = text.rstrip(MARKS + "".join(_SAME_MARK))
    return text


def problem(field: Field, translation: str) -> str | None:
    """Why a translation can't be used, None if it can."""
    if not translation:
        return "empty translation"
    wanted, found = field.source.count(BLANK), translation.count(BLANK)
    if found != wanted:
        return f"{BLANK} occurs {found} times instead of {wanted}"
    if _mark(translation) != _mark(field.source):
        return f"ends in {_mark(translation) or 'no mark'!r}, the source in {_mark(field.source) or 'no mark'!r}"
    return None


def _content(samples: Samples, done: Mapping[tuple[str, str], str], wrong: set[str]) -> dict[str, Any]:
    tests: dict[str, list[dict[str, Any]]] = {test: [] for test in TESTS}
    for row in samples.frame.sort("sample").iter_rows(named=True):
        name = row["example"]
        if name in wrong:
            continue
        context = done[name, "context"]
        candidates = []
        for label, identity in zip(LABELS, row["ids"], strict=True):
            text = done[name, label]
            if row["words"]:
                sentence = {"sentence": context.replace(BLANK, text), "id": identity, "gold_label": label, "word": text}
            else:
                sentence = {"sentence": text, "id": identity, "gold_label": label}
            candidates.append(sentence)
        tests[row["template"]].append(
            {
                "id": name,
                "target": done[name, "target"],
                "bias_type": row["bias_type"],
                "context": context,
                "sentences": candidates,
                "target_original": row["target"],
            }
        )
    return {"version": "dev", "data": tests}


def failures_csv(failures: Sequence[Failure]) -> str:
    """The failures as CSV with the columns FAILURE_COLUMNS; with its translations corrected it is a repairs file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FAILURE_COLUMNS)
    writer.writerows((f.field.example, f.field.name, f.field.source, f.translation, f.reason) for f in failures)
    return text.getvalue()


def read_repairs(path: Path) -> dict[tuple[str, str], str]:
    """Translations by (example, field) from a CSV file with the columns `example, field, translation` (others are ignored)."""
    rows = read_columns(path, ("example", "field", "translation"), "give a CSV file of corrected translations")
    return {(example, field): translation for _, (example, field, translation) in rows}
