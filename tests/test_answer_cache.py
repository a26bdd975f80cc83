"""The append-only cache: crashes, several writers, the first answer stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from evaluator.answer_cache import AnswerCache, answer_key


def entries(**answers: Any) -> list[dict[str, Any]]:
    return [{"key": key, "about": "for a reader", "answer": answer} for key, answer in answers.items()]


def answers(cache: AnswerCache, keys: str) -> dict[str, Any]:
    return {key: cache[key] for key in keys if key in cache}


def test_answers_survive_and_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "answers.jsonl"
    cache = AnswerCache(path)
    assert len(cache) == 0
    cache.add(entries(a="á", b=None))
    cache.add(entries(a="other", c=[1, 2]))
    again = AnswerCache(path)
    assert answers(again, "abcx") == {"a": "á", "b": None, "c": [1, 2]}
    assert again.missing(["a", "x", "c", "x", "y"]) == ["x", "y"]
    assert len(again) == len(path.read_text(encoding="utf-8").splitlines()) == 3


def test_a_line_cut_off_by_a_crash_is_skipped_and_not_glued(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerCache(path).add(entries(a=1, b=2))
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        cache = AnswerCache(path)
        before = answers(cache, "ab")
        assert set(before) < {"a", "b"} or cut == len(whole) - 1, "a last line without its newline is whole and counts"
        cache.add(entries(c=3))
        assert answers(AnswerCache(path), "abc") == {**before, "c": 3}


def test_two_writers_share_a_file_and_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    one, two = AnswerCache(path), AnswerCache(path)
    one.add(entries(a=1))
    two.add(entries(a=9, b=2))
    assert answers(two, "ab") == {"a": 1, "b": 2}
    one.add(entries(c=3))
    assert answers(one, "abc") == answers(AnswerCache(path), "abc") == {"a": 1, "b": 2, "c": 3}
    assert len(path.read_text().splitlines()) == 3


def test_a_killed_process_keeps_what_it_had_added(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    program = (
        "import os, sys, itertools; from pathlib import Path; from evaluator.answer_cache import AnswerCache\n"
        "cache = AnswerCache(Path(sys.argv[1]))\n"
        "for i in itertools.count():\n"
        "    cache.add([{'key': str(i), 'answer': 'x' * 1000}]); print(i, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for _ in range(20):
            last = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    assert AnswerCache(path).missing(map(str, range(last + 1))) == []


def test_keys_depend_on_every_part_and_its_place() -> None:
    keys = {answer_key("a", "b"), answer_key("b", "a"), answer_key("ab", ""), answer_key("a", "b", ""), answer_key("a", ["b"])}
    assert len(keys) == 5
    assert answer_key("a", {"x": 1, "y": 2}) == answer_key("a", {"y": 2, "x": 1})


def test_translations_that_were_paid_for_keep_their_keys() -> None:
    assert answer_key("I cook.", "deepl", "sk", {"beams": "4"}) == "691ae0cd9d4c6fdf66573d83133d3d99"
