"""The command line in this process, exactly as its entry point runs it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from evaluator import cli


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The only line on stderr."""
        (line,) = (line for line in self.err.splitlines() if line.strip())
        return line


Command = Callable[..., Ended]


def command(monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> Command:
    """Run `evaluator ARGUMENTS` in this process."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["evaluator", *map(str, arguments)])
        captured.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return Ended(int(stop.value.code or 0), *captured.readouterr())

    return run
