"""Readers of EuroGEST: GEST 1.1 in 29 languages, its prompt scaffolds and quotation marks.

J. Rowe, M. Klimaszewski, L. Guillou, S. Vallor, A. Birch: EuroGEST (EMNLP 2025). In each language a sentence of GEST is either
neutral (it does not reveal the speaker's gender), a pair of a masculine and a feminine version, or absent.
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
"""Code → name of the language in the files. English is GEST 1.1 itself."""

SIZE = 3565
"""Rows of GEST 1.1."""

NEUTRAL_FILE = "gest_translations_gender_insensitive.csv"
GENDERED_FILE = "gest_translations_gender_sensitive.csv"
SCAFFOLD_FILE = "prompt_scaffolds.json"
QUOTES_FILE = "punc_map.json"

SCAFFOLDS = ("he said", "she said", "the man said", "the woman said")
"""The scaffolds' names in their file, the English texts: pronouns, then nouns, masculine before feminine."""

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
"""Columns of a frame of sentences. `row`: the sentence's row in GEST 1.1, the same for all languages; `kind`: `neutral` or
`gendered`; `group`: the stereotype. Sentences are unchanged, including outer spaces; null if the kind does not have them."""

HUB = ("GEST_ID", "Source", "Masculine", "Feminine", "Neutral", "Stereotype_ID")
"""Columns of the Hub's files, one per language (German.csv)."""

Entry = tuple[int, str, str | None, str | None, str | None]
"""row, stereotype, neutral, masculine, feminine"""


def known_languages(codes: Collection[str]) -> tuple[str, ...]:
    """The codes in the order of LANGUAGES; all languages if there are none. Raises InputError for an unknown language."""
    for code in codes:
        if code not in LANGUAGES:
            raise InputError(f"EuroGEST has no language {code!r}: choose from {', '.join(LANGUAGES)}")
    return tuple(code for code in LANGUAGES if not codes or code in codes)


# --- the sentences -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Collected:
    """Sentences and problems, collected file by file."""

    entries: dict[tuple[str, int], Entry]
    dropped: Counter[str]
    failures: list[tuple[str, str]]
    sha256: dict[str, str]

    def add(self, code: str, entry: Entry, where: str) -> None:
        """Add a sentence of a language; a second version is a failure."""
        if (code, entry[0]) in self.entries:
            self.failures.append((where, f"{LANGUAGES[code]}: GEST row {entry[0]} occurs twice; the first one is used"))
        else:
            self.entries[code, entry[0]] = entry


def read_tables(neutral: Path, gendered: Path, languages: Sequence[str], english: Path | None = None) -> Samples:
    """Read the two released tables, and GEST 1.1 (`english`) if English is among the language codes.

    Returns a frame with the columns ROWS, language by language, in GEST's order. Blank rows of the tables are dropped and
    counted. Rows with an empty sentence, with two equal sentences, or in both tables (the neutral one is used) are added to
    `failures`. Raises InputError, with file and line, for an unreadable file, a missing column, or a row without a valid GEST
    row number and stereotype.
    """
    collected = _Collected({}, Counter(), [], {})
    others = [code for code in languages if code != "en"]
    _neutral_table(neutral, others, collected)
    _gendered_table(gendered, others, collected)
    if "en" in languages:
        _english(_required(english), collected)
    return _samples(collected, languages)


def read_hub(folder: Path, languages: Sequence[str], english: Path | None = None) -> Samples:
    """Read the Hub's layout, one file per language (`German.csv`, columns HUB). Without an English file, GEST 1.1 is used.

    Otherwise as `read_tables`; a row without sentences is dropped and counted. Raises InputError for a missing file.
    """
    collected = _Collected({}, Counter(), [], {})
    for code in languages:
        path = folder / f"{LANGUAGES[code]}.csv"
        if code == "en" and not path.is_file():
            _english(_required(english), collected)
            continue
        if not path.is_file():
            raise InputError(f"no such file: {path}: download it from EuroGEST's repository on the Hub, or omit {code}")
        _hub_file(path, code, collected)
    return _samples(collected, languages)


def _required(english: Path | None) -> Path:
    if english is None:
        raise InputError("English is GEST 1.1: run `evaluator data fetch gest-1.1`")
    return english


def _samples(collected: _Collected, languages: Sequence[str]) -> Samples:
    place = {code: number for number, code in enumerate(languages)}
    ordered = sorted(collected.entries.items(), key=lambda entry: (place[entry[0][0]], entry[0]))
    present = {code for (code, _), _ in ordered}
    if absent := [code for code in languages if code not in present]:
        raise InputError(f"{', '.join(collected.sha256)}: no sentence in {LANGUAGES[absent[0]]}: restore the files")
    rows = [
        (number, row, code, "gendered" if neutral is None else "neutral", group, neutral, masculine, feminine)
        for number, ((code, _), (row, group, neutral, masculine, feminine)) in enumerate(ordered)
    ]
    frame = pl.DataFrame(rows, schema=ROWS, orient="row")
    return Samples(frame, collected.sha256, dict(collected.dropped), tuple(collected.failures))


