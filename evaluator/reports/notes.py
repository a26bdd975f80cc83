"""What every reader of a run's numbers must know, read from run.json: shown in the first lines of every report.

A fact is recorded as data in the entry of its model or task when it becomes known, and told here in a sentence that begins
with the model's or task's name. A field that is missing (an older run, say) has nothing to tell. To tell a new kind of fact,
add a function of (name, entry) to MODEL_NOTES or TASK_NOTES.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Entry = Mapping[str, Any]
Notes = Callable[[str, Entry], Iterator[str]]


def run_notes(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The facts of a run's models, then of its tasks, a sentence each; `record` is run.json."""
    told = [(MODEL_NOTES, record.get("models", {})), (TASK_NOTES, record.get("tasks", {}))]
    return tuple(
        note for kinds, entries in told for name, entry in entries.items() for kind in kinds for note in kind(name, entry)
    )


def _unverified(name: str, entry: Entry) -> Iterator[str]:
    """`verified` is false where the comparison with the oracle was left out on demand."""
    if entry.get("verified") is False:
        yield f"{name}: its engine ({entry.get('engine')}) was not compared with transformers (--no-verify)."


def _approximate(name: str, entry: Entry) -> Iterator[str]:
    if entry.get("dtype") == "int8":
        verified = entry.get("verified")
        yield f"{name}: int8 arithmetic is an approximation" + (f"; {verified}." if isinstance(verified, str) else ".")


def _wrong_rows(name: str, entry: Entry) -> Iterator[str]:
    if wrong := len(entry.get("failures", ())):
        yield f"{name}: {wrong} wrong {'row' if wrong == 1 else 'rows'} of its data left out."


MODEL_NOTES: tuple[Notes, ...] = (_unverified, _approximate)
TASK_NOTES: tuple[Notes, ...] = (_wrong_rows,)
