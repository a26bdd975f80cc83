"""Run a command that a cluster gives again and again, but not where giving it again can't help.

    python -m evaluator.sweep.attempt FOLDER evaluator sweep SWEEP.toml …

Exit code 2 says that the command or its input is wrong. That is remembered in FOLDER, under a digest of the command, of the
files that it names and of the program's version: the next attempt at the same ends at once with the same code and line, where
it would take a cluster's machines to find out again. Any other end, a kill above all, leaves no mark: the same command goes on
from there. Whoever mends the file, or removes the mark, is tried again. Signals go on to the command.
"""

import hashlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from evaluator import __version__

REFUSED = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def mark_of(folder: Path, command: Sequence[str]) -> Path:
    """Where it is remembered that this command, with these files as they are, was refused."""
    digest = hashlib.sha256(__version__.encode())
    for argument in command:
        path = Path(argument)
        digest.update(b"\0" + argument.encode() + b"\0")
        digest.update(path.read_bytes() if path.is_file() else b"")
    return folder / f".refused-{digest.hexdigest()[:16]}"


def attempt(folder: Path, command: Sequence[str]) -> int:
    """Run the command unless it was refused before. Returns its exit code, as a shell tells it."""
    mark = mark_of(folder, command)
    if mark.is_file():
        print(f"evaluator: refused before and nothing has changed since: mend its input or remove {mark}", file=sys.stderr)
        return REFUSED
    child = subprocess.Popen(command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in SIGNALS:
        signal.signal(number, pass_on)
    code = child.wait()
    if code == REFUSED:
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(" ".join(command) + "\n", encoding="utf8")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m evaluator.sweep.attempt FOLDER COMMAND…")
    sys.exit(attempt(Path(sys.argv[1]), sys.argv[2:]))
