"""Locks between processes, where the system has `flock` and where it hasn't."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaluator_serving import locks

HOLD = """
import sys, contextlib
from pathlib import Path
from evaluator_serving import locks
if sys.argv[1] == "portable":
    locks.fcntl = None
how = locks.lease(Path(sys.argv[2]), "model") if sys.argv[3] == "lease" else locks.held(Path(sys.argv[2]) / "lock", wait=False)
with how:
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=["flock", "portable"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "portable":
        monkeypatch.setattr(locks, "fcntl", None)
    return str(request.param)


def holder(way: str, folder: Path, kind: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, way, str(folder), kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_one_holds_and_the_others_see_it(way: str, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not locks.is_held(lock)
    process = holder(way, tmp_path, "held")
    assert locks.is_held(lock)
    with pytest.raises(locks.TakenError), locks.held(lock, wait=False):
        pass
    process.communicate("go on\n", timeout=20)
    assert not locks.is_held(lock)
    with locks.held(lock, wait=True):
        assert locks.is_held(lock)


def test_several_lease_and_what_the_dead_left_counts_for_nothing(way: str, tmp_path: Path) -> None:
    assert not locks.is_leased(tmp_path, "model")
    first, second = (holder(way, tmp_path, "lease") for _ in range(2))
    assert locks.is_leased(tmp_path, "model")
    assert not locks.is_leased(tmp_path, "mode")
    first.communicate("go on\n", timeout=20)
    assert locks.is_leased(tmp_path, "model")
    if way == "portable":  # a file is all there is: its library finds out that the holder is dead only after a while
        second.communicate("go on\n", timeout=20)
    else:
        second.kill()
        second.wait(20)
    assert not locks.is_leased(tmp_path, "model")
    assert not list(tmp_path.glob("*.use"))
