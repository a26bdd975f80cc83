"""benchmarks/soak.py's own judgement: memory that grows is seen, and a process that was left behind."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import soak as program

HOLDS = """
import mmap, sys
kept = []
print(flush=True)
for line in sys.stdin:
    what = line.strip()
    if what == "own":
        kept.append(bytearray(b"x") * (64 << 20))
    else:
        with open(what, "rb") as file:
            kept.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        kept[-1][::4096]
    print(flush=True)
"""
"""A process that keeps 64 MiB of its own, or a file that it maps and reads."""


@contextlib.contextmanager
def process(title: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """One that HOLDS, whose command line begins with a title."""
    pipe = subprocess.PIPE
    command = [title, "-S", "-c", HOLDS]
    known = os.environ | environment
    with subprocess.Popen(command, executable=sys.executable, env=known, stdin=pipe, stdout=pipe, text=True) as made:
        assert made.stdout is not None
        made.stdout.readline()
        yield made


def tell(child: subprocess.Popen[str], what: str) -> None:
    """Have it done before anything else is."""
    assert child.stdin is not None
    assert child.stdout is not None
    print(what, file=child.stdin, flush=True)
    child.stdout.readline()


def test_memory_after_the_warm_up() -> None:
    """1,200 s: 180 of them warm-up, then quarters of 255 s."""
    watch = program.Watch(0.0)
    watch.series["driver"] = [(at, 100.0 if at < 180 else 200.0 if at < 900 else 230.0) for at in range(0, 1200, 2)]
    watch.series["killed model processes"] = [(at, 300.0) for at in range(0, 1200, 2)]
    assert watch.changes(1200.0) == {
        "driver": {"first_mib": 200.0, "last_mib": 230.0, "change": 0.15},
        "killed model processes": {"first_mib": 300.0, "last_mib": 300.0, "change": 0.0},
    }
    assert program._minutes([(0.0, 1.0), (59.0, 3.0), (61.0, 5.0)]) == [2.0, 5.0]


def test_a_look_tells_the_kinds_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process wrote counts, and not what it maps; one model process is spared, however often one looks.

    One that loads is neither noted nor killed.
    """
    monkeypatch.setattr(program, "AT_WORK", 0.0)
    weights = tmp_path / "weights"
    weights.write_bytes(bytes(64 << 20))
    raylet = tmp_path / "raylet"
    raylet.symlink_to("/bin/sleep")
    watch = program.Watch(0.0)
    with (
        process("driver") as driver,
        process("ray::RayWorker.score") as one,
        process("ray::RayWorker.score") as two,
        process("ray::RayWorker.load") as three,
    ):
        ray = subprocess.Popen([raylet, "900"])
        children = [driver, one, two, three, ray]
        found = {child.pid: psutil.Process(child.pid) for child in children}
        family = [found[child.pid] for child in (one, two, three, ray)]
        for kept, child in (("", None), (str(weights), one), ("own", one), ("own", two)):
            if child is not None:
                tell(child, kept)
            assert watch.look(found[driver.pid], family) == [found[two.pid]]
        ray.kill()
        ray.wait()
    assert {kind: len(points) for kind, points in watch.series.items()} == dict.fromkeys(program.KINDS, 4)
    driven, spared, killed = ([mib for _, mib in watch.series[kind]] for kind in program.JUDGED)
    before = spared[0]
    assert driven == pytest.approx([driven[0]] * 4, abs=4.0)
    assert spared == pytest.approx([before, before, before + 64, before + 64], abs=4.0)
    assert killed == pytest.approx([*killed[:1] * 3, killed[0] + 64], abs=4.0)
    assert program.own_mib(one.pid) == 0.0
    assert program.left_behind("no mark", watch.seen) == []


def test_sentences_for_the_time_asked_for() -> None:
    """By hand: the spared worker all the time, the other one 20 of 30 s, or the last 5 of 45 s."""
    asked = {"seconds": 1200.0, "every": 30.0, "workers": 2}
    assert program.enough(9.0, 10.0, **asked) == pytest.approx(9 * 1200 * (1 + 20 / 30), abs=1)
    assert program.enough(9.0, 40.0, **asked) == pytest.approx(9 * 1200 * (1 + 5 / 45), abs=1)


def test_what_is_left_behind_is_found_by_its_mark_or_as_seen() -> None:
    here, elsewhere = (f"{os.getpid()} {where}" for where in ("here", "elsewhere"))  # other tests run beside this one
    with process("left", **{program.MARK: here}) as child:
        assert len(program.left_behind(here)) == 1
        assert program.left_behind(elsewhere) == []
        assert len(program.left_behind(elsewhere, {psutil.Process(child.pid)})) == 1
    assert program.left_behind(here) == []
