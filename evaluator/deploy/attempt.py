"""Run a command that a cluster gives again and again, but not where giving it again can't help.

    python -m evaluator.deploy.attempt FOLDER evaluator sweep SWEEP.toml …

Exit code 2 says that the command or its input is wrong. That is remembered in FOLDER, under a digest of the command, of the
files that it names and of the program's version: the next attempt at the same ends at once with the same code and line, where
it would take a cluster's machines to find out again. Any other end, a kill above all, leaves no mark: the same command goes on
from there. Whoever mends the file, or removes the mark, is tried again. Signals go on to the command. A command that isn't
there, or mayn't be run, is 127 and 126, as in a shell.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from evaluator import __version__, logs
from evaluator_serving.secrets import redacted

REFUSED = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)
LARGE = 1 << 24
"""Bytes of a file from which on its size and time stand for what is in it."""


def mark_of(folder: Path, command: Sequence[str]) -> Path:
    """Where it is remembered that this command, with these files as they are, was refused."""
    digest = hashlib.sha256(__version__.encode())
    for argument in command:
        digest.update(b"\0" + os.fsencode(argument) + b"\0")
        with contextlib.suppress(OSError):  # most arguments are no files
            digest.update(_content(Path(argument)))
    return folder / f".refused-{digest.hexdigest()[:16]}"


def _content(path: Path) -> bytes:
    """What tells a file from another one that is called the same; nothing of what isn't a plain file."""
    if not path.is_file():
        return b""
    stat = path.stat()
    return path.read_bytes() if stat.st_size <= LARGE else f"{stat.st_size} {stat.st_mtime_ns}".encode()


def attempt(folder: Path, command: Sequence[str]) -> int:
    """Run the command unless it was refused before. Returns its exit code, as a shell tells it."""
    if logs.wants_json(command):
        logs.use("json")
    mark = mark_of(folder, command)
    if mark.is_file():
        logs.say(f"evaluator: refused before and nothing has changed since: mend its input or remove {mark}", "error")
        return REFUSED
    code = _run(command)
    if code == REFUSED:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            mark.write_bytes(os.fsencode(redacted(" ".join(command)) + "\n"))
        except OSError as error:
            logs.say(f"evaluator: that it was refused can't be remembered in {folder}: {error.strerror}", "warning")
    return code


def _run(command: Sequence[str]) -> int:
    """Run it, passing signals on. Returns its exit code, as a shell tells it."""
    early: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for number in SIGNALS:
        signal.signal(number, pass_on)
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        logs.say(f"evaluator: {command[0]} can't be run: {error.strerror}", "error")
        return 127 if isinstance(error, FileNotFoundError) else 126
    for missed in early:
        child.send_signal(missed)
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m evaluator.deploy.attempt FOLDER COMMAND…")
    sys.exit(attempt(Path(sys.argv[1]), sys.argv[2:]))
