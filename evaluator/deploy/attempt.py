"""Run a command that a cluster retries, unless a retry cannot succeed.

    python -m evaluator.deploy.attempt FOLDER evaluator sweep SWEEP.toml …

Exit code 2 means that the command or its input is invalid. A marker file in FOLDER records it under a digest of the command,
the files that it names and the program's version. Further attempts exit with code 2 at once, without occupying the cluster,
until the input changes or the marker is removed. Any other exit, such as a kill, leaves no marker. Signals are forwarded to
the command. A command that is not found or not executable exits with 127 or 126, as in a shell.
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
"""Size in bytes above which a file is identified by size and modification time instead of its content."""


def marker(folder: Path, command: Sequence[str]) -> Path:
    """Path of the marker that this command, with the present content of its files, was refused."""
    digest = hashlib.sha256(__version__.encode())
    for argument in command:
        digest.update(b"\0" + os.fsencode(argument) + b"\0")
        with contextlib.suppress(OSError):  # most arguments are not files
            digest.update(_identity(Path(argument)))
    return folder / f".refused-{digest.hexdigest()[:16]}"


def _identity(path: Path) -> bytes:
    """Content, or size and time, of a file; empty for anything else."""
    if not path.is_file():
        return b""
    stat = path.stat()
    return path.read_bytes() if stat.st_size <= LARGE else f"{stat.st_size} {stat.st_mtime_ns}".encode()


def attempt(folder: Path, command: Sequence[str]) -> int:
    """Run the command unless it was refused before. Returns its exit code as a shell does."""
    if logs.wants_json(command):
        logs.use("json")
    path = marker(folder, command)
    if path.is_file():
        logs.say(f"evaluator: refused before, and its input has not changed: correct the input or remove {path}", "error")
        return REFUSED
    code = _run(command)
    if code == REFUSED:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.fsencode(redacted(" ".join(command)) + "\n"))
        except OSError as error:
            logs.say(f"evaluator: the marker of a refused command can't be written to {folder}: {error.strerror}", "warning")
    return code


def _run(command: Sequence[str]) -> int:
    """Run the command and forward signals to it. Returns its exit code as a shell does."""
    pending: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        if child is None:
            pending.append(number)
        else:
            child.send_signal(number)

    for number in SIGNALS:
        signal.signal(number, forward)
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        logs.say(f"evaluator: {command[0]} can't be run: {error.strerror}", "error")
        return 127 if isinstance(error, FileNotFoundError) else 126
    for early in pending:
        child.send_signal(early)
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m evaluator.deploy.attempt FOLDER COMMAND…")
    sys.exit(attempt(Path(sys.argv[1]), sys.argv[2:]))
