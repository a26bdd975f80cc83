"""Readers of sentence pairs: CrowS-Pairs in the layouts in which its languages are published, and files of the user's own.

N. Nangia et al.: CrowS-Pairs (EMNLP 2020); A. Névéol et al.: French CrowS-Pairs (ACL 2022) and its followers in other
languages; E. Strazda, G. Spanakis: Dutch CrowS-Pairs (2025). Their files have a header with `sent_more`, `sent_less`,
`bias_type` and `stereo_antistereo`, between commas or (French) tabs, in UTF-8 or (Dutch) Windows-1252; where a language stands
beside the English original its two sentence columns end in its code (`sent_more_ca_ES`).
"""

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from evaluator.csv_file import parsed, read_as
from evaluator.datasets import crows
from evaluator.datasets.word_filling import BadSampleError, check_unequal, records
from evaluator.text_file import NAME_IT, encoding_of, read_text
from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

PAIRS: dict[str, pl.DataType] = {
    "sample": pl.Int64(),
    "group": pl.String(),
    "language": pl.String(),
    "direction": pl.String(),
    "more": pl.String(),
    "less": pl.String(),
}
"""Columns of a frame of pairs. `more` is the more stereotypical sentence whatever the direction; `direction` is `stereo` (it
shows a stereotype of a disadvantaged group), `antistereo` (`less` contradicts one) or null where the file doesn't tell."""

DIRECTIONS = ("stereo", "antistereo")

ALL = "all"
"""What measures call all of a model's pairs."""

WHOLE = "pairs"
"""The group of all pairs of a file without groups."""

