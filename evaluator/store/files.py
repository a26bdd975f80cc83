"""The only module that writes, reads and removes a run's files; each is written atomically."""

import contextlib
import io
import json
import math
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


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write `content` to `path` atomically and (see `write_whole`) durably; for a run on object storage, to the storage first
    (`evaluator.store.remote`).

    Raises StoreError (disk full, no permission, storage not reachable), and leaves no partial file.
    """
    if mirror := mirror_of(path):
        mirror.put(path, content)
    write_whole(path, content, durable=durable)


def remove(*paths: Path) -> None:
    """Remove those files of a run that exist."""
    if paths and (mirror := mirror_of(paths[0])):
        mirror.remove(paths)
    for path in paths:
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write indented JSON atomically."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """A frame in Parquet format, in memory: a part is a few megabytes."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def write_parquet(path: Path, frame: pl.DataFrame) -> None:
    """Write a frame in Parquet format atomically."""
    write_bytes(path, parquet_bytes(frame))


def write_part(folder: Path, frame: pl.DataFrame, *, durable: bool = True) -> Path:
    """Add a part to a folder of parts, under a unique name; names sort by time."""
    path = folder / f"part-{time.time_ns():020d}-{secrets.token_hex(4)}.parquet"
    write_bytes(path, parquet_bytes(frame), durable=durable)
    return path


def read_json(path: Path) -> Any:
    """The content of a JSON file, with null for NaN and infinities.

    Raises OSError, and ValueError for invalid JSON or a file larger than a run writes.
    """
    if path.stat().st_size > LARGEST_JSON:
        raise ValueError(f"more than {LARGEST_JSON >> 20} MiB")
    try:
        return json.loads(path.read_text(encoding="utf8"), parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def read_whole(path: Path, remedy: str, columns: Mapping[str, pl.DataType | None]) -> pl.DataFrame:
    """Read a required Parquet file, which must have these columns (of a type, or of any).

    Raises InputError, ending in `remedy`, if it cannot be read or contains NaN.
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


def read_parquet(paths: Sequence[Path], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of Parquet files, or some columns of them; names may contain glob characters.

    Raises an exception in `_UNREADABLE` if a file cannot be read.
    """
    for path in paths:
        check(path)
    return pl.read_parquet(list(paths), columns=list(columns) if columns else None, glob=False, hive_partitioning=False)


def _checked(frame: pl.DataFrame, right: Callable[[pl.Expr], pl.Expr]) -> pl.DataFrame:
    """The frame. Raises ComputeError with the first floating-point column, also in lists, that has a value which is not
    `right`."""
    for name, dtype in frame.schema.items():
        column = pl.col(name)
        if dtype == pl.List(pl.Float64()):
            good = column.list.eval(right(pl.element())).list.all().fill_null(right(pl.lit(None, pl.Float64())))
        elif dtype == pl.Float64():
            good = right(column)
        else:
            continue
        if not frame.select(good.all()).item():
            raise pl.exceptions.ComputeError(f"{name} contains a number that no model can give")
    return frame


def read_parts(folder: Path, schema: Mapping[str, pl.DataType], *, absent: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """All readable parts of a folder as one frame with exactly the columns of `schema` (empty if there are none).

    `absent`: column → value for parts of older versions without it.

    A part that cannot be read (truncated by a failing disk), or that contains a number that is not finite (never written), is
    ignored, so its requests are scored again. If parts were merged meanwhile, the present ones are read.
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
            message = f"{shown(path)} can't be read and counts as absent, the same command scores it again: {first}"
            warnings.warn(message, stacklevel=2)
    return pl.concat(frames)


def merge_parts(
    folder: Path, schema: Mapping[str, pl.DataType], *, least: int, largest: float = math.inf, key: Sequence[str] | None = None
) -> None:
    """Merge the parts of a folder of up to `largest` bytes into one if there are at least `least`: many small files are slow to
    read.

    Of rows that are equal, or equal in the columns `key`, the first is kept. The merged part is written before the others are
    removed. A kill in between leaves rows twice, so readers drop duplicates. A folder with an unreadable part stays as it is.
    """
    paths = [path for path in _parts(folder) if path.stat().st_size <= largest]
    if len(paths) < least:
        return
    try:
        frame = _read_as(paths, schema)
    except _UNREADABLE:  # told by whoever reads it
        return
    write_part(folder, frame.unique(key, keep="first", maintain_order=True))
    remove(*paths)


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def _read_as(paths: Sequence[Path], schema: Mapping[str, pl.DataType], absent: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Parts as `read_parts` returns them. Raises an exception in `_UNREADABLE`."""
    frame = read_parquet(paths, None if absent else list(schema))
    frame = frame.with_columns(pl.lit(v).alias(c) for c, v in (absent or {}).items() if c not in frame.columns)
    frame = frame.select(pl.col(c).cast(t) for c, t in schema.items())
    return _checked(frame, lambda number: number.is_finite().fill_null(False))
