"""benchmarks/soak.py's own judgement: memory that grows is seen, and a process that was left behind."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("soak")


def test_memory_after_the_warm_up(program: ModuleType) -> None:
    """1,200 s: 180 of them warm-up, then quarters of 255 s."""
    watch = program.Watch(0.0)
    watch.series["driver"] = [(at, 100.0 if at < 180 else 200.0 if at < 900 else 230.0) for at in range(0, 1200, 2)]
    watch.series["model processes"] = [(at, 300.0) for at in range(0, 1200, 2)]
    assert watch.changes(1200.0) == {
        "driver": {"first_mib": 200.0, "last_mib": 230.0, "change": 0.15},
        "model processes": {"first_mib": 300.0, "last_mib": 300.0, "change": 0.0},
    }
    assert program._minutes([(0.0, 1.0), (59.0, 3.0), (61.0, 5.0)]) == [2.0, 5.0]


def test_what_is_left_behind_is_found_by_its_mark(program: ModuleType) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    child = subprocess.Popen(command, env={**os.environ, program.MARK: "here"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert len(program.left_behind("here")) == 1
    assert program.left_behind("elsewhere") == []
    child.communicate(b"\n")
    assert program.left_behind("here") == []
