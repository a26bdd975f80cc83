"""Files that appear whole or not at all: write to a temporary name, fsync, rename, fsync the folder.

A reader therefore sees either nothing or everything; what a crash leaves behind has a name that readers don't match.
"""

import contextlib
import io
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from evaluator_serving.errors import InputError

SCRATCH = ".tmp-"


class StoreError(OSError):
    """Something could not be written here (disk full, no permission): whatever was at work, it is not to blame."""


def write_bytes(path: Path, content: bytes) -> None:
    """Put `content` at `path` atomically and durably. Raises StoreError (disk full, no permission), leaving no debris."""
    try:
        _write(path, content)
    except OSError as error:
        raise StoreError(error.errno, error.strerror, error.filename) from error


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{SCRATCH}{secrets.token_hex(8)}-{path.name}")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
    if os.name == "nt":  # folders can't be opened there
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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


def read_whole(path: Path, remedy: str) -> pl.DataFrame:
    """A Parquet file that nothing can be done without.

    Raises InputError, which ends in `remedy`, where it can't be read or holds NaN.
    """
    try:
        return _checked(pl.read_parquet(path), lambda number: number.is_not_nan().fill_null(True))
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = "no such file" if not path.exists() else str(error).splitlines()[0]
        raise InputError(f"{path} can't be read ({reason}): {remedy}") from error


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
    with one) counts as absent: its requests are then scored again.
    """
    frames = [pl.DataFrame(schema=schema)]
    for path in sorted(folder.glob("part-*.parquet")):
        try:
            frame = pl.read_parquet(path)
            frame = frame.with_columns(pl.lit(v).alias(c) for c, v in (absent or {}).items() if c not in frame.columns)
            frame = frame.select(pl.col(c).cast(t) for c, t in schema.items())
            frames.append(_checked(frame, lambda number: number.is_finite().fill_null(False)))
        except (pl.exceptions.PolarsError, OSError) as error:
            first = str(error).splitlines()[0]
            warnings.warn(f"{path} can't be read and counts as absent, the same command scores it again: {first}", stacklevel=2)
    return pl.concat(frames)
