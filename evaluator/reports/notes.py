"""What every reader of a run's numbers must know, read from run.json: shown in the first lines of every report.

A fact is recorded as data in the entry of its model or task when it becomes known, and told here in a sentence that begins
with the model's or task's name. A field that is missing (an older run, say) has nothing to tell. To tell a new kind of fact,
add a function of (name, entry) to MODEL_NOTES or TASK_NOTES. Limits come first: they concern both.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Entry = Mapping[str, Any]
Notes = Callable[[str, Entry], Iterator[str]]

SHOWN = 5
"""Names of a list that are written out."""


def run_notes(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What was cut, then the facts of a run's models, then of its tasks, a sentence each; `record` is run.json."""
    told = [(MODEL_NOTES, record.get("models", {})), (TASK_NOTES, record.get("tasks", {}))]
    facts = (note for kinds, entries in told for name, entry in entries.items() for kind in kinds for note in kind(name, entry))
    return (*limit_notes(record), *facts)


def limit_notes(record: Mapping[str, Any]) -> Iterator[str]:
    """Tasks of which models were asked a part only, or different parts. A limit that holds all samples cuts nothing."""
    for task, entry in record.get("tasks", {}).items():
        whole = entry.get("samples", 0)
        numbers: dict[str, list[str]] = {}
        for name, model in record.get("models", {}).items():
            if task in model.get("heads_used", {}) or task in model.get("tasks", ()):
                numbers.setdefault(_number(model, task, whole), []).append(name)
        if len(numbers) > 1:
            parts = "; ".join(f"{number}: {_names(names)}" for number, names in numbers.items())
            yield f"{task}: models were asked different numbers of its {whole:,} samples, so compare with care: {parts}."
        elif not numbers.keys() <= {ALL, UNRECORDED}:
            (number,) = numbers
            yield f"{task}: only {number} of its {whole:,} samples were asked, spread over its groups."


ALL, UNRECORDED = "all", "all that an older version was asked"


def _number(model: Entry, task: str, whole: int) -> str:
    """How many samples a model was asked, in words; scores that were imported are of all."""
    if model.get("imported"):
        return ALL
    asked = model.get("asked", {}).get(task)
    if asked is None:
        return UNRECORDED
    if asked["limit"] is None or asked["limit"] >= whole:
        return ALL
    return f"{asked['limit']:,} (limit, seed {asked['seed']})"


def _names(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


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