_SUFFIX = re.compile(r"sent_more_(([a-z]{2,3})(_[A-Z]{2})?)")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a file has what: names of its columns, None for what it doesn't have.

    Attributes:
        language: the language's code, of all pairs.
        language_column: column of each pair's own code instead.
    """

    more: str = "sent_more"
    less: str = "sent_less"
    group: str | None = "bias_type"
    direction: str | None = "stereo_antistereo"
    language: str = "en"
    language_column: str | None = None

    @property
    def named(self) -> list[str]:
        """The columns that the file must have."""
        return [name for name in (self.more, self.less, self.group, self.direction, self.language_column) if name is not None]


def read_english(path: Path) -> Samples:
    """CrowS-Pairs in English, as `crows.read_pairs` reads it, with the columns PAIRS."""
    found = crows.read_pairs(path)
    frame = found.frame.rename({"bias_type": "group", "s0": "more", "s2": "less"}).with_columns(language=pl.lit("en"))
    return replace(found, frame=frame.select(*PAIRS))


def read_pairs(path: Path, columns: Columns | None = None, encoding: str | None = None) -> Samples:
    """Read pairs from a CSV with a header; without `columns` one in a published layout of CrowS-Pairs.

    `encoding` is the file's; None for Unicode's (see `text_file`) and, of the published Dutch file alone, Windows-1252.

    `sample` numbers the file's rows. Rows with an empty sentence or group, or with two equal sentences, go to `failures`.
    Raises InputError, with file and row, for a file that can't be read, lacks a column, has a direction that isn't one of
    DIRECTIONS or a group whose rates couldn't be told from those of all pairs or of a direction, or has no usable pair.
    """
    if encoding is None and _published_dutch(path):
        encoding = DUTCH
    text, digest = read_text(path, NAME_IT, wanted="give a CSV file of sentence pairs", encoding=encoding)
    delimiter = _delimiter(text)
    numbered = list(parsed(io.StringIO(text, newline=""), path, delimiter))
    lines, rows = [line for line, _ in numbered][1:], [row for _, row in numbered]
    known = columns or published(rows[0] if rows else [])
    kept: list[tuple[object, ...]] = []
    failures: list[tuple[str, str]] = []
    for number, (line, record) in enumerate(zip(lines, records(path, rows, known.named), strict=True)):
        try:
            kept.append((number, *_pair(record, known)))
        except BadSampleError as error:
            failures.append((f"{path.name}, line {line}", str(error)))
        except ValueError as error:
            raise InputError(f"{path}, line {line}: {error}") from None
    if not kept:
        why = f"; the first: {failures[0][1]}" if failures else ""
        raise InputError(f"{path}: no usable pair in {len(failures)} rows{why}")
    facts = read_as(path, encoding_of(path, encoding), delimiter)
    frame = pl.DataFrame(kept, schema=PAIRS, orient="row")
    frame = frame.with_columns(group=pl.col("group").replace(_spellings(frame["group"])))
    return Samples(frame, {path.name: digest}, {}, tuple(failures), facts)


def _spellings(groups: pl.Series) -> dict[str, str]:
    """Each group as written → its spelling in results: in lower case where the file has it so too, else as it comes first."""
    written = groups.unique(maintain_order=True).to_list()
    chosen: dict[str, str] = {}
    for name in (*(name for name in written if name == name.lower()), *written):
        chosen.setdefault(name.lower(), name)
    return {name: chosen[name.lower()] for name in written}


def _pair(record: Mapping[str, str], columns: Columns) -> tuple[str, str, str | None, str, str]:
    """group, language, direction, more, less. Raises BadSampleError for a row to leave out, ValueError for a wrong file."""
    more, less = record[columns.more], record[columns.less]
    check_unequal(more, less)
    group = WHOLE if columns.group is None else record[columns.group].strip()
    language = columns.language if columns.language_column is None else record[columns.language_column].strip().lower()
    for cell, name in ((group, columns.group), (language, columns.language_column)):
        if not cell:
            raise BadSampleError(f"the column {name} is empty")
    direction = None if columns.direction is None else record[columns.direction].strip().lower()
    if direction is not None and direction not in DIRECTIONS:
        raise ValueError(f"{columns.direction} {direction!r} is not one of {', '.join(DIRECTIONS)}: correct the row")
    if group.lower() == ALL or (direction is not None and group.lower() in DIRECTIONS):
        raise ValueError(f"{columns.group} {group!r} is what reports call pairs of several groups: give the group another name")
    return group, language, direction, more, less


def published(header: Sequence[str]) -> Columns:
    """The columns of a published layout: sentences with a language's code where there are such (of one language).

    A file without groups or directions has none.
    """
    known = Columns()
    if known.group not in header:
        known = replace(known, group=None)
    if known.direction not in header:
        known = replace(known, direction=None)
    suffixes = [match for name in header if (match := _SUFFIX.fullmatch(name))]
    if len(suffixes) != 1:
        return known
    ending, language = suffixes[0][1], suffixes[0][2]
    return replace(known, more=f"sent_more_{ending}", less=f"sent_less_{ending}", language=language)


DUTCH = "cp1252"
_DUTCH_FIRST = "5dcd73c2b8b091ecc829de3a504042021879783e1684e0deb9808316f9f52eea"
"""sha256 of the two sentences of the published Dutch file's first row, a line each."""

_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")
"""A character beyond ASCII in UTF-8, which Dutch text in Windows-1252 doesn't look like."""


def _published_dutch(path: Path) -> bool:
    """Whether a file begins as the Dutch CrowS-Pairs do, which are published in Windows-1252, and nothing of it is UTF-8."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    rows = csv.DictReader(io.StringIO(content[:5000].decode("latin-1"), newline=""))
    first = next(rows, None) or {}
    said = f"{first.get('sent_more')}\n{first.get('sent_less')}".encode("latin-1")
    return hashlib.sha256(said).hexdigest() == _DUTCH_FIRST and not content.isascii() and _SEQUENCE.search(content) is None


def _delimiter(text: str) -> str:
    """Whichever of comma, tab and semicolon the header has most of."""
    header = next(iter(text.splitlines()), "")
    (delimiter, _), *_ = Counter({sign: header.count(sign) for sign in ",\t;"}).most_common(1)
    return delimiter