def _neutral_table(path: Path, languages: Sequence[str], collected: _Collected) -> None:
    rows, collected.sha256[path.name] = read_csv(path)
    header = rows[0] if rows else []
    columns = {code: _column(path, header, LANGUAGES[code]) for code in languages}
    stereotype = _column(path, header, "stereotype_number")
    for line, row in _filled(path, rows, 1, collected):
        number, group = _numbers(path, line, row[0], row[stereotype])
        for code, at in columns.items():
            if row[at].strip():
                collected.add(code, (number, group, row[at], None, None), f"{path.name} row {number}")


def _gendered_table(path: Path, languages: Sequence[str], collected: _Collected) -> None:
    """Two header rows: the language and the speaker. A language has two adjacent columns, or none."""
    rows, collected.sha256[path.name] = read_csv(path)
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
    for line, row in _filled(path, rows, 2, collected):
        number, group = _numbers(path, line, row[0], row[stereotype])
        for code, (m, f) in columns.items():
            if not row[m].strip() and not row[f].strip():
                continue
            where = f"{path.name} row {number}"
            try:
                check_unequal(row[m], row[f])
            except BadSampleError as error:
                collected.failures.append((where, f"{LANGUAGES[code]}: {error}"))
            else:
                collected.add(code, (number, group, None, row[m], row[f]), where)


def _english(path: Path, collected: _Collected) -> None:
    rows, collected.sha256[path.name] = read_csv(path)
    for number, record in enumerate(records(path, rows, ("sentence", "stereotype"))):
        group = _numbers(path, number + 2, str(number), record["stereotype"])[1]
        collected.add("en", (number, group, record["sentence"], None, None), f"{path.name} row {number}")


def _hub_file(path: Path, code: str, collected: _Collected) -> None:
    rows, collected.sha256[path.name] = read_csv(path)
    for line, record in enumerate(records(path, rows, HUB), start=2):
        number, group = _numbers(path, line, record["GEST_ID"], record["Stereotype_ID"])
        neutral, pair = record["Neutral"], (record["Masculine"], record["Feminine"])
        where = f"{path.name} row {number}"
        if neutral.strip():
            collected.add(code, (number, group, neutral, None, None), where)
        if any(sentence.strip() for sentence in pair):
            try:
                check_unequal(*pair)
            except BadSampleError as error:
                collected.failures.append((where, f"{LANGUAGES[code]}: {error}"))
            else:
                collected.add(code, (number, group, None, *pair), where)
        elif not neutral.strip():
            collected.dropped[f"rows of {path.name} without a sentence"] += 1


def _column(path: Path, header: Sequence[str], name: str) -> int:
    if header.count(name) != 1:
        raise InputError(f"{path}, line 1: the header must name the column {name!r} once: restore the file")
    return header.index(name)


def _filled(path: Path, rows: Sequence[list[str]], begin: int, collected: _Collected) -> Iterator[tuple[int, list[str]]]:
    """Rows below the header with content besides their number; blank rows are counted."""
    for line, row in enumerate(rows[begin:], start=begin + 1):
        if any(cell.strip() for cell in row[1:]):
            yield line, row
        else:
            collected.dropped[f"blank rows of {path.name}"] += 1


def _numbers(path: Path, line: int, row: str, stereotype: str) -> tuple[int, str]:
    """GEST's row number and the stereotype, which some files write as a decimal number."""
    if not row.strip().isdecimal() or int(row) >= SIZE:
        raise InputError(f"{path}, line {line}: {row!r} is not a row of GEST 1.1 (0 to {SIZE - 1}): correct the row")
    group = stereotype.strip().removesuffix(".0")
    if group not in STEREOTYPES:
        raise InputError(f"{path}, line {line}: stereotype {stereotype!r} is not one of 1 to 16: correct the row")
    return int(row), group


# --- scaffolds and quotation marks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frames:
    """Quotation marks and scaffolds for neutral sentences, by language code.

    Attributes:
        quotes: opening and closing marks; closing marks include punctuation.
        scaffolds: name (see SCAFFOLDS) → text, as published (some end in a space).
        sha256: file name → sha256.
    """

    quotes: Mapping[str, tuple[str, str]]
    scaffolds: Mapping[str, Mapping[str, str]]
    sha256: Mapping[str, str]


def read_frames(scaffolds: Path, quotes: Path) -> Frames:
    """Read both JSON files. English scaffolds are the scaffolds' names.

    Raises InputError for an unreadable file, or one without exactly these scaffolds and languages (another version).
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


def _same(path: Path, collected: set[str], wanted: set[str], what: str) -> None:
    wrong = sorted(wanted - collected) or sorted(collected - wanted)
    if wrong:
        verb = "lacks" if wanted - collected else "has the unknown"
        raise InputError(
            f"{path}: unsupported version of the file: it {verb} {what} {wrong[0]!r}: run `evaluator data fetch eurogest`"
        )
