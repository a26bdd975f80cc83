"""The delays that tests are tried with do delay, and nothing without being asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RACE = """
import threading
late = 0
for _ in range(40):
    done = threading.Event()
    threading.Thread(target=done.set, daemon=True).start()
    late += not done.wait(0.04)
print(late, hasattr(threading.Thread.run, "__wrapped__"))
"""
"""Takes it for granted that a thread begins within 40 ms."""


@pytest.mark.parametrize("seed", [None, "1"])
def test_a_race_is_lost_where_it_is_asked_for(seed: str | None) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    environment.pop("DELAYS", None)
    if seed:
        environment["DELAYS"] = seed
    done = subprocess.run([sys.executable, "-c", RACE], env=environment, capture_output=True, text=True, check=True)
    late, delayed = done.stdout.split()
    assert (delayed == "True") is (seed is not None)
    assert int(late) > 0 or not seed
