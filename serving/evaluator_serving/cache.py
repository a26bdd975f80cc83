"""The cache folder, and cached digests of large files.

Files are identified by content. Hashing tens of gigabytes takes minutes, so the digest of a large file is cached with a stamp
of the file. The stamp must also change if a reproducible build or a copy has the same size and time, or training rewrites the
file.
"""

import functools
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
    """The program's cache folder (EVALUATOR_CACHE, else `evaluator` in the user's cache folder).

    Raises InputError if the user has no home folder.
    """
    if folder := os.environ.get("EVALUATOR_CACHE"):
        return Path(folder)
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder) / "evaluator"
    if (home := os.path.expanduser("~")) == "~":
        raise InputError("this user has no home folder: set EVALUATOR_CACHE to a writable folder")
    return Path(home) / ".cache" / "evaluator"


def content_hash(files: Iterable[Path]) -> str:
    """`sha256:` over the names and contents of files; digests of large files are cached."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.name):
        total.update(f"{file.name}\0{_file_digest(file)}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _file_digest(file: Path) -> str:
    """SHA-256 of a file, cached by path and stamp if it is large."""
    if file.stat().st_size <= _LARGE:
        return _hash(file)
    store, key, stamp = cache_dir() / _STORE, str(file.resolve()), _stamp(file)
    known = _digests(store, store.stat().st_mtime_ns if store.is_file() else 0).get(key)
    if isinstance(known, list) and known[:-1] == stamp:
        return str(known[-1])
    digest = _hash(file)
    if time.time_ns() - file.stat().st_ctime_ns > _SETTLED_NS and _stamp(file) == stamp:
        remember_json(store, {**remembered_json(store), key: [*stamp, digest]})
    return digest


@functools.lru_cache(maxsize=1)
def _digests(store: Path, _changed: int) -> dict[str, Any]:
    """What is cached of all files: a sweep looks up some of each of its models."""
    return remembered_json(store)


def _hash(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _stamp(file: Path) -> list[Any]:
    """Device, inode, size, modification and change time, and a hash of some blocks (for file systems with unreliable
    metadata)."""
    stat = file.stat()
    last = stat.st_size - _BLOCK
    blocks = hashlib.sha256()
    with file.open("rb") as handle:
        for n in range(_BLOCKS):
            handle.seek(last * n // (_BLOCKS - 1))
            blocks.update(handle.read(_BLOCK))
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, blocks.hexdigest()]


def remembered_json(store: Path) -> dict[str, Any]:
    """The object written by `remember_json`; empty if there is none or it is unreadable."""
    try:
        content = json.loads(store.read_text("utf8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def remember_json(store: Path, content: Mapping[str, Any]) -> None:
    """Write an object atomically; an unwritable cache is not an error."""
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        temporary = store.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(content), "utf8")
        temporary.replace(store)
    except OSError:
        pass
