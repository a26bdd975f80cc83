"""What it took to start a run's models, read from run.json: part by part, for each model and together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Start = Mapping[str, Any]

WORDS = {
    "fetch": "fetching weights",
    "engine": "engine",
    "verify": "verifying it",
    "first_answer": "process and first answers",
}
"""The parts of a start in their order, as people are told of them. Others go by their own names."""


@dataclass(frozen=True, slots=True)
class Starts:
    """What some starts of replicas took together.

    Attributes:
        count: how many; reused: those in a process that had held another model before.
        parts: seconds by part. `first_answer` is what was left until the first answers were stored: the start of the
            process, and the scoring of the first chunk.
    """

    count: int
    reused: int
    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """All parts together."""
        return sum(self.parts.values())

    @classmethod
    def of(cls, starts: Sequence[Start]) -> Self:
        """Of entries of run.json: there, `first_answer` is counted from the beginning, and a start in the program's own
        process has none."""
        parts: dict[str, float] = {}
        for start in starts:
            known = {name: value for name, value in start["seconds"].items() if name != "first_answer"}
            if "first_answer" in start["seconds"]:
                known["first_answer"] = max(0.0, start["seconds"]["first_answer"] - sum(known.values()))
            for name, value in known.items():
                parts[name] = parts.get(name, 0.0) + value
        order = [*WORDS, *parts]
        sorted_parts = {name: parts[name] for name in sorted(parts, key=order.index)}
        return cls(len(starts), sum(bool(start.get("reused_process")) for start in starts), sorted_parts)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        parts = {name: round(value, 3) for name, value in self.parts.items()}
        return {"count": self.count, "reused": self.reused, "seconds": round(self.seconds, 3), "parts": parts}

    def __str__(self) -> str:
        """The seconds, and in brackets their parts: `6.3 s (engine 4.0, verifying it 1.2, …)`."""
        parts = ", ".join(f"{WORDS.get(name, name)} {value:.1f}" for name, value in self.parts.items())
        return f"{self.seconds:.1f} s ({parts})" if parts else f"{self.seconds:.1f} s"


def starts_of(record: Mapping[str, Any]) -> dict[str, list[Start]]:
    """The starts of every model that has any; `record` is run.json."""
    return {name: list(entry["starts"]) for name, entry in record.get("models", {}).items() if entry.get("starts")}


def start_lines(record: Mapping[str, Any], scoring: float) -> Iterator[str]:
    """A sentence for each model on what its starts took, then their sum beside the `scoring` seconds of all replicas."""
    found = starts_of(record)
    for name, starts in found.items():
        summary = Starts.of(starts)
        often = f"{summary.count} starts" if summary.count > 1 else "started"
        if summary.reused == 0:
            reused = ""
        elif summary.count == 1:
            reused = ", process reused"
        else:
            reused = f", process reused by {summary.reused}"
        yield f"{name}: {often} in {summary}{reused}"
    together = Starts.of([start for starts in found.values() for start in starts])
    if together.count > 1:
        yield (
            f"{together.count} starts took {together}, {together.reused} of them in a reused process; scoring took "
            f"{scoring:.1f} s"
        )
