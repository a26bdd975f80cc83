"""Models in local folders on several machines: whether a machine has the folder that another one has."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from evaluator_serving.weights.files import weights_in

BLOCK = 1 << 16
"""Bytes of each block that is read."""
BLOCKS = 64
"""Blocks of each file, spread over all of it."""


def glance(path: Path) -> str:
    """A hash over names, sizes and some blocks of the weights in a folder or file, empty where there are none.

    It takes milliseconds where the content's hash reads everything: other checkpoints of one model have other blocks. The
    machine that loads a model still compares the whole.
    """
    files = weights_in(path) + sorted(path.glob("adapter_model.*")) if path.is_dir() else [path]
    total = hashlib.sha256()
    try:
        for file in files:
            size = file.stat().st_size
            total.update(f"{file.name if path.is_dir() else ''}\0{size}\n".encode())
            with file.open("rb") as handle:
                for n in range(BLOCKS):
                    handle.seek(max(0, size - BLOCK) * n // (BLOCKS - 1))
                    total.update(handle.read(BLOCK))
    except OSError:
        return ""
    return total.hexdigest() if files else ""


def lacking(folders: Mapping[str, tuple[Path, str]]) -> tuple[str, ...]:
    """Names of the models whose folder (name → path and what `glance` says of it elsewhere) isn't here, or is another."""
    return tuple(sorted(name for name, (path, seen) in folders.items() if glance(path) != seen))
