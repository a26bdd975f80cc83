"""Translate StereoSet's contexts, words, sentences and target terms into a new language, with checks."""

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
"""Placeholders for BLANK in a context that is translated: the next is tried if the translation loses one."""

MARKS = ".!?"
_SAME_MARK = {"。": ".", "．": ".", "।": ".", "۔": ".", "！": "!", "？": "?", "؟": "?"}
_CLOSING = "\"'”’“»)]"

FAILURE_COLUMNS = ("example", "field", "source", "translation", "reason")


class Translate(Protocol):
    """The part of a translator's interface that is used here."""

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
    """A field whose translation cannot be used."""

    field: Field
    translation: str
    reason: str


@dataclass(frozen=True, slots=True)
class TranslatedFile:
    """`data` is a StereoSet file's content without the examples that have a failure."""

    data: Mapping[str, Any]
    failures: tuple[Failure, ...]

    @property
    def examples(self) -> int:
        """Number of examples in `data`."""
        return sum(len(self.data["data"][test]) for test in TESTS)


def translate_stereoset(
    samples: Samples, translator: Translate, language: str, repairs: Mapping[tuple[str, str], str]
) -> TranslatedFile:
    """Translate all examples. `repairs`: (example, field) → corrected translation; they are checked like the others.

    A candidate sentence of the intrasentence test is the translated context with BLANK replaced by the translated word, as
    in the published translations. Raises InputError and EngineError as the translator does.
    """
    fields = list(_fields(samples))
    unknown = set(repairs) - {(field.example, field.name) for field in fields}
    if unknown:
        raise InputError(f"repair of {'/'.join(min(unknown))}: no such example and field: correct the repairs file")
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
        done[key] = _stripped(field, done[key])
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
    """Translations of contexts with BLANK; the first attempt's if every placeholder is lost."""
    done: dict[tuple[str, str], str] = {}
    pending = list(fields)
    for placeholder in PLACEHOLDERS:
        sources = list(dict.fromkeys(field.source.replace(BLANK, placeholder) for field in pending))
        answers = dict(zip(sources, translator.translate(sources, language), strict=True)) if sources else {}
        lost = []
        for field in pending:
            answer = answers[field.source.replace(BLANK, placeholder)].replace(placeholder, BLANK)
            # Without a valid attempt the first one is reported for repair.
            valid = answer.count(BLANK) == field.source.count(BLANK)
            if valid or placeholder == PLACEHOLDERS[0]:
                done[field.example, field.name] = answer
            if not valid:
                lost.append(field)
        pending = lost
    return done


def _mark(text: str) -> str:
    """The final full stop, exclamation mark or question mark of a text; empty if there is none."""
    last = text.rstrip().rstrip(_CLOSING)[-1:]
    last = _SAME_MARK.get(last, last)
    return last if last and last in MARKS else ""


def _stripped(field: Field, translation: str) -> str:
    """The translation without outer spaces, and a word or term without the full stop that some systems append."""
    text = translation.strip()
    whole = field.name == "context" or (field.test == "intersentence" and field.name != "target")
    if not whole and not _mark(field.source):
        text = text.rstrip(MARKS + "".join(_SAME_MARK))
    return text


def problem(field: Field, translation: str) -> str | None:
    """Why a translation cannot be used, None if it can."""
    if not translation:
        return "empty translation"
    expected, actual = field.source.count(BLANK), translation.count(BLANK)
    if actual != expected:
        return f"{BLANK} occurs {actual} times instead of {expected}"
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
    """The failures as CSV with the columns FAILURE_COLUMNS. With corrected translations it serves as a repairs file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FAILURE_COLUMNS)
    writer.writerows((f.field.example, f.field.name, f.field.source, f.translation, f.reason) for f in failures)
    return text.getvalue()


def read_repairs(path: Path) -> dict[tuple[str, str], str]:
    """Translations by (example, field) from a CSV file with the columns `example, field, translation` (others are ignored)."""
    rows = read_columns(path, ("example", "field", "translation"), "give a CSV file of corrected translations")
    return {(example, field): translation for _, (example, field, translation) in rows}
