"""The append-only cache: crashes, several writers, the first answer stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from evaluator.gender.answer_cache import AnswerCache, answer_key


def test_answers_survive_and_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "answers.jsonl"
    cache = AnswerCache(path)
    assert cache.get("a") is None
    assert len(cache) == 0
    cache.add({"a": "á", "b": None})
    cache.add({"a": "other", "c": [1, 2]})
    again = AnswerCache(path)
    assert again.get("a") == "á"
    assert "b" in again
    assert again.get("b", "default") is None
    assert again.missing(["a", "x", "c", "x", "y"]) == ["x", "y"]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


def test_a_line_cut_off_by_a_crash_is_skipped_and_not_glued(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerCache(path).add({"a": 1, "b": 2})
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        cache = AnswerCache(path)
        before = {key for key in "ab" if key in cache}
        cache.add({"c": 3})
        again = AnswerCache(path)
        # a last line without its newline is whole JSON and counts
        assert {key for key in "ab" if key in again} == before
        assert again.get("c") == 3


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    one, two = AnswerCache(path), AnswerCache(path)
    one.add({"a": 1})
    assert "a" in two
    two.add({"b": 2})
    one.add({"c": 3})
    assert {key: AnswerCache(path).get(key) for key in "abc"} == {"a": 1, "b": 2, "c": 3}


def test_a_killed_process_keeps_what_it_had_added(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    program = (
        "import os, sys, itertools; from pathlib import Path; from evaluator.gender.answer_cache import AnswerCache\n"
        "cache = AnswerCache(Path(sys.argv[1]))\n"
        "for i in itertools.count():\n"
        "    cache.add({str(i): 'x' * 1000}); print(i, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for _ in range(20):
            last = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    assert all(str(i) in AnswerCache(path) for i in range(last + 1))


def test_keys_depend_on_every_part_and_its_place() -> None:
    keys = {answer_key("a", "b"), answer_key("b", "a"), answer_key("ab", ""), answer_key("a", "b", "")}
    assert len(keys) == 4
