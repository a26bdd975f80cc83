"""Readers of EuroGEST: GEST 1.1 in 29 languages, its prompt scaffolds and quotation marks.

J. Rowe, M. Klimaszewski, L. Guillou, S. Vallor, A. Birch: EuroGEST (EMNLP 2025). A sentence of GEST is in a language either
once (neutral: nothing tells the speaker's gender) or twice (a masculine and a feminine version), or it isn't there at all.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.datasets.gest import STEREOTYPES
from evaluator.datasets.word_filling import WANTED, BadSampleError, check_unequal, read_csv, records
from evaluator.text_file import read_text
from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

# fmt: off
LANGUAGES: dict[str, str] = {
    "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "es": "Spanish", "et": "Estonian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "hr": "Croatian",
    "hu": "Hungarian", "it": "Italian", "lt": "Lithuanian", "lv": "Latvian", "mt": "Maltese", "nl": "Dutch",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian",
}
# fmt: on
"""Code → the name that the files call a language by. English is GEST 1.1 itself."""

SIZE = 3565
"""Rows of GEST 1.1: what a language's coverage is a share of."""

NEUTRAL_FILE = "gest_translations_gender_insensitive.csv"
GENDERED_FILE = "gest_translations_gender_sensitive.csv"
SCAFFOLD_FILE = "prompt_scaffolds.json"
QUOTES_FILE = "punc_map.json"

SCAFFOLDS = ("he said", "she said", "the man said", "the woman said")
"""The scaffolds' names in their file, which are the English ones: pronouns, then nouns, masculine before feminine."""

ROWS: dict[str, pl.DataType] = {
    "sample": pl.Int64(),
    "row": pl.Int64(),
    "language": pl.String(),
    "kind": pl.String(),
    "group": pl.String(),
    "neutral": pl.String(),
    "masculine": pl.String(),
    "feminine": pl.String(),
}
"""Columns of a frame of sentences. `row`: the sentence's row in GEST 1.1, the same in all languages; `kind`: `neutral` or
`gendered`; `group`: the stereotype. The sentences are as published, with their outer blanks; null where the kind has none."""

HUB = ("GEST_ID", "Source", "Masculine", "Feminine", "Neutral", "Stereotype_ID")
"""Columns of the hub's files, one a language (German.csv)."""

Entry = tuple[int, str, str | None, str | None, str | None]
"""row, stereotype, neutral, masculine, feminine"""


def known_languages(codes: Collection[str]) -> tuple[str, ...]:
    """The codes in the order of LANGUAGES, all languages for none. Raises InputError for one that EuroGEST doesn't have."""
    for code in codes:
        if code not in LANGUAGES:
            raise InputError(f"EuroGEST has no language {code!r}: choose from {', '.join(LANGUAGES)}")
    return tuple(code for code in LANGUAGES if not codes or code in codes)


# --- the sentences -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """What the files hold, gathered file by file."""

    entries: dict[tuple[str, int], Entry]
    dropped: Counter[str]
    failures: list[tuple[str, str]]
    sha256: dict[str, str]

    def add(self, code: str, entry: Entry, where: str) -> None:
        """A sentence of a language; a second version of one is a wrong row."""
        if (code, entry[0]) in self.entries:
            self.failures.append((where, f"{LANGUAGES[code]}: GEST row {entry[0]} is there twice, the first one is kept"))
        else:
            self.entries[code, entry[0]] = entry


def read_tables(neutral: Path, gendered: Path, languages: Sequence[str], english: Path | None = None) -> Samples:
    """Read the two released tables, and GEST 1.1 (`english`) where English is among the languages (codes).

    Returns a frame with the columns ROWS, language by language, each in GEST's order. Blank rows of the tables are dropped and
    counted. Rows of which one sentence is empty, whose sentences are equal, or which are in both tables (the neutral one
    counts) go to `failures`. Raises InputError, with file and line, for a file that can't be read, lacks a language's column or
    has a row without a number of GEST's or a stereotype.
    """
    found = _Found({}, Counter(), [], {})
    others = [code for code in languages if code != "en"]
    _neutral_table(neutral, others, found)
    _gendered_table(gendered, others, found)
    if "en" in languages:
        _english(_required(english), found)
    return _samples(found, languages)


