"""run.json as a value: what a run was asked, and how what is asked now is merged into it. Pure.

A run is extended by commands that each name a part of it, so nothing of an entry is written once and for all: what is said
of single tasks or facts (the heads used for each task) is kept and added to, the rest is as the last command found it.
"""

import json
from collections.abc import Mapping
from typing import Any

from evaluator.store.asked import widened
from evaluator_serving.errors import InputError

Entry = Mapping[str, Any]

TASK_IDENTITY = ("sha256", "definition")
MODEL_IDENTITY = ("revision", "dtype", "engine", "versions", "details")
"""In the order in which a difference is told: with `auto` another dtype may bring another engine with it."""
TOLD = ("facts", "normal_forms", "told_of")
"""What a task's entry says of its samples within the limit, and of how many of them it says so."""
SHOWN = 200
"""Characters of a differing value that a message shows."""


def arithmetic(entry: Entry) -> str | None:
    """What a model was computed in: its dtype, and what its weights were quantized to; None where nothing tells."""
    quantized = entry.get("details", {}).get("quantization")
    dtype = entry.get("dtype")
    return f"{dtype} with weights in {quantized}" if dtype and quantized else dtype


def as_stored(entry: Entry) -> dict[str, Any]:
    """The entry as it reads after a round through JSON (tuples are lists)."""
    stored: dict[str, Any] = json.loads(json.dumps(entry))
    return stored


def with_task(known: Entry | None, entry: Entry, name: str, run: str) -> dict[str, Any]:
    """The entry of the task `name` that holds `entry` too. Raises InputError for other data or another definition.

    A smaller limit takes nothing back: what is said of the samples stays said of the most that were asked. An older version
    didn't say of how many it spoke: of all, then.
    """
    new = as_stored(entry)
    _refuse(known or new, new, TASK_IDENTITY, f"task {name}", run)
    _refuse_encoding(known or {}, new, name, run)
    if known and "told_of" in new and new["told_of"] < known.get("told_of", known.get("samples", 0)):
        new = {key: value for key, value in new.items() if key not in TOLD}
    return {**(known or {}), **new}


def with_model(known: Entry | None, entry: Entry, name: str, run: str, *, answered: bool) -> dict[str, Any]:
    """The entry of the model `name` that holds `entry` too: a task that was asked of it before is still asked.

    Raises InputError where the weights, dtype, engine or versions differ from those that the run has answers of. Without
    answers (its engine refused an option, say) the entry is corrected: nothing would be mixed.
    """
    new = as_stored(entry)
    if known is None:
        return new
    if known.get("imported"):
        raise InputError(f"{run} has imported scores called {name!r}: give the model another name, or use another --out folder")
    same = known.get("fingerprint") == new.get("fingerprint") and all(known.get(f) == new.get(f) for f in MODEL_IDENTITY)
    if not same and answered:
        # What was asked is named where that is another model; the same one may be spelled otherwise (another path).
        spec = ("spec",) if known.get("revision") != new.get("revision") else ()
        _refuse(known, new, (*spec, *MODEL_IDENTITY, "fingerprint"), f"model {name}", run)
    spoken = any("chat" in heads for heads in known.get("heads_used", {}).values())
    if answered and spoken and "decoding" not in known and (before := new.get("decoding", {}).get("before")):
        raise InputError(
            f"{run} has answers of {name} that an earlier version shaped by its generation_config.json ({', '.join(before)}), "
            "which is no longer applied unasked: use another --out folder"
        )
    heads = {**known.get("heads_used", {}), **new.get("heads_used", {})}
    unasked = {**known.get("unasked", {}), **new.get("unasked", {})}
    unasked = {task: reason for task, reason in unasked.items() if task not in new.get("heads_used", {})}
    asked = widened(known, new.get("asked", {})) if answered else {**known.get("asked", {}), **new.get("asked", {})}
    if not same:
        return {**new, "heads_used": heads, "asked": asked, "unasked": unasked}
    both = {
        key: {**known[key], **value} if isinstance(value, dict) and isinstance(known.get(key), dict) else value
        for key, value in new.items()
    }
    return {**known, **both, "asked": asked, "unasked": unasked}


def same_model(models: Mapping[str, Entry], fingerprint: str | None) -> str | None:
    """The first of a run's models with this fingerprint, whatever it is called there; None if there is none."""
    return next((name for name, entry in models.items() if fingerprint and entry.get("fingerprint") == fingerprint), None)


def _refuse(known: Entry, new: Entry, fields: tuple[str, ...], what: str, run: str) -> None:
    """Raise InputError naming the first field that differs, and what of it."""
    for field in fields:
        if known.get(field) != new.get(field):
            has, now = _difference(known.get(field), new.get(field))
            raise InputError(
                f"{run} was made with another {field} for {what}: it has {has}, now {now}; use another --out folder"
            )


def _refuse_encoding(known: Entry, new: Entry, name: str, run: str) -> None:
    """Raise InputError where a file of the user's is read in another encoding now: the same bytes would be other samples.

    An older version didn't say how it read a file.
    """
    before, now = (entry.get("facts", {}).get("read_as", {}) for entry in (known, new))
    for file in before.keys() & now.keys():
        _refuse(before[file], now[file], ("encoding", "delimiter"), f"{file} of task {name}", run)


def _difference(a: Any, b: Any) -> tuple[str, str]:
    """The differing parts of two values as short JSON: of mappings the differing keys, of texts the first differing line."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
        a, b = ({key: one[key] for key in keys if key in one} for one in (a, b))
    elif isinstance(a, str) and isinstance(b, str) and "\n" in a + b:
        first, second = a.splitlines(), b.splitlines()
        length = max(len(first), len(second))
        padded = zip(first + [""] * (length - len(first)), second + [""] * (length - len(second)), strict=True)
        a, b = next((pair for pair in padded if pair[0] != pair[1]), (a, b))
    return json.dumps(a, ensure_ascii=False)[:SHOWN], json.dumps(b, ensure_ascii=False)[:SHOWN]
