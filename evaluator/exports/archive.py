"""`evaluator archive` and `evaluator verify`: everything that a run's rates follow from, in one file, and the proof of it.

run/run.json, run/logprobs, run/samples, run/imported, run/failures   the run, less what is derived or about the machine
rates.csv, options.json                                               its rates, and the choices that they were made with
citation.bib                                                          what to cite
texts/TASK.csv                                                        the sentences, only where they are asked for
ro-crate-metadata.json                                                what all of it is
"""

import hashlib
import io
import json
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evaluator import __version__
from evaluator.datasets.registry import datasets
from evaluator.exports.citation import bibtex
from evaluator.exports.crate import METADATA, Contents, digests, metadata
from evaluator.reports.local_paths import named_only
from evaluator.reports.report import build_report
from evaluator.reports.texts import sample_texts
from evaluator.reports.tidy import csv_text
from evaluator.store.files import write_bytes
from evaluator.store.names import folder_name
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.parameters import parse_settings
from evaluator.tasks.stored import settings_of, task_of
from evaluator.vocabulary import TIDY, Interval, MeasureOptions, Scale
from evaluator_serving.errors import InputError

ARCHIVED = ("logprobs/*/*/*.parquet", "samples/*.parquet", "imported/*/*.parquet", "failures/*.parquet")
RATES, OPTIONS, CITATION = "rates.csv", "options.json", "citation.bib"
TOLERANCE = 1e-12
"""Largest relative difference of a recomputed number (absolute below 1)."""
KEY = ("model", "task", "language", "template", "measure", "group", "other")
SHOWN = 5


def archive(
    run: str | Path,
    out: str | Path,
    *,
    scale: Scale = "ratio",
    interval: Interval = "percentile",
    resamples: int = 1000,
    seed: int = 0,
    settings: Mapping[str, str] | None = None,
    text: bool = False,
    data: str | Path | None = None,
    licence: str | None = None,
) -> Path:
    """Write a run into the file `out` (a zip, RO-Crate 1.2), with its rates and what they follow from. Returns the file.

    Args:
        scale: of the rates, as in `Results.rates`; `verify` uses this and the next four again.
        interval: likewise.
        resamples: likewise.
        seed: likewise.
        settings: likewise.
        text: also the sentences, read from the data set.
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        licence: SPDX identifier under which the archive is given away.

    Raises InputError for a run without scores, and where sentences are asked for that aren't here.
    """
    opened = Run.open(run_folder(run))
    if not opened.tasks:
        raise InputError(f"{opened.shown} holds no scores: score some models first")
    choices = {"scale": scale, "interval": interval, "resamples": resamples, "seed": seed, "settings": dict(settings or {})}
    rows = _rates(opened, choices)
    tasks = {name: task_of(opened, name) for name in opened.tasks}
    record = _portable(opened.record)
    files = {
        RATES: csv_text(rows).encode(),
        OPTIONS: _json(choices),
        CITATION: bibtex(record, tasks).encode(),
        "run/run.json": _json(record),
        **{f"run/{path.relative_to(opened.path).as_posix()}": path.read_bytes() for path in _archived_files(opened.path)},
    }
    texts: dict[str, str] = {}
    for name in opened.tasks if text else ():
        sentences = sample_texts(opened, name, Path(data) if data else None)
        path = f"texts/{folder_name(name)}.csv"
        files[path] = sentences.write_csv().encode()
        if tasks[name].reads:
            texts[path] = tasks[name].reads[0]
    read = dict.fromkeys(name for task in tasks.values() for name in task.reads if name in datasets())
    models = ", ".join(opened.models)
    contents = Contents(
        name=f"Stereotypes in {models}: {', '.join(opened.tasks)}"[:200],
        description="Rates of stereotypes with 95% intervals, and the models' answers that they are computed from.",
        date=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        licence=licence,
        version=next((each["evaluator"] for each in reversed(record["attempts"]) if "evaluator" in each), __version__),
        record=record,
        datasets=[datasets()[name] for name in read],
        notes={
            RATES: "Rates with intervals, one per row",
            OPTIONS: "Options that the rates were computed with",
            CITATION: "What to cite",
            "run/run.json": "Specification of the run: models, tasks, data",
            **{path: f"Sentences of {name}" for path, name in texts.items()},
        },
        texts=texts,
    )
    files[METADATA] = _json(metadata(contents, files))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for path, part in files.items():
            made.writestr(path, part)
    write_bytes(Path(out), content.getvalue())
    return Path(out)


