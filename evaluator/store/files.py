"""The one place where a run's files are written, read and removed; each appears whole or not at all."""

import contextlib
import io
import json
import secrets
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.store.frame_cache import FrameCache, stamp
from evaluator.store.local import write_whole
from evaluator.store.parquet import check
from evaluator.store.remote import mirror_of, shown
from evaluator_serving.errors import InputError

_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What reading a damaged Parquet file throws."""
LARGEST_JSON = 1 << 28
"""Bytes."""
_KEPT = FrameCache()


def write_bytes(path: Path, content: bytes) -> None:
    """Put `content` at `path` atomically and durably, of a run on object storage there first (see `evaluator.store.remote`).

    Raises StoreError (disk full, no permission, storage not reached), leaving no debris.
    """
    if mirror := mirror_of(path):
        mirror.put(path, content)
    write_whole(path, content)


def remove(*paths: Path) -> None:
    """Remove files of one run, those that are there."""
    if paths and (mirror := mirror_of(paths[0])):
        mirror.remove(paths)
    for path in paths:
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write readable JSON atomically."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """A frame as a Parquet file's content (in memory: a part is a few megabytes)."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def write_parquet(path: Path, frame: pl.DataFrame) -> None:
    """Write a frame as Parquet atomically."""
    write_bytes(path, parquet_bytes(frame))


def write_part(folder: Path, frame: pl.DataFrame) -> Path:
    """Add one part to a folder of parts under a name that no other writer uses; names sort by time."""
    path = folder / f"part-{time.time_ns():020d}-{secrets.token_hex(4)}.parquet"
    write_parquet(path, frame)
    return path


def read_json(path: Path) -> Any:
    """The content of a JSON file. NaN and the infinities, which are no JSON, are null.

    Raises OSError, and ValueError for what isn't JSON or is more than any run writes.
    """
    if path.stat().st_size > LARGEST_JSON:
        raise ValueError(f"more than {LARGEST_JSON >> 20} MiB")
    try:
        return json.loads(path.read_text(encoding="utf8"), parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def read_whole(path: Path, remedy: str, columns: Mapping[str, pl.DataType | None]) -> pl.DataFrame:
    """A Parquet file that nothing can be done without, and which has these columns (of a type, or of any).

    Raises InputError, which ends in `remedy`, where it can't be read or holds NaN.
    """
    try:
        frame = read_parquet([path])
        for name, dtype in columns.items():
            if name not in frame.columns or dtype not in (None, frame.schema[name]):
                raise pl.exceptions.SchemaError(f"no proper column {name!r}")
        return _checked(frame, lambda number: number.is_not_nan().fill_null(True))
    except _UNREADABLE as error:
        reason = "no such file" if not path.exists() else str(error).splitlines()[0]
        raise InputError(f"{shown(path)} can't be read ({reason}): {remedy}") from error


def read_parquet(paths: Sequence[Path]) -> pl.DataFrame:
    """The rows of Parquet files, whatever signs are in their names. Raises what is in `_UNREADABLE` where one can't be read."""
    for path in paths:
        check(path)
    return pl.read_parquet(list(paths), glob=False, hive_partitioning=False)


def _checked(frame: pl.DataFrame, right: Callable[[pl.Expr], pl.Expr]) -> pl.DataFrame:
    """The frame. Raises ComputeError naming a column with a floating-point number, maybe in a list, that isn't `right`."""
    for name, dtype in frame.schema.items():
        column = pl.col(name)
        if dtype == pl.List(pl.Float64()):
            good = column.list.eval(right(pl.element())).list.all().fill_null(right(pl.lit(None, pl.Float64())))
        elif dtype == pl.Float64():
            good = right(column)
        else:
            continue
        if not frame.select(good.all()).item():
            raise pl.exceptions.ComputeError(f"{name} holds a number that no model can have given")
    return frame


def read_parts(folder: Path, schema: Mapping[str, pl.DataType], *, absent: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """All readable parts of a folder as one frame with exactly `schema`'s columns (empty if there are none).

    `absent`: column → its value in parts of older versions, which lack it.

    A part that can't be read (cut short by a failing disk) or holds a number that isn't finite (no engine's answer is stored
    with one) counts as absent: its requests are then scored again. Where parts were merged meanwhile, those that are there now
    are read.
    """
    paths = _parts(folder)
    frames = [pl.DataFrame(schema=schema)]
    # All at once, which takes a tenth of the time; one by one where some part isn't like the others.
    with contextlib.suppress(*_UNREADABLE):
        key, files = (folder, *schema.items()), stamp(paths)
        found = _KEPT.get(key, files)
        if found is None and paths:
            found = _read_as(paths, schema, absent)
            _KEPT.put(key, files, found)
        if found is not None:
            return found
    for path in paths:
        try:
            frames.append(_read_as([path], schema, absent))
        except _UNREADABLE as error:
            if path not in _parts(folder):
                return read_parts(folder, schema, absent=absent)
            first = str(error).splitlines()[0]
            told = f"{shown(path)} can't be read and counts as absent, the same command scores it again: {first}"
            warnings.warn(told, stacklevel=2)
    return pl.concat(frames)


def merge_parts(folder: Path, schema: Mapping[str, pl.DataType], *, least: int) -> None:
    """Make one part of a folder's, where they are `least` or more: many small files take long to read.

    The one is written before the others go: a kill in between leaves rows twice, so their readers must drop equal ones. A
    folder with a part that can't be read stays as it is.
    """
    paths = _parts(folder)
    if len(paths) < least:
        return
    try:
        frame = _read_as(paths, schema)
    except _UNREADABLE:  # told by whoever reads it
        return
    write_part(folder, frame.unique(maintain_order=True))
    remove(*paths)


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def _read_as(paths: Sequence[Path], schema: Mapping[str, pl.DataType], absent: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Parts as `read_parts` gives them. Raises what is in `_UNREADABLE`."""
    frame = read_parquet(paths)
    frame = frame.with_columns(pl.lit(v).alias(c) for c, v in (absent or {}).items() if c not in frame.columns)
    frame = frame.select(pl.col(c).cast(t) for c, t in schema.items())
    return _checked(frame, lambda number: number.is_finite().fill_null(False))
