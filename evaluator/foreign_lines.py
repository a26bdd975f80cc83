"""Convert what libraries write to stderr into JSON log lines: `python -m evaluator.foreign_lines` is the filter process.

vLLM, Ray and the system write to file descriptor 2 directly. The filter passes log lines through, and wraps every other line
in a JSON object, with secrets redacted. It is a separate process so that the last output of a crash is not lost.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from evaluator import logs
from evaluator_serving.secrets import redacted

END = b"\0end of the log\n"
EXIT_TIMEOUT = 5.0
"""Seconds to wait for the filter to write its remaining lines at exit."""


@contextlib.contextmanager
def json_stderr() -> Iterator[None]:
    """While the body runs, every line that this process and its children write to stderr becomes a JSON object."""
    try:
        stderr = os.dup(2)
    except OSError:  # the process has no stderr
        yield
        return
    command = [sys.executable, "-m", "evaluator.foreign_lines"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stderr, stderr=stderr, start_new_session=True)
    assert child.stdin is not None
    before = sys.stderr
    before.flush()
    os.dup2(child.stdin.fileno(), 2)
    child.stdin.close()
    if _is_stderr(before):  # it may have been opened for a file or a terminal, which a pipe is not
        sys.stderr = open(2, "w", encoding="utf8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
            os.write(2, END)  # children may keep the pipe open
        sys.stderr = before
        os.dup2(stderr, 2)
        os.close(stderr)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(EXIT_TIMEOUT)


def _is_stderr(stream: TextIO) -> bool:
    """Whether a stream writes to file descriptor 2."""
    try:
        return stream.fileno() == 2
    except (OSError, ValueError):
        return False


def as_json(raw: bytes) -> str:
    """A line as JSON. Log lines are unchanged; of a progress bar only its last state is kept; empty for an empty line."""
    text = raw.decode("utf8", "replace").strip().rpartition("\r")[2].strip()
    with contextlib.suppress(ValueError):
        entry = json.loads(text)
        if isinstance(entry, dict) and entry.keys() >= {"time", "level", "message", *logs.FIELDS}:
            return text
    return logs.json_line(time.time(), "info", redacted(text)) if text else ""


def main() -> None:
    """Filter standard input until it ends, ignoring signals: other processes of the group may still write."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    for raw in sys.stdin.buffer:
        content, end, _ = raw.partition(END)
        if line := as_json(content):
            sys.stdout.buffer.write(line.encode("utf8", "backslashreplace") + b"\n")
            sys.stdout.buffer.flush()
        if end:
            return


if __name__ == "__main__":
    main()
