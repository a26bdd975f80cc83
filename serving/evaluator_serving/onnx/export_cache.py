"""Exported models in the cache: found by content, made where they are missing, and bounded.

An export takes as much of the disk as the model's weights. All together take no more than SHARE of what they could have; to
make room those go that were used longest ago and that no process has loaded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from evaluator_serving.cache import cache_dir
from evaluator_serving.engine import BYTES
from evaluator_serving.errors import InputError
from evaluator_serving.locks import held, is_leased, lease
from evaluator_serving.models.model_cache import cached_folder
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx.export import export
from evaluator_serving.onnx.manifest import FORMAT, Kind

SHARE = 0.5
"""Most that exports take of the disk: of their own bytes and the free ones together."""

_USED = "manifest.json"
"""The file whose time says when an export was used last; without it a folder is no export."""


def is_exported(source: ModelSource, dtype: str, head: Kind) -> bool:
    """Whether the model's exported folder is in the cache."""
    return (_folder(source, dtype, head) / _USED).is_file()


def unkept(source: ModelSource, dtype: str, head: Kind) -> str | None:
    """Why the model's export can't be put into the cache, or None if it can or is there. Nothing is made to find out."""
    try:
        if is_exported(source, dtype, head):
            return None
        folder = cache_dir() / "onnx"
    except InputError as error:
        return str(error)
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return None
    return f"its ONNX graph can't be cached in {folder}, which is not writable (set EVALUATOR_CACHE to another folder)"


def cached_export(source: ModelSource, dtype: str, head: Kind, users: contextlib.ExitStack | None = None) -> Path:
    """The model's exported folder in the cache, made if it isn't there. It isn't evicted until `users` is closed."""
    folder = _folder(source, dtype, head)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError), held(folder.parent / "lock", wait=True):  # a cache that can only be read: nobody evicts
        if users is not None:
            users.enter_context(lease(folder.parent, folder.name))
        if (folder / _USED).is_file():
            os.utime(folder / _USED)
        else:
            _make_room(folder, source.parameters * BYTES["float32"])
    if not (folder / _USED).is_file():
        export(source, folder, dtype, head)
    return folder


def _folder(source: ModelSource, dtype: str, head: Kind) -> Path:
    return cache_dir() / "onnx" / f"{_content(source.revision)}-{head}-{dtype}-{FORMAT}"


def _content(revision: str) -> str:
    return revision.removeprefix("sha256:")[:40]


def _make_room(folder: Path, need: int) -> None:
    """Evict until an export of `need` bytes is within the bound. Under the cache's lock."""
    home = folder.parent
    exports = {other: _size(other) for other in home.iterdir() if other != folder and (other / _USED).is_file()}
    total = sum(exports.values())
    room = SHARE * (shutil.disk_usage(home).free + total)
    for other in sorted(exports, key=lambda one: (one / _USED).stat().st_mtime):
        if total + need <= room:
            break
        if not is_leased(home, other.name):
            going = other.with_name(f".gone-{other.name}")
            other.rename(going)  # nobody sees half of one
            shutil.rmtree(going, ignore_errors=True)
            total -= exports[other]
            revision = other.name.partition("-")[0]
            if not any(home.glob(f"{revision}-*")):
                shutil.rmtree(cached_folder(revision), ignore_errors=True)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