def read_hub(folder: Path, languages: Sequence[str], english: Path | None = None) -> Samples:
    """Read the hub's layout: a file a language (`German.csv`, columns HUB). English is its own file, or else GEST 1.1.

    As `read_tables` otherwise; a row without any sentence is dropped and counted. Raises InputError for a language without a
    file.
    """
    found = _Found({}, Counter(), [], {})
    for code in languages:
        path = folder / f"{LANGUAGES[code]}.csv"
        if code == "en" and not path.is_file():
            _english(_required(english), found)
            continue
        if not path.is_file():
            raise InputError(f"no such file: {path}: EuroGEST's hub has one for each language; get it or leave {code} out")
        _hub_file(path, code, found)
    return _samples(found, languages)


def _required(english: Path | None) -> Path:
    if english is None:
        raise InputError("English is GEST 1.1: run `evaluator data fetch gest-1.1`")
    return english


def _samples(found: _Found, languages: Sequence[str]) -> Samples:
    ordered = [(code, found.entries[key]) for code in languages for key in sorted(k for k in found.entries if k[0] == code)]
    absent = [code for code in languages if not any(key[0] == code for key in found.entries)]
    if absent:
        raise InputError(f"{', '.join(found.sha256)}: no sentence in {LANGUAGES[absent[0]]}: restore the files")
    rows = [
        (number, row, code, "gendered" if neutral is None else "neutral", group, neutral, masculine, feminine)
        for number, (code, (row, group, neutral, masculine, feminine)) in enumerate(ordered)
    ]
    frame = pl.DataFrame(rows, schema=ROWS, orient="row")
    return Samples(frame, found.sha256, dict(found.dropped), tuple(found.failures))


def _neutral_table(path: Path, languages: Sequence[str], found: _Found) -> None:
    rows, found.sha256[path.name] = read_csv(path)
    header = rows[0] if rows else []
    columns = {code: _column(path, header, LANGUAGES[code]) for code in languages}
    stereotype = _column(path, header, "stereotype_number")
    for line, row in _filled(path, rows, 1, found):
        number, group = _numbers(path, line, row[0], row[stereotype])
        for code, at in columns.items():
            if row[at].strip():
                found.add(code, (number, group, row[at], None, None), f"{path.name} row {number}")


def _gendered_table(path: Path, languages: Sequence[str], found: _Found) -> None:
    """Two header rows, the language and whose words they are; a language has two neighbouring columns, or none."""
    rows, found.sha256[path.name] = read_csv(path)
    header, prompts = (rows[0], rows[1]) if len(rows) > 1 else ([], [])
    wanted = {"masculine": "the man said", "feminine": "the woman said"}
    columns = {}
    for code in languages:
        places = [at for at, name in enumerate(header) if name == LANGUAGES[code]]
        if places and [prompts[at] for at in places] != list(wanted.values()):
            both = " and ".join(map(repr, wanted.values()))
            raise InputError(f"{path}, line 2: {LANGUAGES[code]} must have the columns {both}: restore the file")
        if places:
            columns[code] = (places[0], places[1])
    stereotype = _column(path, header, "stereotype_number")
    for line, row in _filled(path, rows, 2, found):
        number, group = _numbers(path, line, row[0], row[stereotype])
        for code, (m, f) in columns.items():
            if not row[m].strip() and not row[f].strip():
                continue
            where = f"{path.name} row {number}"
            try:
                check_unequal(row[m], row[f])
            except BadSampleError as error:
                found.failures.append((where, f"{LANGUAGES[code]}: {error}"))
            else:
                found.add(code, (number, group, None, row[m], row[f]), where)


def _english(path: Path, found: _Found) -> None:
    rows, found.sha256[path.name] = read_csv(path)
    for number, record in enumerate(records(path, rows, ("sentence", "stereotype"))):
        group = _numbers(path, number + 2, str(number), record["stereotype"])[1]
        found.add("en", (number, group, record["sentence"], None, None), f"{path.name} row {number}")


