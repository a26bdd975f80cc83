"""Run by test_crash.py: start the same run again and again, SIGKILL it at random moments, then let it finish.

    python killer.py SEED KILLS SECONDS OUT ARGUMENT…

Where EVALUATOR_CACHE ends in {}, each attempt has a cache of its own, and so is on another machine as far as it can tell.

torch is imported once, here, and each attempt is a fork of this process: 20 attempts would otherwise spend minutes
importing. Prints how many attempts were killed while they were running.
"""

import os
import random
import signal
import sys
import time

import transformers  # noqa: F401  (imported once for all attempts)

from evaluator.cli import main


def attempt(arguments: list[str], number: int) -> int:
    """Fork a process that runs the command; returns its pid."""
    pid = os.fork()
    if pid == 0:
        if (cache := os.environ.get("EVALUATOR_CACHE", "")).endswith("{}"):
            os.environ["EVALUATOR_CACHE"] = cache.format(number)
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
        pid = attempt(arguments, number)
        time.sleep(dice.uniform(0, seconds))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        hit += os.WIFSIGNALED(status)
    _, status = os.waitpid(attempt(arguments, kills), 0)
    print(hit, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
