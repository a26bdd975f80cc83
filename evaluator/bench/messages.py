"""The child's side of the protocol between `bench` and a backend's process: one line in, one line of JSON out."""

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


def send(answers: IO[str], what: Mapping[str, Any]) -> None:
    """Write one answer."""
    print(json.dumps(what), file=answers, flush=True)


@contextlib.contextmanager
def command_stream() -> Iterator[tuple[Iterator[str], IO[str]]]:
    """The parent's lines and the stream for answers. An exception in the body is sent as the last answer."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    try:
        yield iter(sys.stdin), answers
    except Exception as error:
        send(answers, {"error": redacted(f"{type(error).__name__}: {' '.join(str(error).split())}")[:300]})
        raise


def measure_call(counter: Counter, score: Callable[[], tuple[Any, Mapping[str, float]]]) -> dict[str, Any]:
    """Cost of one call: wall and processor seconds, peak bytes of this process, the counter's totals, and the numbers.

    `score` returns the numbers and its own measurements.
    """
    counter.reset()
    wall, cpu = time.perf_counter(), time.process_time()
    numbers, took = score()
    seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**took, **seconds, "host": peak_memory(), **counter.record(), "numbers": numbers}
