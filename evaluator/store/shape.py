"""The schema of run.json, as far as the program relies on it. Pure functions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "spec": str,
    "fingerprint": str,
    "answers": str,
    "heads_used": dict,
    "asked": dict,
    "unasked": dict,
    "text_tokens": dict,
    "parts": dict,
    "starts": list,
    "details": dict,
    "tokenizer": dict,
    "versions": dict,
}
"""Fields of a model's entry that it may lack, and their types."""
_TASK_FIELDS: dict[str, type | tuple[type, ...]] = {"definition": (str, type(None)), "made_of": str, "package": str}
"""The same of a task's entry."""


def mistakes(record: Mapping[str, Any]) -> Iterator[str]:
    """Places in run.json whose type is wrong, as text."""
    for name, kind in {"protocol": str, "attempts": list, "tasks": dict, "models": dict}.items():
        if not isinstance(record.get(name), kind):
            yield name
            return
    yield from (f"attempts[{i}]" for i, attempt in enumerate(record["attempts"]) if not isinstance(attempt, dict))
    for name, task in record["tasks"].items():
        if not isinstance(task, dict):
            yield f"tasks.{name}"
        else:
            yield from (f"tasks.{name}.{field}" for field in _wrong(task, _TASK_FIELDS))
    for name, entry in record["models"].items():
        if not isinstance(entry, dict):
            yield f"models.{name}"
        else:
            yield from (f"models.{name}.{place}" for place in _of_model(entry))


def _wrong(entry: Mapping[str, Any], fields: Mapping[str, type | tuple[type, ...]]) -> list[str]:
    return [field for field, kind in fields.items() if field in entry and not isinstance(entry[field], kind)]


def _of_model(entry: Mapping[str, Any]) -> Iterator[str]:
    if wrong := _wrong(entry, _FIELDS):
        yield from wrong
        return
    yield from _values(entry, "heads_used", lambda heads: isinstance(heads, list) and all(isinstance(h, str) for h in heads))
    yield from _values(entry, "asked", lambda asked: isinstance(asked, dict) and isinstance(asked.get("limit"), int | None))
    yield from _values(entry, "unasked", lambda reason: isinstance(reason, str))
    yield from _values(entry, "parts", lambda parts: isinstance(parts, dict) and all(map(_is_part, parts.values())))
    yield from (f"starts[{i}]" for i, start in enumerate(entry.get("starts", [])) if not isinstance(start, dict))


def _values(entry: Mapping[str, Any], field: str, right: Callable[[Any], bool]) -> Iterator[str]:
    yield from (f"{field}.{key}" for key, value in entry.get(field, {}).items() if not right(value))


def _is_part(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and isinstance(part.get("file"), str)
        and isinstance(part.get("failures"), list)
        and isinstance(part.get("left_out", []), list)
        and all(isinstance(line, str) for line in (*part["failures"], *part.get("left_out", [])))
    )
