"""A table in a file is the table, and takes no memory while nothing of it is read."""

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest

from evaluator_serving.chunks import chunks
from evaluator_serving.rows import Coverage, Encoded, EncodedCandidate, Row, read_at, reads_of
from evaluator_serving.table import EncodedTable
from evaluator_serving.table_file import MappedTable, mapped, read, write


def item(number: int, length: int = 3) -> Encoded:
    """A request with two candidates after one beginning."""
    ids = (number % 250, *range(length - 1))
    rows = (Row("causal", ids, ((length - 1, 7),)), Row("masked", ids, ((0, number),), (0,) * length))
    candidates = (EncodedCandidate((7,), reads_of(0, 1)), EncodedCandidate((number,), (read_at(1, 0),)))
    return Encoded(f"r{number}", rows, candidates, Coverage(length, number % 2, 0), "continuation")


def test_a_mapped_table_is_the_table() -> None:
    items = [item(number, 3 + number % 5) for number in range(50)]
    table = EncodedTable.of(items)
    found = mapped(table)
    assert isinstance(found, MappedTable)
    assert list(found) == items
    assert found.position == {f"r{number}": number for number in range(50)}
    assert found.forwards.rows == table.forwards.rows
    assert found.only(table.requests) is found
    assert list(found.only(["r7", "r3"])) == [items[7], items[3]]
    assert [each.requests for each in chunks(found, tokens=20)] == [each.requests for each in chunks(table, tokens=20)]
    assert list(pickle.loads(pickle.dumps(chunks(found, tokens=20)[0])).table) == list(chunks(table, tokens=20)[0].table)
    assert list(EncodedTable.concat([found, EncodedTable.of([item(99)])])) == [*items, item(99)]


def test_a_file_may_go_once_it_is_read(tmp_path: Path) -> None:
    path, table = tmp_path / "table", EncodedTable.of([item(1), item(2)])
    with path.open("wb") as file:
        write(table, file)
    with path.open("rb") as file:
        found = read(file, ["r1", "r2"])
    path.unlink()
    assert found == table


def test_a_table_stays_in_memory_where_no_file_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    table = EncodedTable.of([item(1)])
    assert mapped(table) is table


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="needs Linux's accounts of memory")
def test_memory_holds_what_is_read(tmp_path: Path) -> None:
    """Of 12 tables of 16 MB, each gone through, no more is kept than of one."""
    items = [item(number, 2000) for number in range(4)]
    few = EncodedTable.of(items).take(np.arange(2000) % 4)

    def held() -> int:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssFile"))) * 1024

    kept = []
    for number in range(12):
        kept.append(mapped(few))
        kept[-1].take(range(2000))
        assert len(kept[-1].forwards) == 8
        kept[-1].forwards.computed  # noqa: B018
        assert kept[-1].columns.ids.flat.max() == 1998
        kept[-1].release()
        if number == 1:
            before = held()
    assert held() - before < 60 << 20
    assert sum(array.flat.nbytes for table in kept for array in (table.columns.ids, table.columns.types)) > 100 << 20
