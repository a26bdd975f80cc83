"""Atomic and durable writing of one local file: temporary name, fsync, rename, fsync of the folder.

A reader sees either the old or the new file. Names of temporary files left by a crash are never read.
"""

import contextlib
import os
import secrets
from pathlib import Path

from evaluator.store.errors import StoreError

SCRATCH = ".tmp-"


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write `content` to `path` atomically and durably. Raises StoreError (disk full, no permission), and leaves no partial
    file.

    Unless `durable`, a power failure within some seconds may leave no file; where there is one, it is whole.
    """
    try:
        _write(path, content, durable=durable)
    except OSError as error:
        raise StoreError(error.errno, error.strerror, error.filename) from error


def _write(path: Path, content: bytes, *, durable: bool) -> None:
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
    if not durable or os.name == "nt":  # folders can't be opened there
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
