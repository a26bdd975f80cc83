"""Registry of data sets: sources, local file names, and checksums.

`datasets.tsv` has a line for each data set, `sources.tsv` for each of their files, `published.tsv` for each file of scores that
the authors of GEST and of the multilingual StereoSet published of their models; `references.bib` has what to cite. The digests
are those of the files at their public sources, taken in 2026-11, with two exceptions: StereoSet's dev.json, whose digest is
the one that the Hugging Face `datasets` library recorded for it, and StereoSet's test_terms.txt, whose digest is that of a copy
found equal to the public text.
"""

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from evaluator.vocabulary import DataSource
from evaluator_serving.cache import cache_dir
from evaluator_serving.errors import InputError

Unit = Literal["table", "records", "lines", "examples", "keys"]
"""Unit of `DataFile.rows`: rows below a CSV's header, records of a CSV, lines that are not blank, StereoSet examples, keys of a
JSON object."""

HERE = Path(__file__).parent
PUBLIC = "https://raw.githubusercontent.com"
"""Base URL of OWNER/REPOSITORY/COMMIT/PATH; a mirror has the same layout."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file at its public source: repository `owner/name` on GitHub, path in it, sha256 in hexadecimal digits, and the commit
    that has it (HEAD: the newest)."""

    repository: str
    path: str
    sha256: str
    commit: str = "HEAD"

    @property
    def url(self) -> str:
        """The file's address."""
        return f"{PUBLIC}/{self.repository}/{self.commit}/{self.path}"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file in the layout of the readers.

    Attributes:
        local: path in a data folder and in the cache.
        unit: unit of `rows`.
        rows: number of rows of a complete file; None if only its digest is known.
        sources: its public files: none for a file in the package, two for one converted from pickled frames.
    """

    local: str
    unit: Unit
    rows: int | None
    sources: tuple[SourceFile, ...]

    @property
    def converted(self) -> bool:
        """Whether the file is converted from public files, so that digests cannot be compared."""
        return any(source.path.endswith(".pkl") for source in self.sources)

    @property
    def pinned(self) -> str | None:
        """The sha256 of the public file; None if the file is part of the package or converted."""
        return self.sources[0].sha256 if self.sources and not self.converted else None


@dataclass(frozen=True, slots=True)
class Dataset:
    """A named data set.

    Attributes:
        name: name in commands.
        about: description, one line.
        licence: an SPDX identifier.
        files: its files.
        references: keys of its citations in `references.bib`.
        hub: id on the Hugging Face Hub, None if it is not there.
    """

    name: str
    about: str
    licence: str
    files: tuple[DataFile, ...]
    references: tuple[str, ...] = ()
    hub: str | None = None

    @property
    def shipped(self) -> bool:
        """Whether the data set is part of the package."""
        return not any(file.sources for file in self.files)

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs of its public files."""
        return tuple(dict.fromkeys(source.url for file in self.files for source in file.sources))


PUBLISHED = "published"
"""All parts of the published scores."""


@cache
def datasets() -> Mapping[str, Dataset]:
    """All data sets by name."""
    return _listed("sources.tsv")


@cache
def published_scores() -> Mapping[str, Dataset]:
    """The published scores by the name of their part."""
    return _listed("published.tsv")


def _listed(table: str) -> dict[str, Dataset]:
    """The data sets of a table of files: name → data set, in the order of `datasets.tsv`."""
    files: dict[str, dict[str, DataFile]] = {}
    for row in _rows(table):
        repository, _, commit = row["repository"].partition("@")
        sources = (SourceFile(repository, row["path"], row["sha256"], commit or "HEAD"),) if repository else ()
        unit: Unit = row["unit"]  # type: ignore[assignment]
        new = DataFile(row["local"], unit, int(row["rows"]) if row["rows"] else None, ())
        file = files.setdefault(row["dataset"], {}).setdefault(new.local, new)
        files[row["dataset"]][new.local] = replace(file, sources=file.sources + sources)
    return {
        name: Dataset(
            name,
            row["about"],
            row["licence"],
            tuple(files[name].values()),
            tuple(row["references"].split()),
            row["hub"] or None,
        )
        for row in _rows("datasets.tsv")
        if (name := row["dataset"]) in files
    }


def _rows(table: str) -> list[dict[str, str]]:
    with (HERE / table).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def dataset(name: str) -> Dataset:
    """The data set, or the part of the published scores, called `name`.

    Raises InputError, naming the known ones, for an unknown name.
    """
    known = {**datasets(), **published_scores()}
    if name not in known:
        raise InputError(f"unknown data set {name!r}: choose from {', '.join([*datasets(), PUBLISHED, *published_scores()])}")
    return known[name]


def named(names: Sequence[str]) -> list[Dataset]:
    """The data sets called so, each once, PUBLISHED as all its parts. Raises InputError for an unknown name."""
    every = (each for name in names for each in (published_scores() if name == PUBLISHED else (name,)))
    return [dataset(name) for name in dict.fromkeys(every)]


def cache_folder() -> Path:
    """Folder of downloaded data sets, in the layout of a data folder."""
    return cache_dir() / "data"


def published_run() -> Path:
    """The run that `evaluator data fetch published` makes of the published scores."""
    return cache_folder() / PUBLISHED / "run"


def folder(data: DataSource) -> Path:
    """The folder that data sets are read from: --data, else EVALUATOR_DATA, else the cache."""
    if data.folder is not None:
        return data.folder
    if environment := os.environ.get("EVALUATOR_DATA"):
        return Path(environment)
    return cache_folder()


def path_of(dataset: Dataset, file: DataFile, root: Path) -> Path:
    """Path of a file: in the package if the data set is shipped, else under `root`."""
    return (HERE / "demo" if dataset.shipped else root) / file.local


def locate(name: str, data: DataSource) -> dict[str, Path]:
    """The files of the data set called `name`: local path → path on disk, in the registry's order.

    Raises InputError with the remedy if one of them is absent.
    """
    entry = dataset(name)
    paths = {file.local: path_of(entry, file, folder(data)) for file in entry.files}
    for path in paths.values():
        if not path.is_file():
            remedy = f"run `evaluator data fetch {name}` or give --data DIR with a folder that contains it"
            raise InputError(f"data set {name}: no such file: {path}: {remedy}")
    return paths
