"""Tables in files: written by a process that encodes, mapped by the one that schedules, whose memory need not hold them."""

import functools
import mmap
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import IO

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.table import EncodedTable, Forwards, TableColumns

_ALIGNED = 64
"""Bytes that the place of an array in a file is a multiple of."""


class MappedTable(EncodedTable):
    """A table in a file with its forward passes, of which memory holds what was read last."""

    def __init__(self, passes: Forwards, file: mmap.mmap) -> None:
        super().__init__(passes.columns, passes)
        self._file = file

    def take(self, which: Sequence[int] | NDArray[np.intp]) -> EncodedTable:
        """As a table in memory."""
        found = super().take(which)
        self.release()
        return found

    def only(self, requests: Sequence[str]) -> EncodedTable:
        """The table of these requests; a part of it is in a file too."""
        return self if requests == self.requests else mapped(super().only(requests))

    def release(self) -> None:
        """Give back the memory of what was read."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._file.madvise(mmap.MADV_DONTNEED)

    @property
    def position(self) -> dict[str, int]:
        """As of any table; only the last one that was asked for is kept."""
        return _position(self.columns)


def write(table: EncodedTable, file: IO[bytes]) -> None:
    """Write a table, without its requests' ids: whoever reads it has them."""
    arrays: list[memoryview] = []
    passes = replace(table.forwards, columns=replace(table.columns, requests=[]))
    head = pickle.dumps(passes, protocol=5, buffer_callback=lambda one: arrays.append(one.raw()))
    head = pickle.dumps((head, [array.nbytes for array in arrays]))
    file.write(len(head).to_bytes(8, "little") + head)
    for array in arrays:
        file.write(bytes(-file.tell() % _ALIGNED))
        file.write(array)
    file.flush()


def read(file: IO[bytes], requests: list[str]) -> MappedTable:
    """The table of these requests that was written to a file, which may be removed afterwards."""
    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(content)
    at = 8 + int.from_bytes(view[:8], "little")
    head, sizes = pickle.loads(view[8:at])
    arrays = []
    for size in sizes:
        at += -at % _ALIGNED
        arrays.append(view[at : at + size])
        at += size
    passes: Forwards = pickle.loads(head, buffers=arrays)
    return MappedTable(replace(passes, columns=replace(passes.columns, requests=requests)), content)


def mapped(table: EncodedTable) -> EncodedTable:
    """The same table in a file of its own, which has no name; itself where no such file can be written."""
    if isinstance(table, MappedTable):
        return table
    try:
        with tempfile.TemporaryFile() as file:
            write(table, file)
            return read(file, table.requests)
    except OSError:
        return table


@functools.lru_cache(maxsize=1)
def _position(columns: TableColumns) -> dict[str, int]:
    return EncodedTable(columns).position
