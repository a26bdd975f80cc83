"""Readers of sentence pairs: CrowS-Pairs in the published layouts of its languages, and custom files.

N. Nangia et al.: CrowS-Pairs (EMNLP 2020); A. Névéol et al.: French CrowS-Pairs (ACL 2022), and later versions in other
languages; E. Strazda, G. Spanakis: Dutch CrowS-Pairs (2025). Their files have a header with `sent_more`, `sent_less`,
`bias_type` and `stereo_antistereo`, separated by commas or (French) tabs, in UTF-8 or (Dutch) Windows-1252. If a file also
contains the English original, the two columns of the language end in its code (`sent_more_ca_ES`).
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
"""Columns of a frame of pairs. `more` is the more stereotypical sentence in both directions. `direction` is `stereo` (it shows
a stereotype about a disadvantaged group), `antistereo` (`less` contradicts one), or null if the file does not have it."""

DIRECTIONS = ("stereo", "antistereo")

ALL = "all"
"""Name of the group of all pairs in measures."""

WHOLE = "pairs"
"""The group of all pairs of a file without groups."""

_SUFFIX = re.compile(r"sent_more_(([a-z]{2,3})(_[A-Z]{2})?)")


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of a file's columns, None for columns that it does not have.

    Attributes:
        language: language code of all pairs.
        language_column: column with the language code of each pair, instead.
    """

    more: str = "sent_more"
    less: str = "sent_less"
    group: str | None = "bias_type"
    direction: str | None = "stereo_antistereo"
    language: str = "en"
    language_column: str | None = None

    @property
    def named(self) -> list[str]:
        """The columns that the file must have, by name."""
        return [name for name in (self.more, self.less, self.group, self.direction, self.language_column) if name is not None]


def read_english(path: Path) -> Samples:
    """Read the English CrowS-Pairs with `crows.read_pairs`, and return the columns PAIRS."""
    samples = crows.read_pairs(path)
    frame = samples.frame.rename({"bias_type": "group", "s0": "more", "s2": "less"}).with_columns(language=pl.lit("en"))
    return replace(samples, frame=frame.select(*PAIRS))


def read_pairs(path: Path, columns: Columns | None = None, encoding: str | None = None) -> Samples:
    """Read pairs from a CSV with a header. Without `columns`, a published layout of CrowS-Pairs is expected.

    `encoding`: see `text_file`; None also recognises the published Dutch file in Windows-1252.

    `sample` is the row number. Rows with an empty sentence or group, or with two equal sentences, are added to `failures`.
    Raises InputError, with file and row, for an unreadable file, a missing column, an unknown direction, a group whose name is
    reserved for reports, and a file without usable pairs.
    """
    if encoding is None and _published_dutch(path):
        encoding = DUTCH
    text, digest = read_text(path, NAME_IT, wanted="give a CSV file of sentence pairs", encoding=encoding)
    delimiter = _delimiter(text)
    numbered = list(parsed(io.StringIO(text, newline=""), path, delimiter))
    lines, rows = [line for line, _ in numbered][1:], [row for _, row in numbered]
    known = columns or published(rows[0] if rows else [])
    usable: list[tuple[object, ...]] = []
    failures: list[tuple[str, str]] = []
    for number, (line, record) in enumerate(zip(lines, records(path, rows, known.named), strict=True)):
        try:
            usable.append((number, *_pair(record, known)))
        except BadSampleError as error:
            failures.append((f"{path.name}, line {line}", str(error)))
        except ValueError as error:
            raise InputError(f"{path}, line {line}: {error}") from None
    if not usable:
        why = f"; the first: {failures[0][1]}" if failures else ""
        raise InputError(f"{path}: no usable pair in {len(failures)} rows{why}")
    facts = read_as(path, encoding_of(path, encoding), delimiter)
    frame = pl.DataFrame(usable, schema=PAIRS, orient="row")
    frame = frame.with_columns(group=pl.col("group").replace(_spellings(frame["group"])))
    return Samples(frame, {path.name: digest}, {}, tuple(failures), facts)


def _spellings(groups: pl.Series) -> dict[str, str]:
    """Group as written → its spelling in results: lower case if the file has it too, else the first spelling."""
    written = groups.unique(maintain_order=True).to_list()
    chosen: dict[str, str] = {}
    for name in (*(name for name in written if name == name.lower()), *written):
        chosen.setdefault(name.lower(), name)
    return {name: chosen[name.lower()] for name in written}


def _pair(record: Mapping[str, str], columns: Columns) -> tuple[str, str, str | None, str, str]:
    """group, language, direction, more, less. Raises BadSampleError for a row to skip, ValueError for an invalid file."""
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
        raise ValueError(f"{columns.group} {group!r} is reserved for rates over several groups: rename the group")
    return group, language, direction, more, less


def published(header: Sequence[str]) -> Columns:
    """The columns of a published layout, preferring sentence columns with the code of a single language."""
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
"""sha256 of the two sentences in the first row of the published Dutch file, one per line."""

_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")
"""A UTF-8 character beyond ASCII, which does not occur in Dutch text in Windows-1252."""


def _published_dutch(path: Path) -> bool:
    """Whether a file begins like the published Dutch CrowS-Pairs (Windows-1252) and contains no UTF-8."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    rows = csv.DictReader(io.StringIO(content[:5000].decode("latin-1"), newline=""))
    first = next(rows, None) or {}
    pair = f"{first.get('sent_more')}\n{first.get('sent_less')}".encode("latin-1")
    return hashlib.sha256(pair).hexdigest() == _DUTCH_FIRST and not content.isascii() and _SEQUENCE.search(content) is None


def _delimiter(text: str) -> str:
    """The most frequent of comma, tab and semicolon in the header."""
    header = next(iter(text.splitlines()), "")
    (delimiter, _), *_ = Counter({sign: header.count(sign) for sign in ",\t;"}).most_common(1)
    return delimiter
