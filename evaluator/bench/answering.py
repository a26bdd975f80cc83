"""A backend's process, seen from inside: it is asked a line at a time, and answers each with a line of JSON."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from evaluator.bench.counter import Counter
from evaluator_serving.memory import peak_memory
from evaluator_serving.secrets import redacted


def say(answers: IO[str], what: Mapping[str, Any]) -> None:
    """Answer."""
    print(json.dumps(what), file=answers, flush=True)


@contextlib.contextmanager
def asked() -> Iterator[tuple[Iterator[str], IO[str]]]:
    """The lines that this process is asked, and where its answers go; what ends it with an error is its last answer."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print must not get between the answers
    try:
        yield iter(sys.stdin), answers
    except Exception as error:
        say(answers, {"error": redacted(f"{type(error).__name__}: {' '.join(str(error).split())}")[:300]})
        raise


def measured(counter: Counter, score: Callable[[], tuple[Any, Mapping[str, float]]]) -> dict[str, Any]:
    """What one call takes: seconds of wall and processor, this process's peak bytes, what was counted; and its numbers.

    `score` gives the numbers, and what it knows of them itself.
    """
    counter.reset()
    wall, cpu = time.perf_counter(), time.process_time()
    numbers, took = score()
    seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**took, **seconds, "host": peak_memory(), **counter.told(), "numbers": numbers}
