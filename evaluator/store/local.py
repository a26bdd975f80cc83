"""One file on this machine that appears whole or not at all: a temporary name, fsync, rename, fsync of the folder.

A reader therefore sees either nothing or everything; what a crash leaves behind has a name that readers don't match.
"""

import contextlib
import os
import secrets
from pathlib import Path

from evaluator.store.errors import StoreError

SCRATCH = ".tmp-"


def write_whole(path: Path, content: bytes) -> None:
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