@dataclass(frozen=True, slots=True)
class VerifiedArchive:
    """What became of an archive's rates when they were computed again.

    Attributes:
        rates: how many there are.
        largest: the largest difference of a value or bound (relative; absolute below 1).
        wrong: what does not hold, a line each; empty where all does.
        versions: the program's version that made the rates, and this one.
    """

    rates: int
    largest: float
    wrong: tuple[str, ...]
    versions: tuple[str, str]


def verify(archive: str | Path) -> VerifiedArchive:
    """Check an archive's files against its metadata, compute its rates again and compare them.

    Raises InputError for what is no archive of this program.
    """
    path = Path(archive)
    with tempfile.TemporaryDirectory(prefix="evaluator-verify-") as temporary:
        folder = Path(temporary)
        try:
            with zipfile.ZipFile(path) as packed:
                packed.extractall(folder)
            document = json.loads((folder / METADATA).read_text(encoding="utf-8"))
            known = digests(document)
            choices = json.loads((folder / OPTIONS).read_text(encoding="utf-8"))
            stored = pl.read_csv(folder / RATES, schema=TIDY)
        except (OSError, zipfile.BadZipFile, ValueError, KeyError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{path} isn't an archive of `evaluator archive` ({error}): give one") from error
        wrong = list(_altered(folder, known))
        run = Run.open(folder / "run")
        made = next((each["evaluator"] for each in reversed(run.record["attempts"]) if "evaluator" in each), "unknown")
        largest, differing = _compared(stored, _rates(run, choices))
        return VerifiedArchive(stored.height, largest, (*wrong, *differing), (made, __version__))


def _rates(run: Run, choices: Mapping[str, Any]) -> pl.DataFrame:
    own = parse_settings(settings_of(run), choices["settings"])
    how = {name: choices[name] for name in ("scale", "interval", "resamples", "seed")}
    return build_report(run, MeasureOptions(**how, protocol=run.protocol, settings=own)).rows


def _archived_files(folder: Path) -> Iterator[Path]:
    for pattern in ARCHIVED:
        yield from sorted(folder.glob(pattern))


def _portable(record: Mapping[str, Any]) -> dict[str, Any]:
    """run.json without the folders of the machine; what restores tasks stays as it is."""
    made: dict[str, Any] = named_only(record)
    for name, entry in record["tasks"].items():
        made["tasks"][name]["definition"] = entry.get("definition")
    return made


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _altered(folder: Path, known: Mapping[str, str]) -> Iterator[str]:
    """Files that aren't those that the metadata names."""
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {METADATA}
    yield from (f"{name} is missing" for name in sorted(known.keys() - there))
    yield from (f"{name} is not named in the metadata" for name in sorted(there - known.keys()))
    for name in sorted(known.keys() & there):
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != known[name]:
            yield f"{name} was altered (another sha256)"


def _compared(stored: pl.DataFrame, again: pl.DataFrame) -> tuple[float, Sequence[str]]:
    """The largest difference, and lines on rates that are absent or differ."""
    both = stored.join(again, on=KEY, how="full", nulls_equal=True, suffix="_again", coalesce=True)
    one_sided = stored.height + again.height - 2 * stored.join(again, on=KEY, how="inner", nulls_equal=True).height
    wrong = [f"{one_sided} rates are in one of the two only"] if one_sided else []
    numbers = ("value", "low", "high")
    for name in numbers:
        size = pl.max_horizontal(pl.col(name).abs(), pl.lit(1.0))
        both = both.with_columns(((pl.col(name) - pl.col(f"{name}_again")).abs() / size).alias(f"{name}_off"))
    nulls = pl.any_horizontal(*(pl.col(name).is_null() != pl.col(f"{name}_again").is_null() for name in numbers))
    off = pl.max_horizontal(*(f"{name}_off" for name in numbers)).fill_null(0.0)
    both = both.with_columns(off=off, nulls=nulls)
    differing = both.filter((pl.col("off") > TOLERANCE) | pl.col("nulls"))
    for row in differing.head(SHOWN).iter_rows(named=True):
        place = "/".join(str(row[key]) for key in KEY if row[key] is not None)
        wrong.append(f"{place}: {row['value']} in the archive, {row['value_again']} computed again")
    if differing.height > SHOWN:
        wrong.append(f"and {differing.height - SHOWN} more")
    largest = both["off"].max()
    return float(largest) if isinstance(largest, int | float) else 0.0, wrong
