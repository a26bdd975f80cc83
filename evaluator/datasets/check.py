"""Are the files of a data set there, whole and unchanged?"""

import csv
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.datasets.registry import DataFile, Dataset, Unit, path_of

Status = Literal["ok", "converted", "changed", "missing"]


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What is known about one file.

    Attributes:
        status: `ok`: equal to the public file (or shipped with the package). `converted`: all rows are there, but the file
            was made from the public one, so their digests can't be compared. `changed`: neither. `missing`.
        rows: rows found, None if they can't be counted.
        problem: what is wrong, for `changed` and `missing`.
    """

    dataset: str
    path: Path
    status: Status
    rows: int | None = None
    problem: str | None = None


def check(dataset: Dataset, root: Path) -> list[FileStatus]:
    """Compare each file of the data set under `root` with the registry."""
    return [check_file(dataset, file, path_of(dataset, file, root)) for file in dataset.files]


def check_file(dataset: Dataset, file: DataFile, path: Path) -> FileStatus:
    """Compare one file, which should lie at `path`, with the registry."""
    if not path.is_file():
        return FileStatus(dataset.name, path, "missing", problem="no such file")
    found = sha256(path)
    rows = count(path, file.unit)
    if file.pinned is not None and found == file.pinned:
        return FileStatus(dataset.name, path, "ok", rows)
    if file.rows is not None and rows != file.rows:
        return FileStatus(dataset.name, path, "changed", rows, f"{rows or 'no'} rows instead of {file.rows}")
    if not file.sources:
        return FileStatus(dataset.name, path, "ok", rows)
    if file.converted or file.unit == "examples":  # JSON written anew is the same data in other bytes
        return FileStatus(dataset.name, path, "converted", rows)
    return FileStatus(dataset.name, path, "changed", rows, f"sha256 {found[:12]}… instead of {(file.pinned or '')[:12]}…")


def sha256(path: Path) -> str:
    """The file's sha256 in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def count(path: Path, unit: Unit) -> int | None:
    """How many rows the file has, None if it can't be read as what it should be."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            if unit == "examples":
                return sum(map(len, json.load(file)["data"].values()))
            if unit == "keys":
                return len(json.load(file).keys())
            if unit == "lines":
                return sum(bool(line.strip()) for line in file)
            records = sum(bool(record) for record in csv.reader(file))
            return records - 1 if unit == "table" else records
    except (ValueError, csv.Error, KeyError, TypeError, AttributeError):
        return None
