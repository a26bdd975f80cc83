"""What libraries write to stderr among a log of JSON lines, made JSON too: `python -m evaluator.foreign_lines` is the filter.

vLLM, Ray and the system write to file descriptor 2 as they like. The filter passes the log's own lines on and makes an object
of every other one, without secrets. It is a process of its own: what a crash says last is what one wants to read.
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
PATIENCE = 5.0
"""Seconds for the filter to write what is left: an exit must not lose the line that says why."""


@contextlib.contextmanager
def json_stderr() -> Iterator[None]:
    """While the body runs, each line that this process and its children write to stderr is a JSON object."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    command = [sys.executable, "-m", "evaluator.foreign_lines"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=kept, stderr=kept, start_new_session=True)
    assert child.stdin is not None
    before = sys.stderr
    before.flush()
    os.dup2(child.stdin.fileno(), 2)
    child.stdin.close()
    if _is_second(before):  # made for a file or a terminal, which a pipe isn't
        sys.stderr = open(2, "w", encoding="utf8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
            os.write(2, END)  # children may hold the pipe open for longer
        sys.stderr = before
        os.dup2(kept, 2)
        os.close(kept)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE)


def _is_second(stream: TextIO) -> bool:
    """Whether a stream writes to file descriptor 2."""
    try:
        return stream.fileno() == 2
    except (OSError, ValueError):
        return False


def as_json(raw: bytes) -> str:
    """A line as the log has it: its own as they are, of a progress bar what is seen last; empty where nothing is said."""
    text = raw.decode("utf8", "replace").strip().rpartition("\r")[2].strip()
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict) and found.keys() >= {"time", "level", "message", *logs.FIELDS}:
            return text
    return logs.json_line(time.time(), "info", redacted(text)) if text else ""


def main() -> None:
    """Filter standard input until it ends; a signal to a whole job doesn't end it before the others have said their last."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    for raw in sys.stdin.buffer:
        said, end, _ = raw.partition(END)
        if line := as_json(said):
            sys.stdout.buffer.write(line.encode("utf8", "backslashreplace") + b"\n")
            sys.stdout.buffer.flush()
        if end:
            return


if __name__ == "__main__":
    main()
