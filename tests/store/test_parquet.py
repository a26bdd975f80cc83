"""Files that ask for more memory than there is, made by hand: they are told, where Polars would end the process."""

import contextlib
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.store import parquet
from evaluator.store.files import parquet_bytes, read_parquet, read_parts, read_whole
from evaluator.store.parquet import ParquetError
from evaluator_serving.errors import InputError

I32, I64, TEXT, LIST, STRUCT = 5, 6, 8, 9, 12
HUGE = 1 << 40


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low]) if not rest else bytes([low | 128]) + varint(rest)


def written(kind: int, value: Any) -> bytes:
    """A value in Thrift's compact protocol; a list is (kind, items) or (kind, items, the number that it claims)."""
    match kind:
        case 5 | 6:
            return varint((value << 1) ^ (value >> 63))
        case 8:
            return varint(len(value)) + bytes(value)
        case 9:
            of, items, *claimed = value
            return bytes([0xF0 | of]) + varint(*claimed or [len(items)]) + b"".join(written(of, item) for item in items)
    before, parts = 0, []
    for number, (of, inside) in sorted(value.items()):
        parts.append(bytes([(number - before) << 4 | of]) + written(of, inside))
        before = number
    return b"".join(parts) + b"\0"


def made(
    *,
    rows: int = 3,
    values: int = 3,
    page_values: int = 3,
    page_bytes: int = 24,
    column_bytes: int = 24,
    columns: int = 1,
    codec: int = 0,
) -> bytes:
    """A file with a column `a` of three whole numbers, and what it says of itself."""
    data = struct.pack("<qqq", 1, 2, 3)
    inside = {1: (I32, page_values), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)}
    page = written(STRUCT, {1: (I32, 0), 2: (I32, page_bytes), 3: (I32, len(data)), 5: (STRUCT, inside)}) + data
    chunk = {
        1: (I32, 2),
        2: (LIST, (I32, [0])),
        3: (LIST, (TEXT, [b"a"])),
        4: (I32, codec),
        5: (I64, values),
        6: (I64, column_bytes),
        7: (I64, len(page)),
        9: (I64, 4),
    }
    group = {
        1: (LIST, (STRUCT, [{2: (I64, 4), 3: (STRUCT, chunk)}], columns)),
        2: (I64, column_bytes),
        3: (I64, rows),
    }
    schema = [{4: (TEXT, b"schema"), 5: (I32, 1)}, {1: (I32, 2), 3: (I32, 0), 4: (TEXT, b"a")}]
    footer = written(STRUCT, {1: (I32, 1), 2: (LIST, (STRUCT, schema)), 3: (I64, rows), 4: (LIST, (STRUCT, [group]))})
    return b"PAR1" + page + footer + struct.pack("<I", len(footer)) + b"PAR1"


HOSTILE = {
    "rows": (made(rows=HUGE, values=HUGE, page_values=(1 << 31) - 1), "its metadata claims 1,099,511,627,776 rows"),
    "values": (made(values=HUGE), "its metadata claims 3 rows, 16,384.0 GiB in memory, in"),
    "bytes": (made(column_bytes=HUGE), "its metadata claims 3 rows, 1,024.0 GiB in memory, in"),
    "page": (made(page_bytes=(1 << 31) - 1, codec=6), "its metadata claims 3 rows, 2.0 GiB in memory, in"),
    "page values": (made(page_values=(1 << 31) - 1), "its metadata claims 3 rows, 32.0 GiB in memory, in"),
    "list": (made(columns=1 << 31), "its metadata is damaged"),
    "less than nothing": (made(rows=-1), "its metadata is damaged"),
    "page before": (made(page_bytes=-1), "its metadata is damaged"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_what_asks_for_too_much_is_told_before_it_is_read(how: str, tmp_path: Path) -> None:
    content, said = HOSTILE[how]
    path = tmp_path / "part-1.parquet"
    path.write_bytes(content)
    with pytest.raises(ParquetError) as told:
        read_parquet([path])
    assert str(told.value).startswith(said)
    with pytest.raises(InputError, match=r"part-1\.parquet can't be read \(.*\): import it again"):
        read_whole(path, "import it again", {"a": None})
    with pytest.warns(UserWarning, match=r"part-1\.parquet can't be read and counts as absent"):
        assert read_parts(tmp_path, {"a": pl.Int64()}).is_empty()


def test_what_is_so_is_read(tmp_path: Path) -> None:
    path = tmp_path / "part-1.parquet"
    path.write_bytes(made())
    assert read_parquet([path])["a"].to_list() == [1, 2, 3]
    frame = pl.DataFrame({"text": ["a", "b", None] * 20, "tokens": [[1, 2], [], None] * 20, "x": [0.5, -1.0, None] * 20})
    path.write_bytes(parquet_bytes(frame))
    assert read_parquet([path]).equals(frame)
    path.write_bytes(parquet_bytes(frame.clear()))
    assert read_parquet([path]).equals(frame.clear())


def test_constant_columns_are_read_however_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million equal numbers are some hundred bytes; only what is larger than PLENTY has to be likely."""
    frame = pl.select(a=pl.repeat(7, 1_000_000, dtype=pl.Int64))
    path = tmp_path / "part-1.parquet"
    path.write_bytes(parquet_bytes(frame))
    assert path.stat().st_size < 2_000
    assert read_parquet([path]).height == 1_000_000
    monkeypatch.setattr(parquet, "PLENTY", 10_000_000)
    monkeypatch.setattr(parquet, "DENSEST", 5_000)
    with pytest.raises(ParquetError, match=r"1,000,000 rows"):
        read_parquet([path])


WHOLE = parquet_bytes(pl.DataFrame({"request": ["abc", "de"], "candidate": [0, 1], "logprobs": [[0.5], []]}))


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_flipped_bit_is_no_other_error(tmp_path_factory: pytest.TempPathFactory, at: int, mask: int) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.parquet"
    content = bytearray(WHOLE)
    content[at] ^= mask
    path.write_bytes(content)
    with contextlib.suppress(ParquetError):
        parquet.check(path)


READ = """
import resource, sys
import polars as pl
import psutil
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
most = psutil.Process().memory_info().vms + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
pl.read_parquet(sys.argv[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system has no such bound")
def test_polars_itself_ends_the_process_where_there_is_less_memory(tmp_path: Path) -> None:
    """Why these files are looked at first: this one asks for 2 GiB where there is one. If it fails, Polars tells by itself."""
    path = tmp_path / "hostile.parquet"
    path.write_bytes(HOSTILE["page"][0])
    one = os.environ | {"POLARS_MAX_THREADS": "1", "MALLOC_ARENA_MAX": "1"}  # each thread would take its part of the memory
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, check=False, env=one)
    assert done.returncode == -signal.SIGABRT, done.stderr