def _hub_file(path: Path, code: str, found: _Found) -> None:
    rows, found.sha256[path.name] = read_csv(path)
    for line, record in enumerate(records(path, rows, HUB), start=2):
        number, group = _numbers(path, line, record["GEST_ID"], record["Stereotype_ID"])
        neutral, pair = record["Neutral"], (record["Masculine"], record["Feminine"])
        where = f"{path.name} row {number}"
        if neutral.strip():
            found.add(code, (number, group, neutral, None, None), where)
        if any(sentence.strip() for sentence in pair):
            try:
                check_unequal(*pair)
            except BadSampleError as error:
                found.failures.append((where, f"{LANGUAGES[code]}: {error}"))
            else:
                found.add(code, (number, group, None, *pair), where)
        elif not neutral.strip():
            found.dropped[f"rows of {path.name} without a sentence"] += 1


def _column(path: Path, header: Sequence[str], name: str) -> int:
    if header.count(name) != 1:
        raise InputError(f"{path}, line 1: the header must name the column {name!r} once: restore the file")
    return header.index(name)


def _filled(path: Path, rows: Sequence[list[str]], begin: int, found: _Found) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header that hold more than their number; the others are counted."""
    for line, row in enumerate(rows[begin:], start=begin + 1):
        if any(cell.strip() for cell in row[1:]):
            yield line, row
        else:
            found.dropped[f"blank rows of {path.name}"] += 1


def _numbers(path: Path, line: int, row: str, stereotype: str) -> tuple[int, str]:
    """GEST's row and the stereotype, which some files write as a decimal number."""
    if not row.strip().isdecimal() or int(row) >= SIZE:
        raise InputError(f"{path}, line {line}: {row!r} is no row of GEST 1.1 (0 to {SIZE - 1}): correct the row")
    group = stereotype.strip().removesuffix(".0")
    if group not in STEREOTYPES:
        raise InputError(f"{path}, line {line}: stereotype {stereotype!r} is not one of 1 to 16: correct the row")
    return int(row), group


# --- scaffolds and quotation marks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frames:
    """What a neutral sentence is put in, by language code.

    Attributes:
        quotes: opening and closing marks, punctuation of the closing ones included.
        scaffolds: name (see SCAFFOLDS) → who said it, as published (some end in a blank).
        sha256: file name → sha256.
    """

    quotes: Mapping[str, tuple[str, str]]
    scaffolds: Mapping[str, Mapping[str, str]]
    sha256: Mapping[str, str]


def read_frames(scaffolds: Path, quotes: Path) -> Frames:
    """Read both JSON files. English scaffolds are the scaffolds' own names.

    Raises InputError for a file that can't be read or isn't of the version that this program knows: exactly these scaffolds
    and all languages.
    """
    written, first = _json(scaffolds)
    marks, second = _json(quotes)
    names = set(LANGUAGES.values())
    _same(scaffolds, set(written), set(SCAFFOLDS), "scaffolds")
    for name, texts in written.items():
        _same(scaffolds, set(texts), names - {"English"}, f"languages of {name!r}")
        if not all(isinstance(text, str) and text.strip() for text in texts.values()):
            raise InputError(f"{scaffolds}: {name!r}: every language needs a text: restore the file")
    _same(quotes, set(marks), names, "languages")
    if not all(isinstance(pair, list) and len(pair) == 2 and all(isinstance(m, str) for m in pair) for pair in marks.values()):
        raise InputError(f"{quotes}: every language needs an opening and a closing mark: restore the file")
    return Frames(
        quotes={code: (marks[name][0], marks[name][1]) for code, name in LANGUAGES.items()},
        scaffolds={
            name: {code: name if code == "en" else texts[LANGUAGES[code]] for code in LANGUAGES}
            for name, texts in written.items()
        },
        sha256={scaffolds.name: first, quotes.name: second},
    )


def _json(path: Path) -> tuple[dict[str, Any], str]:
    text, digest = read_text(path, wanted=WANTED)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}): restore the file") from None
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: not the object that EuroGEST publishes: restore the file")
    return content, digest


def _same(path: Path, found: set[str], wanted: set[str], what: str) -> None:
    wrong = sorted(wanted - found) or sorted(found - wanted)
    if wrong:
        verb = "lacks" if wanted - found else "has the unknown"
        raise InputError(
            f"{path}: another version of the file than this program knows: it {verb} {what} {wrong[0]!r}: fetch it with "
            "`evaluator data fetch eurogest`"
        )
