"""Parts appear whole or not at all."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.store import files
from evaluator.store.answers import ANSWERS, answers_frame
from evaluator.store.files import merge_parts, read_parts, read_whole, write_bytes, write_part
from evaluator.store.frame_cache import FrameCache
from evaluator_serving.answers import Answer
from evaluator_serving.errors import InputError

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
token_lists = st.lists(st.lists(st.tuples(st.integers(0, 2**31 - 1), finite), max_size=4), min_size=1, max_size=3)


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.text(min_size=1, max_size=8), token_lists, max_size=6))
def test_answers_come_back_as_written(tmp_path_factory: pytest.TempPathFactory, content: dict) -> None:
    answers = [
        Answer(
            request,
            tuple(tuple(t for t, _ in candidate) for candidate in candidates),
            tuple(tuple(v for _, v in candidate) for candidate in candidates),
        )
        for request, candidates in content.items()
    ]
    folder = tmp_path_factory.mktemp("parts")
    for answer in answers:
        write_part(folder, answers_frame([answer]))
    frame = read_parts(folder, ANSWERS)
    back = [
        Answer(request, tuple(map(tuple, group["tokens"].to_list())), tuple(map(tuple, group["logprobs"].to_list())))
        for (request,), group in frame.group_by("request", maintain_order=True)
    ]
    assert back == answers


def test_cut_part_and_debris_are_ignored(tmp_path: Path) -> None:
    good = write_part(tmp_path, pl.DataFrame({"a": [1, 2]}))
    (tmp_path / "part-99.parquet").write_bytes(good.read_bytes()[:-7])
    (tmp_path / ".tmp-0-part-98.parquet").write_bytes(b"half")
    with pytest.warns(UserWarning, match="part-99"):
        frame = read_parts(tmp_path, {"a": pl.Int64()})
    assert frame["a"].to_list() == [1, 2]


@pytest.mark.parametrize("wrong", [[-1.0, float("nan")], [float("-inf")], [-1.0, None], None])
def test_a_part_with_numbers_that_are_none_is_damaged(tmp_path: Path, wrong: list[float | None] | None) -> None:
    write_part(tmp_path, answers_frame([Answer("good", ((1,), ()), ((-1.0,), ()))]))
    right = answers_frame([Answer("bad", ((1, 2),), ((-1.0, -2.0),))])
    bad = write_part(tmp_path, right.with_columns(logprobs=pl.Series([wrong], dtype=ANSWERS["logprobs"])))
    with pytest.warns(UserWarning, match=rf"{bad} .* counts as absent, the same command scores it again: logprobs"):
        frame = read_parts(tmp_path, ANSWERS)
    assert frame["request"].to_list() == ["good", "good"]


def test_a_folder_of_parts_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write_part(tmp_path, pl.DataFrame({"a": [number, -number], "more": [0, 0]}))
    reads: list[object] = []
    plain = pl.read_parquet

    def read(source: object, **options: Any) -> pl.DataFrame:
        reads.append(source)
        return plain(source, **options)

    monkeypatch.setattr(pl, "read_parquet", read)
    assert read_parts(tmp_path, {"a": pl.Int64()})["a"].to_list() == [n for i in range(20) for n in (i, -i)]
    assert len(reads) == 1


def test_parts_are_read_again_when_others_came_or_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"a": pl.Int64()}
    first = write_part(tmp_path, pl.DataFrame({"a": [1]}))
    assert read_parts(tmp_path, schema)["a"].to_list() == [1]
    with monkeypatch.context() as patch:
        patch.setattr(pl, "read_parquet", lambda *_, **__: pytest.fail("it was read before"))
        assert read_parts(tmp_path, schema)["a"].to_list() == [1]
    second = write_part(tmp_path, pl.DataFrame({"a": [2]}))
    assert read_parts(tmp_path, schema)["a"].to_list() == [1, 2]
    first.write_bytes(second.read_bytes()[:-5])
    with pytest.warns(UserWarning, match=first.name):
        assert read_parts(tmp_path, schema)["a"].to_list() == [2]
    first.unlink()
    assert read_parts(tmp_path, schema)["a"].to_list() == [2]
    assert read_parts(tmp_path, {"a": pl.Int32()}).schema == {"a": pl.Int32()}


def numbered(folder: Path, count: int) -> list[Path]:
    """So many parts, each with its number in column `a`."""
    return [write_part(folder, pl.DataFrame({"a": [number]})) for number in range(count)]


def test_parts_are_made_one_where_they_are_many(tmp_path: Path) -> None:
    numbered(tmp_path, 5)
    merge_parts(tmp_path, {"a": pl.Int64()}, least=6)
    assert len(list(tmp_path.iterdir())) == 5
    merge_parts(tmp_path, {"a": pl.Int64()}, least=5)
    assert len(list(tmp_path.iterdir())) == 1
    numbered(tmp_path, 2)
    assert read_parts(tmp_path, {"a": pl.Int64()})["a"].to_list() == [0, 1, 2, 3, 4, 0, 1]


def test_parts_with_a_damaged_one_among_them_stay_as_they_are(tmp_path: Path) -> None:
    first, *others = numbered(tmp_path, 3)
    first.write_bytes(first.read_bytes()[:-5])
    merge_parts(tmp_path, {"a": pl.Int64()}, least=2)
    assert sorted(tmp_path.iterdir()) == sorted([first, *others])


def test_a_reader_that_meets_a_merging_reads_what_is_there_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, schema, plain = numbered(tmp_path, 4), {"a": pl.Int64()}, files.stamp

    def late(listed: Sequence[Path]) -> Any:
        monkeypatch.undo()
        assert listed == paths
        merge_parts(tmp_path, schema, least=2)
        return plain(listed)

    monkeypatch.setattr(files, "stamp", late)
    assert read_parts(tmp_path, schema)["a"].to_list() == [0, 1, 2, 3]


def test_of_frames_that_were_read_those_are_kept_that_fit() -> None:
    frames = [pl.DataFrame({"a": range(100)}) for _ in range(3)]
    kept = FrameCache(most=2 * frames[0].estimated_size())
    for name, frame in zip("abc", frames, strict=True):
        kept.put(name, (), frame)
        assert kept.get("a", ()) is not None or name == "c"
    assert [kept.get(name, ()) is not None for name in "abc"] == [True, False, True]
    assert kept.get("c", (("part", 1, 2, 3),)) is None


def test_parts_of_older_versions_are_read_beside_newer_ones(tmp_path: Path) -> None:
    write_part(tmp_path, pl.DataFrame({"a": [1]}, schema={"a": pl.Int32}))
    write_part(tmp_path, pl.DataFrame({"a": [2], "kind": ["new"]}))
    write_part(tmp_path, pl.DataFrame({"a": [3]}))
    frame = read_parts(tmp_path, {"a": pl.Int64(), "kind": pl.String()}, absent={"kind": "old"})
    assert frame.rows() == [(1, "old"), (2, "new"), (3, "old")]


@pytest.mark.parametrize("name", ["a[1]", "model=m", "every*"])
def test_a_folder_may_be_called_like_a_pattern(tmp_path: Path, name: str) -> None:
    path = write_part(tmp_path / name, pl.DataFrame({"a": [1]}))
    write_part(tmp_path / name, pl.DataFrame({"a": [2]}))
    assert read_parts(tmp_path / name, {"a": pl.Int64()})["a"].to_list() == [1, 2]
    assert read_whole(path, "", {}).columns == ["a"]


def test_a_file_with_nan_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    pl.DataFrame({"score": [1.0, None, float("inf")], "parts": [[1.0, None], [], None]}).write_parquet(path)
    assert read_whole(path, "import it again", {}).height == 3  # null: no score; infinite: the logarithm of a score of 0
    pl.DataFrame({"score": [1.0, float("nan")]}).write_parquet(path)
    with pytest.raises(InputError, match=r"scores\.parquet can't be read \(score contains .*: import it again"):
        read_whole(path, "import it again", {})


def test_full_disk_leaves_the_old_file_and_no_debris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run.json"
    write_bytes(target, b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(target, b"new")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
