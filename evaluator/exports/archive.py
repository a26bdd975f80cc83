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
import re
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, get_args

import polars as pl

from evaluator import __version__
from evaluator.datasets.registry import datasets
from evaluator.exports.citation import bibtex
from evaluator.exports.crate import METADATA, Contents, digests, metadata
from evaluator.reports.function import options_of
from evaluator.reports.local_paths import named_only
from evaluator.reports.report import build_report
from evaluator.reports.texts import sample_texts
from evaluator.store.files import write_bytes
from evaluator.store.names import folder_name
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.stored import task_of
from evaluator.vocabulary import TIDY, Interval, MeasureOptions, RateChoices, Scale
from evaluator_serving.errors import InputError, first_line

ARCHIVED = ("logprobs/*/*/*.parquet", "samples/*.parquet", "imported/*/*.parquet", "failures/*.parquet")
RATES, OPTIONS, CITATION = "rates.csv", "options.json", "citation.bib"
TOLERANCE = 1e-12
"""Largest relative difference of a recomputed number (absolute below 1)."""
NUMBERS = ("scale", "interval", "resamples", "seed")
KEY = ("model", "task", "language", "template", "measure", "group", "other")
SHOWN = 5
_AGAIN = " computed again"


def archive(
    run: str | Path,
    out: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    text: bool = False,
    data: str | Path | None = None,
    licence: str | None = None,
    **choices: Unpack[RateChoices],
) -> Path:
    """Write a run into the file `out` (a zip, RO-Crate 1.2), with its rates and what they follow from. Returns the file.

    Args:
        settings: the tasks' parameters of a report, as `--set` takes them.
        text: also the sentences, read from the data set.
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        licence: SPDX identifier under which the archive is given away.
        choices: of the rates, see `evaluator.vocabulary.RateChoices`; `verify` uses them again.

    Raises InputError for a run without scores, a licence that is no identifier, and missing sentences.
    """
    opened = Run.open(run_folder(run))
    if not opened.tasks:
        raise InputError(f"{opened.shown} holds no scores: score some models first")
    if licence is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", licence):
        raise InputError(f"licence {licence!r} is not an SPDX identifier: give for example CC-BY-4.0")
    options = options_of(opened, (), settings, **choices)
    rows = build_report(opened, options).rows
    tasks = {name: task_of(opened, name) for name in opened.tasks}
    record = _portable(opened.record)
    files = {
        RATES: rows.write_csv().encode(),
        OPTIONS: _json({name: getattr(options, name) for name in NUMBERS} | {"settings": dict(settings or {})}),
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
            known = digests(json.loads((folder / METADATA).read_text(encoding="utf-8")))
            stored = pl.read_csv(folder / RATES, schema=TIDY)
            run = Run.open(folder / "run")
            options = _options(run, json.loads((folder / OPTIONS).read_text(encoding="utf-8")))
        except (
            *(OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError),
            *(pl.exceptions.PolarsError, InputError),
        ) as error:
            reason = first_line(error).replace(f"{folder}/", "")
            raise InputError(f"{path} is not an archive of `evaluator archive` ({reason}): give one") from error
        wrong = list(_altered(folder, known))
        made = next((each["evaluator"] for each in reversed(run.record["attempts"]) if "evaluator" in each), "unknown")
        largest, differing = _compared(stored, build_report(run, options).rows)
        return VerifiedArchive(stored.height, largest, (*wrong, *differing), (made, __version__))


def _options(run: Run, stored: Mapping[str, Any]) -> MeasureOptions:
    """The options of the archived rates. Raises KeyError, TypeError or ValueError for a file that is not ours."""
    scale, interval, resamples, seed = (stored[name] for name in NUMBERS)
    if scale not in get_args(Scale) or interval not in get_args(Interval):
        raise ValueError(f"{OPTIONS}: unknown scale {scale!r} or interval {interval!r}")
    settings = dict(stored["settings"])
    return options_of(run, (), settings, scale=scale, interval=interval, resamples=int(resamples), seed=int(seed))


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
    """The largest difference of a number, and a line for each rate that is absent or differs."""
    orders = (stored, again), (again, stored)
    one_sided = sum(one.join(other, on=KEY, how="anti", nulls_equal=True).height for one, other in orders)
    wrong = [f"{one_sided} rates are in one of the two only"] if one_sided else []
    both = stored.join(again, on=KEY, how="full", nulls_equal=True, suffix=_AGAIN, coalesce=True)
    other = {name: pl.col(name + _AGAIN) for name in TIDY if name not in KEY}
    numbers = ("value", "low", "high")
    off = {name: (pl.col(name) - other[name]).abs() / pl.max_horizontal(pl.col(name).abs(), 1.0) for name in numbers}
    differs = {name: pl.col(name).ne_missing(others) for name, others in other.items()}
    differs |= {name: far.gt(TOLERANCE).fill_null(pl.col(name).is_null() != other[name].is_null()) for name, far in off.items()}
    first = pl.coalesce(pl.when(found).then(pl.lit(name)) for name, found in differs.items())
    differing = both.with_columns(first.alias("differs")).drop_nulls("differs")
    for row in differing.head(SHOWN).iter_rows(named=True):
        place, name = "/".join(str(row[key]) for key in KEY if row[key] is not None), row["differs"]
        wrong.append(f"{place}: {name} {row[name]} in the archive, {row[name + _AGAIN]} computed again")
    if differing.height > SHOWN:
        wrong.append(f"and {differing.height - SHOWN} more")
    return both.select(pl.max_horizontal(*off.values()).max().fill_null(0.0)).item(), wrong
