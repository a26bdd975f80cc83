"""Check that the files of a data set are present, complete and unchanged."""

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.datasets.registry import (
    DataFile,
    Dataset,
    Unit,
    cache_folder,
    datasets,
    folder,
    named,
    path_of,
    published_scores,
)
from evaluator.vocabulary import DataSource

Status = Literal["ok", "converted", "changed", "missing"]


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The result of checking one file.

    Attributes:
        status: `ok`: equal to the public file, or part of the package. `converted`: complete, but converted from the public
            file, so that digests cannot be compared. `changed`: neither. `missing`.
        rows: number of rows, None if they cannot be counted.
        problem: the reason for `changed` and `missing`.
    """

    dataset: str
    path: Path
    status: Status
    rows: int | None = None
    problem: str | None = None


def present(data: Path | None = None) -> Iterator[tuple[Dataset, Literal["shipped", "yes", "some", "no"]]]:
    """Every named data set, and how many of its files are here; `data`: folder of the data sets (default: the cache)."""
    for each in (*datasets().values(), *published_scores().values()):
        root = _place(each.name, data)
        there = [path_of(each, file, root).is_file() for file in each.files]
        yield each, "shipped" if each.shipped else "yes" if all(there) else "some" if any(there) else "no"


def check_datasets(names: Sequence[str] = (), data: Path | None = None) -> list[FileStatus]:
    """Compare the files of these data sets (default: all, without the published scores) with the registry.

    Raises InputError for an unknown name.
    """
    return [status for each in named(names or list(datasets())) for status in check(each, _place(each.name, data))]


def _place(name: str, data: Path | None) -> Path:
    return cache_folder() if name in published_scores() else folder(DataSource(data))


def check(dataset: Dataset, root: Path) -> list[FileStatus]:
    """Compare each file of the data set under `root` with the registry."""
    return [check_file(dataset, file, path_of(dataset, file, root)) for file in dataset.files]


def check_file(dataset: Dataset, file: DataFile, path: Path) -> FileStatus:
    """Compare the file at `path` with the registry."""
    if not path.is_file():
        return FileStatus(dataset.name, path, "missing", problem="no such file")
    digest = sha256(path)
    rows = count(path, file.unit)
    if file.pinned is not None and digest == file.pinned:
        return FileStatus(dataset.name, path, "ok", rows)
    if file.rows is not None and rows != file.rows:
        return FileStatus(dataset.name, path, "changed", rows, f"{rows or 'no'} rows instead of {file.rows}")
    if not file.sources:
        return FileStatus(dataset.name, path, "ok", rows)
    if file.converted or file.unit == "examples":  # rewritten JSON has the same data in other bytes
        return FileStatus(dataset.name, path, "converted", rows)
    return FileStatus(dataset.name, path, "changed", rows, f"sha256 {digest[:12]}… instead of {(file.pinned or '')[:12]}…")


def sha256(path: Path) -> str:
    """The file's sha256 in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def count(path: Path, unit: Unit) -> int | None:
    """Number of rows, None if the file does not have the expected format."""
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
