"""Locks between processes, where the system has `flock` and where it hasn't."""

import errno
import os
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
    process.communicate("go on\n", timeout=200)
    assert not locks.is_held(lock)
    with locks.held(lock, wait=True):
        assert locks.is_held(lock)


def test_several_lease_and_what_the_dead_left_counts_for_nothing(way: str, tmp_path: Path) -> None:
    assert not locks.is_leased(tmp_path, "model")
    first, second = (holder(way, tmp_path, "lease") for _ in range(2))
    assert locks.is_leased(tmp_path, "model")
    assert not locks.is_leased(tmp_path, "mode")
    first.communicate("go on\n", timeout=200)
    assert locks.is_leased(tmp_path, "model")
    second.kill()
    second.wait(200)
    assert not locks.is_leased(tmp_path, "model")
    assert not list(tmp_path.glob("*.use*"))


def test_what_a_killed_holder_left_is_taken_over(way: str, tmp_path: Path) -> None:
    process = holder(way, tmp_path, "held")
    process.kill()
    process.wait(200)
    assert not locks.is_held(tmp_path / "lock")
    with locks.held(tmp_path / "lock", wait=False):
        assert locks.is_held(tmp_path / "lock")
    assert not locks.is_held(tmp_path / "lock")


def test_a_file_that_flock_left_behind_is_no_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with locks.held(tmp_path / "lock", wait=False):
        pass
    monkeypatch.setattr(locks, "fcntl", None)
    assert not locks.is_held(tmp_path / "lock")
    with locks.held(tmp_path / "lock", wait=False):
        pass


def rewritten(marker: Path, **fields: str) -> None:
    """Let a lock's owner be another one."""
    lines = dict(line.partition("=")[::2] for line in marker.read_text().splitlines()[1:])
    first = marker.read_text().splitlines()[0]
    marker.write_text("\n".join([first, *(f"{key}={value}" for key, value in (lines | fields).items())]) + "\n")


def test_another_process_with_the_dead_owners_number_is_not_the_owner(tmp_path: Path) -> None:
    process = holder("portable", tmp_path, "held")
    process.kill()
    process.wait(200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "fcntl", None)
        rewritten(tmp_path / "lock.owner", pid=str(os.getppid()))  # alive, and started at another time
        assert not locks.is_held(tmp_path / "lock")


def test_nobody_waits_long_for_an_owner_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = holder("portable", tmp_path, "held")
    process.kill()
    process.wait(200)
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    rewritten(tmp_path / "lock.owner", host="elsewhere")
    said = f"process {process.pid} of elsewhere (if it is gone, remove {tmp_path / 'lock.owner'})"
    for wait in (True, False):
        with pytest.raises(locks.TakenError) as taken, locks.held(tmp_path / "lock", wait=wait):
            pass
        assert taken.value.holder == said
    assert locks.is_held(tmp_path / "lock")
    (tmp_path / "lock.owner").unlink()
    with locks.held(tmp_path / "lock", wait=True):
        pass


def test_where_a_file_system_has_no_flock_the_file_says_who_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", without)
    with locks.held(tmp_path / "lock", wait=True):
        assert locks.is_held(tmp_path / "lock")
        with pytest.raises(locks.TakenError, match=f"process {os.getpid()} of"), locks.held(tmp_path / "lock", wait=False):
            pass
    assert not locks.is_held(tmp_path / "lock")
