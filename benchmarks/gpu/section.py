"""The record of one section of gpu_check, written after every part."""

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class SkipError(Exception):
    """A part, or a whole section, can't be done here; the message says what is missing."""


@dataclass
class Part:
    """One thing that is tried.

    Attributes:
        checks: what, the value found, the largest that is right, whether it is.
        results: what was measured.
        state: `running` until it has ended; then `passed` (all of at least one check right), `measured` (nothing to check),
            `failed` or `skipped`, with the reason.
    """

    checks: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    state: str = "running"
    reason: str = ""
    seconds: float = 0.0

    def check(self, what: str, value: float, limit: float) -> None:
        """Write down that `value` must be at most `limit`; NaN is wrong."""
        self.checks.append({"what": what, "value": value, "limit": limit, "right": bool(value <= limit)})

    def holds(self, what: str, value: object) -> None:
        """Write down that something must be so."""
        self.checks.append({"what": what, "value": value, "right": bool(value)})

    def measured(self, **results: Any) -> None:
        """Write down numbers."""
        self.results |= results

    def record(self) -> dict[str, Any]:
        """For JSON. A part that was skipped has a reason there and no state that could be taken for another."""
        if self.state == "skipped":
            return {"skipped": self.reason}
        told: dict[str, Any] = {"state": self.state, "seconds": round(self.seconds, 2)}
        if self.reason:
            told["reason"] = self.reason
        return {**told, "checks": self.checks, **self.results}


@dataclass
class Section:
    """The parts of a section, the device (`cpu` or `cuda`) and the moment (`time.monotonic()`) at which it must be over."""

    device: str
    deadline: float
    path: Path
    parts: dict[str, Part] = field(default_factory=dict)

    @property
    def small(self) -> bool:
        """Whether shapes are to be tiny: on a CPU, where this program itself is what is tried."""
        return self.device == "cpu"

    def left(self) -> float:
        """Seconds until the section must be over."""
        return self.deadline - time.monotonic()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[Part]:
        """A part: whatever it throws is its own failure, and the next part goes on."""
        part = self.parts[name] = Part()
        begun = time.monotonic()
        self.write()
        try:
            yield part
        except SkipError as reason:
            part.state, part.reason = "skipped", str(reason)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            part.state, part.reason = "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        else:
            wrong = [check["what"] for check in part.checks if not check["right"]]
            part.state = "failed" if wrong else "passed" if part.checks else "measured"
            part.reason = f"wrong: {', '.join(wrong)}" if wrong else ""
        part.seconds = time.monotonic() - begun
        self.write()

    def write(self) -> None:
        """Write what is known."""
        told = {name: part.record() for name, part in self.parts.items()}
        self.path.write_text(json.dumps(told, indent=1))
