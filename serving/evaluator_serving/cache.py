"""What this machine remembers between commands: where it is kept, and the digests of large files.

A file is known by its content. Hashing tens of gigabytes at every start takes minutes, so a large file's digest is remembered
beside a stamp of the file, which has to tell when other content stands at the same path: weights that a reproducible build or
a copy put there with the same size and time, or that training rewrote in place.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evaluator_serving.errors import InputError

_LARGE = 1_000_000
"""Bytes above which a digest is remembered."""

_STORE = "digests-2.json"
"""A new name wherever the stamp changes: what was remembered under a weaker one isn't trusted."""

_BLOCKS, _BLOCK = 64, 4096
"""How many blocks of how many bytes a stamp reads, evenly spaced from the file's first to its last byte."""

_SETTLED_NS = 2_000_000_000
"""A file that has changed within the clock of any file system, 2 s, could change again under the same times."""


def cache_dir() -> Path:
    """The user's cache folder of this program (EVALUATOR_CACHE, else `evaluator` in the user's cache folder).

    Raises InputError where none is named and the user has no home.
    """
    if folder := os.environ.get("EVALUATOR_CACHE"):
        return Path(folder)
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder) / "evaluator"
    if (home := os.path.expanduser("~")) == "~":
        raise InputError("no home folder is known of this user: set EVALUATOR_CACHE to a folder that can be written")
    return Path(home) / ".cache" / "evaluator"


def content_hash(files: Iterable[Path]) -> str:
    """`sha256:` over the names and contents of files; large files' digests are remembered."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.name):
        total.update(f"{file.name}\0{_file_digest(file)}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _file_digest(file: Path) -> str:
    """SHA-256 of a file, remembered by path and stamp where it is large."""
    if file.stat().st_size <= _LARGE:
        return _hash(file)
    store, key, stamp = cache_dir() / _STORE, str(file.resolve()), _stamp(file)
    known = remembered_json(store).get(key)
    if isinstance(known, list) and known[:-1] == stamp:
        return str(known[-1])
    digest = _hash(file)
    if time.time_ns() - file.stat().st_ctime_ns > _SETTLED_NS and _stamp(file) == stamp:
        remember_json(store, {**remembered_json(store), key: [*stamp, digest]})
    return digest


def _hash(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _stamp(file: Path) -> list[Any]:
    """Device, inode, size, times of modification and of change (which no program can set), and a hash of blocks of it.

    The blocks are for file systems whose inodes and times say nothing.
    """
    stat = file.stat()
    last = stat.st_size - _BLOCK
    blocks = hashlib.sha256()
    with file.open("rb") as handle:
        for n in range(_BLOCKS):
            handle.seek(last * n // (_BLOCKS - 1))
            blocks.update(handle.read(_BLOCK))
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, blocks.hexdigest()]


def remembered_json(store: Path) -> dict[str, Any]:
    """The object that `remember_json` has written; empty where there is none that can be read."""
    try:
        content = json.loads(store.read_text("utf8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def remember_json(store: Path, content: Mapping[str, Any]) -> None:
    """Write an object whole (temporary file, rename); a cache that can't be written is no error."""
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        temporary = store.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(content), "utf8")
        temporary.replace(store)
    except OSError:
        pass
