"""An in-process cache of frames read from folders of parts: a report reads a model's answers twice per task.

The key includes the folder's files. Parts are never changed, so different content has different names, sizes or times.
"""

import os
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from pathlib import Path

import polars as pl

MOST = 1 << 29
"""Bytes of frames that are kept; those that were asked for longest ago go first."""

Stamp = tuple[tuple[str, int, int, int], ...]


def stamp(paths: Sequence[Path]) -> Stamp:
    """Identity of these files: name, inode, size, modification time. Raises OSError if one no longer exists."""
    stats = [(path.name, os.stat(path)) for path in paths]
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


class FrameCache:
    """Frames by key, each with the stamp of the files that it was read from."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._frames: OrderedDict[Hashable, tuple[Stamp, pl.DataFrame]] = OrderedDict()

    def get(self, key: Hashable, files: Stamp) -> pl.DataFrame | None:
        """The frame read from exactly these files, None if it is not cached."""
        found = self._frames.get(key)
        if found is None or found[0] != files:
            return None
        self._frames.move_to_end(key)
        return found[1].clone()

    def put(self, key: Hashable, files: Stamp, frame: pl.DataFrame) -> None:
        """Cache a frame, and evict others that do not fit."""
        self._frames[key] = files, frame.clone()
        self._frames.move_to_end(key)
        sizes = [kept.estimated_size() for _, kept in self._frames.values()]
        total = sum(sizes)
        for size in sizes:
            if total <= self._most:
                break
            self._frames.popitem(last=False)
            total -= size
