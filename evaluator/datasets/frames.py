"""Convert StereoSet's translations from pickled data frames to StereoSet's JSON schema, without pandas.

This is the only place that unpickles anything. It runs in a separate process, on files whose sha256 has been verified, with an
unpickler restricted to the few constructors of such a frame. Those of pandas are replaced by the stand-ins below.

    python -I -m evaluator.datasets.frames INTRASENTENCE.pkl INTERSENTENCE.pkl OUT.json
"""

import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy._core.multiarray import _reconstruct
from numpy._core.numeric import _frombuffer  # type: ignore[attr-defined]

LABELS = {"stereotype", "anti-stereotype", "unrelated"}


class _Manager:
    """Stand-in for pandas' BlockManager: blocks of (values [columns, rows], which columns) and the axes' labels."""

    def __init__(self, blocks: Sequence[tuple[Any, Any]] = (), axes: Sequence[list[Any]] = ()) -> None:
        self.blocks, self.axes = blocks, axes

    def __setstate__(self, state: tuple[Any, ...]) -> None:  # pandas before 1.3
        modern = state[3]["0.14.1"]
        self.axes = modern["axes"]
        self.blocks = [(block["values"], block["mgr_locs"]) for block in modern["blocks"]]


@dataclass
class _Frame:
    """Stand-in for pandas' DataFrame; pickle stores its state, with the manager, in the instance's dictionary."""

    _mgr: _Manager

    def rows(self) -> Iterator[dict[str, Any]]:
        names, labels = self._mgr.axes
        columns: dict[str, Any] = {}
        for values, places in self._mgr.blocks:
            where = range(len(names))[places] if isinstance(places, slice) else [int(place) for place in places]
            columns |= {names[place]: column for place, column in zip(where, values, strict=True)}
        for row in range(len(labels)):
            yield {name: column[row] for name, column in columns.items()}


def _block(values: Any, places: Any, ndim: int) -> tuple[Any, Any]:
    return values, places


def _index(kind: type, state: dict[str, Any]) -> list[Any]:
    return list(range(state["start"], state["stop"], state["step"])) if kind is _Range else list(state["data"])


class _Labels:
    """Stand-in for pandas' Index types, of which only the data are used."""


class _Range(_Labels):
    """Stand-in for pandas' RangeIndex, whose data are a start, a stop and a step."""


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("pandas.core.frame", "DataFrame"): _Frame,
    ("pandas.core.internals.managers", "BlockManager"): _Manager,
    ("pandas._libs.internals", "_unpickle_block"): _block,
    ("pandas.core.indexes.base", "_new_Index"): _index,
    ("pandas.core.indexes.base", "Index"): _Labels,
    ("pandas.core.indexes.numeric", "Int64Index"): _Labels,
    ("pandas.core.indexes.range", "RangeIndex"): _Range,
    ("builtins", "slice"): slice,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},  # NumPy 1 and 2
    **{(f"numpy.{core}.numeric", "_frombuffer"): _frombuffer for core in ("core", "_core")},
}
"""Everything that a pickle may call."""


class FrameUnpickler(pickle.Unpickler):
    """Unpickles a data frame of strings. Raises pickle.UnpicklingError for anything outside `ALLOWED`."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """The stand-in for `module.name`."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data frame")
        return ALLOWED[module, name]


def read_frame(file: BinaryIO) -> list[dict[str, Any]]:
    """The frame's rows as dictionaries. Raises pickle.UnpicklingError for anything but a frame."""
    frame = FrameUnpickler(file).load()
    if not isinstance(frame, _Frame):
        raise pickle.UnpicklingError(f"a {type(frame).__name__} instead of a data frame")
    return list(frame.rows())


def example(row: dict[str, Any], *, words: bool) -> dict[str, Any]:
    """One row in StereoSet's schema, with `target_original` and, for intrasentence examples, each candidate's `word`.

    Raises ValueError for a missing column, a value that is not a string, or an unknown label.
    """

    def text(column: str) -> str:
        value = row.get(column)
        if not isinstance(value, str):
            raise ValueError(f"example {row.get('id')!r}: column {column} is {value!r} instead of a string")
        return value

    sentences = []
    for c in ("c1", "c2", "c3"):
        candidate = {key: text(f"{c}_{key}") for key in ("sentence", "id", "gold_label", *(["word"] if words else []))}
        if candidate["gold_label"] not in LABELS:
            raise ValueError(f"example {row['id']!r}: unknown label {candidate['gold_label']!r}")
        sentences.append(candidate)
    head = {key: text(key) for key in ("id", "target", "bias_type", "context")}
    return {**head, "sentences": sentences, "target_original": text("target_original")}


def convert(intrasentence: Path, intersentence: Path, out: Path) -> None:
    """Write the two frames as one JSON file in the schema of StereoSet's dev.json."""
    data = {}
    for kind, path in (("intersentence", intersentence), ("intrasentence", intrasentence)):
        with path.open("rb") as file:
            data[kind] = [example(row, words=kind == "intrasentence") for row in read_frame(file)]
    out.write_text(json.dumps({"version": "dev", "data": data}, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    try:
        convert(*map(Path, sys.argv[1:]))
    except (pickle.UnpicklingError, ValueError, EOFError, AttributeError, KeyError, TypeError, IndexError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
