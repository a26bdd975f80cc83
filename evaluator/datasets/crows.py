"""Readers of CrowS-Pairs (original and revised) and of its gender part with control pairs.

N. Nangia, C. Vania, R. Bhalerao, S. R. Bowman: CrowS-Pairs (EMNLP 2020); the revision and the control pairs come from
M. Pikuliak, I. Beňová, V. Bachratý (EACL 2023).
"""

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import polars as pl

from evaluator.datasets.word_filling import QUADRUPLES, SENTENCES, BadSampleError, check_pair, read_csv, records
from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

BIAS_TYPES = (
    "race-color",
    "gender",
    "socioeconomic",
    "nationality",
    "religion",
    "age",
    "sexual-orientation",
    "physical-appearance",
    "disability",
)

PAIRS: dict[str, pl.DataType] = {
    "sample": pl.Int64(),
    "bias_type": pl.String(),
    "direction": pl.String(),
    "s0": pl.String(),
    "s2": pl.String(),
}
"""Columns of a frame of pairs: s0 is the more stereotypical sentence (sent_more), s2 the less stereotypical one. `direction` is
`stereo` if s0 shows a stereotype about a disadvantaged group, `antistereo` if s2 contradicts one."""


def known_types(wanted: Collection[str]) -> Collection[str]:
    """The names in lower case. Raises InputError for a bias type that CrowS-Pairs does not have."""
    lower = [name.strip().lower() for name in wanted]
    for name in lower:
        if name not in BIAS_TYPES:
            raise InputError(f"CrowS-Pairs has no bias type {name!r}: choose from {', '.join(BIAS_TYPES)}")
    return lower


def read_pairs(path: Path) -> Samples:
    """Read CrowS-Pairs, original or revised: columns sent_more, sent_less, stereo_antistereo, bias_type.

    Bias types are converted to lower case; rows with an unknown bias type are dropped and counted. `sample` is the row number.
    Rows with an empty sentence, or whose sentences share no word, are added to `failures`. Raises InputError for an unreadable
    file or a missing column.
    """
    rows, digest = read_csv(path)
    usable: list[dict[str, object]] = []
    dropped: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    columns = ("sent_more", "sent_less", "stereo_antistereo", "bias_type")
    for number, record in enumerate(records(path, rows, columns)):
        more, less, direction, written = (record[column] for column in columns)
        bias_type = written.strip().lower()
        if bias_type not in BIAS_TYPES:
            dropped[f"bias type {written.strip() or 'empty'} is none of the nine"] += 1
            continue
        try:
            check_pair(more, less)
        except BadSampleError as error:
            failures.append((f"{path.name} row {number}", str(error)))
            continue
        usable.append({"sample": number, "bias_type": bias_type, "direction": direction, "s0": more, "s2": less})
    return Samples(pl.DataFrame(usable, schema=PAIRS), {path.name: digest}, dict(dropped), tuple(failures))


def read_controls(path: Path) -> Samples:
    """Read CrowS-Pairs gender with control pairs. The file has no header; each column has an original pair in rows 0 and 1, and
    its control pairs in rows 2 and 3, 4 and 5, ….

    s0 is row 0, s2 row 1, s1 row i and s3 row i + 1 (method.md §3). Original pairs without a control pair are dropped and
    counted; a pair with one empty cell is added to `failures`. Raises InputError for an unreadable file or an odd number of
    rows.
    """
    rows, digest = read_csv(path)
    if len(rows) < 4 or len(rows) % 2:
        raise InputError(f"{path}: {len(rows)} rows instead of an even number of at least 4: restore the file")
    usable: list[dict[str, object]] = []
    failures: list[tuple[str, str]] = []
    dropped: Counter[str] = Counter()
    for column, cells in enumerate(zip(*rows, strict=True)):
        controls = [(i, cells[i], cells[i + 1]) for i in range(2, len(cells), 2) if cells[i].strip() or cells[i + 1].strip()]
        if not controls:
            dropped["original pairs without a control pair"] += 1
        for row, stereotype, anti in controls:
            try:
                check_pair(cells[0], cells[1])
                check_pair(stereotype, anti)
            except BadSampleError as error:
                failures.append((f"{path.name} column {column} rows {row} and {row + 1}", str(error)))
                continue
            sentences = (cells[0], stereotype, cells[1], anti)
            place = {"sample": len(usable), "original": column, "id": f"column {column}, rows {row} and {row + 1}"}
            usable.append({**place, **dict(zip(SENTENCES, sentences, strict=True))})
    return Samples(
        pl.DataFrame(usable, schema={**QUADRUPLES, "id": pl.String()}), {path.name: digest}, dict(dropped), tuple(failures)
    )
