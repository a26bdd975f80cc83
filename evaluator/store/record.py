"""run.json as a value, and merging a new specification into it. Pure functions.

Commands extend a run, each with a part of its tasks and models. Facts on single tasks (such as the heads used for each) are
added to an entry; other fields have the values of the last command.
"""

import json
from collections.abc import Mapping
from typing import Any

from evaluator.store.sample_counts import merge_counts
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
    """The precision of a model: its dtype and the quantization of its weights; None if unknown."""
    quantized = entry.get("details", {}).get("quantization")
    dtype = entry.get("dtype")
    return f"{dtype} with weights in {quantized}" if dtype and quantized else dtype


def as_stored(entry: Entry) -> dict[str, Any]:
    """The entry after a round trip through JSON (tuples become lists)."""
    stored: dict[str, Any] = json.loads(json.dumps(entry))
    return stored


def with_task(known: Entry | None, entry: Entry, name: str, run: str) -> dict[str, Any]:
    """The entry of the task `name`, merged with `entry`. Raises InputError for other data or another definition.

    A smaller limit changes nothing: facts on samples are those of the largest set. Older versions, which did not record its
    size, always described all samples.
    """
    new = as_stored(entry)
    _refuse(known or new, new, TASK_IDENTITY, f"task {name}", run)
    _refuse_encoding(known or {}, new, name, run)
    if known and "told_of" in new and new["told_of"] < known.get("told_of", known.get("samples", 0)):
        new = {key: value for key, value in new.items() if key not in TOLD}
    return {**(known or {}), **new}


def with_model(known: Entry | None, entry: Entry, name: str, run: str, *, answered: bool) -> dict[str, Any]:
    """The entry of the model `name`, merged with `entry`; tasks from earlier commands are kept.

    Raises InputError if the weights, dtype, engine or versions differ from those of the run's answers. Without answers (its
    engine rejected an option, for example) the entry is replaced, since nothing would be mixed.
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
            f"{run} has answers of {name} from an earlier version that applied its generation_config.json "
            f"({', '.join(before)}); this is no longer the default: use another --out folder"
        )
    heads = {**known.get("heads_used", {}), **new.get("heads_used", {})}
    unasked = {**known.get("unasked", {}), **new.get("unasked", {})}
    unasked = {task: reason for task, reason in unasked.items() if task not in new.get("heads_used", {})}
    counts = merge_counts(known, new.get("asked", {})) if answered else {**known.get("asked", {}), **new.get("asked", {})}
    if not same:
        return {**new, "heads_used": heads, "asked": counts, "unasked": unasked}
    both = {
        key: {**known[key], **value} if isinstance(value, dict) and isinstance(known.get(key), dict) else value
        for key, value in new.items()
    }
    return {**known, **both, "asked": counts, "unasked": unasked}


def same_model(models: Mapping[str, Entry], fingerprint: str | None) -> str | None:
    """The first model of a run with this fingerprint, under any name; None if there is none."""
    return next((name for name, entry in models.items() if fingerprint and entry.get("fingerprint") == fingerprint), None)


def _refuse(known: Entry, new: Entry, fields: tuple[str, ...], what: str, run: str) -> None:
    """Raise InputError with the first field that differs."""
    for field in fields:
        if known.get(field) != new.get(field):
            has, now = _difference(known.get(field), new.get(field))
            raise InputError(
                f"{run} was made with another {field} for {what}: it has {has}, now {now}; use another --out folder"
            )


def _refuse_encoding(known: Entry, new: Entry, name: str, run: str) -> None:
    """Raise InputError if a user's file is now read in another encoding, which would give other samples.

    Older versions did not record the encoding.
    """
    before, now = (entry.get("facts", {}).get("read_as", {}) for entry in (known, new))
    for file in before.keys() & now.keys():
        _refuse(before[file], now[file], ("encoding", "delimiter"), f"{file} of task {name}", run)


def _decoded(value: Any) -> Any:
    """The mapping of a definition's JSON; another value as it is."""
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


def _difference(a: Any, b: Any) -> tuple[str, str]:
    """The differing parts of two values as short JSON: differing keys of mappings, the first differing line of texts."""
    a, b = _decoded(a), _decoded(b)
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
        if len(keys) == 1 and all(isinstance(one.get(keys[0]), str) and "\n" in one[keys[0]] for one in (a, b)):
            return _difference(a[keys[0]], b[keys[0]])
        a, b = ({key: one[key] for key in keys if key in one} for one in (a, b))
    elif isinstance(a, str) and isinstance(b, str) and "\n" in a + b:
        first, second = a.splitlines(), b.splitlines()
        length = max(len(first), len(second))
        padded = zip(first + [""] * (length - len(first)), second + [""] * (length - len(second)), strict=True)
        a, b = next((pair for pair in padded if pair[0] != pair[1]), (a, b))
    return json.dumps(a, ensure_ascii=False)[:SHOWN], json.dumps(b, ensure_ascii=False)[:SHOWN]
