"""Run by test_crash.py: start the same run again and again, SIGKILL it at random moments, then let it finish.

    python killer.py SEED KILLS SECONDS OUT ARGUMENT…

Where EVALUATOR_CACHE ends in {}, each attempt has a cache of its own, and so is on another machine as far as it can tell.

torch is imported once, here, and each attempt is a fork of this process: 20 attempts would otherwise spend minutes
importing. An attempt that is to be killed stores one part at the most and then waits, so that it is there to be killed however
late the kill comes. Prints how many attempts were killed while they were running.
"""

import os
import random
import signal
import sys
import time
from typing import Any

import transformers  # noqa: F401  (imported once for all attempts)

from evaluator.cli import main
from evaluator.store.run import Run


def waiting_after(parts: int) -> None:
    """Let this process store so many parts and wait before the next one."""
    store, left = Run.add_answers, iter(range(parts))

    def add(run: Run, *what: Any) -> None:
        if next(left, None) is None:
            time.sleep(3600)
        store(run, *what)

    Run.add_answers = add  # type: ignore[method-assign]


def attempt(arguments: list[str], number: int, parts: int | None) -> int:
    """Fork a process that runs the command, as far as to so many parts; returns its pid."""
    pid = os.fork()
    if pid == 0:
        if (cache := os.environ.get("EVALUATOR_CACHE", "")).endswith("{}"):
            os.environ["EVALUATOR_CACHE"] = cache.format(number)
        if parts is not None:
            waiting_after(parts)
        sys.argv = ["evaluator", *arguments]
        log = os.open("/dev/null", os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            main()
        except SystemExit as stop:
            os._exit(int(stop.code or 0))
        finally:
            os._exit(99)
    return pid


def run(seed: int, kills: int, seconds: float, arguments: list[str]) -> None:
    """Kill `kills` attempts after a random part of `seconds`, then run one to its end."""
    dice = random.Random(seed)
    hit = 0
    for number in range(kills):
        pid = attempt(arguments, number, number % 2)
        time.sleep(dice.uniform(0, seconds))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        hit += os.WIFSIGNALED(status)
    _, status = os.waitpid(attempt(arguments, kills, None), 0)
    print(hit, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
