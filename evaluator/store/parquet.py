"""Checks of a Parquet file before it is read, because a damaged or malicious file may request more memory than available.

The Parquet library trusts the sizes in a file and aborts the process if an allocation fails. The footer has the numbers of rows
and bytes, and each page begins with its size, in Thrift's compact protocol.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evaluator_serving.memory import available_memory

PLENTY = 1 << 30
"""Bytes in memory that are never too much."""
DENSEST = 10_000
"""Most bytes in memory for each one of the file: what this program writes is denser by a few hundred times at most."""
CELL = 16
"""Bytes in memory of a number or of a text's place."""
MAGIC = b"PAR1"
_DEEPEST = 32


class ParquetError(OSError):
    """The file is not read: its metadata is damaged or impossible."""


def check(path: Path) -> None:
    """Raise ParquetError if a footer or page header is damaged, or claims more than the file can contain."""
    # In UTF-8 whatever the locale's encoding is: so Polars reads it too.
    with open(str(path).encode("utf8", "surrogateescape"), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 12:
            raise ParquetError("not a Parquet file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[-4:] != MAGIC:
                raise ParquetError("not a Parquet file")
            (length,) = struct.unpack("<I", content[-8:-4])
            if length > size - 12:
                raise ParquetError("its footer is damaged")
            try:
                footer = _Reader(content, size - 8 - length, size - 8).struct()
                claimed = sum(_chunk(content, chunk) for chunk in _chunks(footer))
                rows = int(footer[3])
            except (KeyError, TypeError, IndexError, ValueError, struct.error) as error:
                raise ParquetError("its metadata is damaged") from error
    if rows < 0 or claimed < 0:
        raise ParquetError("its metadata is damaged")
    claimed = max(claimed, rows)
    if claimed > PLENTY and (claimed > DENSEST * size or claimed > available_memory()):
        raise ParquetError(f"its metadata claims {rows:,} rows, {claimed / (1 << 30):,.1f} GiB in memory, in {size:,} bytes")


def _chunks(footer: dict[int, Any]) -> Iterator[dict[int, Any]]:
    """The footer's metadata of each column of each row group."""
    for group in footer[4]:
        for column in group[1]:
            yield column[3]


def _chunk(content: mmap.mmap, column: dict[int, Any]) -> int:
    """Bytes of memory that a column's pages require. Raises ValueError for a page outside the file."""
    values, uncompressed, compressed = int(column[5]), int(column[6]), int(column[7])
    begin = min(column[9], column.get(11, column[9]))
    end = begin + compressed
    if min(values, uncompressed, compressed) < 0 or begin < 0 or end > len(content):
        raise ValueError("a column outside the file")
    claimed = 0
    at = begin
    while at < end:
        reader = _Reader(content, at, end)
        header = reader.struct()
        large, small = int(header[2]), int(header[3])
        at = reader.at + small
        if large < 0 or small < 0 or at > end:
            raise ValueError("a page outside its column")
        counted = next((header[kind][1] for kind in (5, 7, 8) if kind in header), 0)
        claimed += large + CELL * int(counted)
    return max(claimed, uncompressed, CELL * values)


class _Reader:
    """Thrift's compact protocol: structures as dictionaries by field number. Raises IndexError at the end of the bytes."""

    def __init__(self, content: mmap.mmap, at: int, end: int) -> None:
        self._content, self.at, self._end = content, at, end
        self._depth = 0

    def struct(self) -> dict[int, Any]:
        """A structure, including its end marker."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = self._value(head & 15)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:  # true, false
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:  # whole numbers of 16, 32, 64 bits
                return self._signed()
            case 7:  # a floating-point number
                return self._take(8)
            case 8:  # bytes or text
                return self._take(self._unsigned())
            case 9 | 10:  # a list, a set
                head = self._byte()
                count = self._unsigned() if head >> 4 == 15 else head >> 4
                return [self._item(head & 15) for _ in range(self._possible(count))]
            case 11:  # a map
                count = self._unsigned()
                kinds = self._byte() if count else 0
                return [(self._item(kinds >> 4), self._item(kinds & 15)) for _ in range(self._possible(count))]
            case 12:
                return self.struct()
        raise ValueError(f"no kind of value is {kind}")

    def _item(self, kind: int) -> Any:
        """A value in a list, in which booleans take one byte."""
        return self._byte() == 1 if kind in (1, 2) else self._value(kind)

    def _possible(self, count: int) -> int:
        """A number of items, each of which takes at least one byte."""
        if count > self._end - self.at:
            raise ValueError("a list longer than the file")
        return count

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _byte(self) -> int:
        if self.at >= self._end:
            raise IndexError("the bytes end")
        self.at += 1
        return self._content[self.at - 1]

    def _take(self, count: int) -> bytes:
        if count > self._end - self.at:
            raise IndexError("the bytes end")
        self.at += count
        return self._content[self.at - count : self.at]
