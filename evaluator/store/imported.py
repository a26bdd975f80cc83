"""Scores that were computed elsewhere, as entries of run.json: pure functions, `evaluator.store.run` reads and writes.

They come in parts: what one file of the source holds (a language, a template). Each part is a file of its own, named by its
content; the model's entry says which files count, what they were made of and what is missing in them:

    {"imported": true, "tasks": [TASK, …], "revision": {PART: source},
     "parts": {TASK: {PART: {"file": …, "failures": […], "left_out": […]}}}, "kinds": {TASK: how the model was asked}}

So one write of run.json replaces a part together with its source and its failures: a kill leaves the old or the new, never a
mixture. Older versions wrote one file a model without `parts`; it counts for what no part has replaced.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

Entry = Mapping[str, Any]


def part_file(stem: str, content: bytes) -> str:
    """The name of a part's file; `stem` says for people what it is."""
    return f"part-{stem}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"


def sources(entry: Entry) -> dict[str, Any]:
    """What each part was made of: part → sha256, or a mapping with more facts."""
    found = dict(entry.get("revision", {}))
    if isinstance(digests := found.get("sha256"), Mapping):  # an older run of translations
        shared = {key: value for key, value in found.items() if key != "sha256"}
        found = {language: {"sha256": digest, **shared} for language, digest in digests.items()}
    elif digests is not None and entry.get("tasks"):  # an older run of StereoSet's predictions
        found = {entry["tasks"][0]: digests}
    return found


def with_part(
    entry: Entry | None,
    model: str,
    task: str,
    part: str,
    file: str,
    source: Any,
    failures: Sequence[str],
    left_out: Sequence[str] = (),
    kind: str | None = None,
) -> dict[str, Any]:
    """The model's entry with this part added or replaced. A source without a part's name is that of the whole model."""
    known = dict(entry or {"spec": model, "imported": True})
    parts = {name: dict(entries) for name, entries in known.get("parts", {}).items()}
    told = {"left_out": list(left_out)} if left_out else {}
    parts.setdefault(task, {})[part] = {"file": file, "failures": list(failures), **told}
    return known | {
        "revision": {**sources(known), **({part: source} if part else source)},
        "tasks": sorted({*known.get("tasks", []), task}),
        "parts": parts,
        **({"kinds": {**known.get("kinds", {}), task: kind}} if kind else {}),
    }


def files(entry: Entry, task: str) -> list[str]:
    """Names of the parts' files of a model and task."""
    return [part["file"] for part in entry.get("parts", {}).get(task, {}).values()]


def failures(models: Mapping[str, Entry]) -> Iterator[tuple[str, str, str]]:
    """(model, no request, reason) of what is missing in the parts of all models."""
    for model, entry in models.items():
        for parts in entry.get("parts", {}).values():
            yield from ((model, "", reason) for part in parts.values() for reason in part["failures"])


def difference(known: Any, now: Any) -> str:
    """How two sources differ, in words, hashes shortened; empty where they don't."""
    before, after = (source if isinstance(source, Mapping) else {"sha256": source} for source in (known, now))
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return ", ".join(f"{key} {str(before.get(key))[:12]}, now {str(after.get(key))[:12]}" for key in changed)


def combined(parts: Sequence[pl.DataFrame], whole: pl.DataFrame | None) -> list[pl.DataFrame]:
    """The scores of all parts, and of `whole` (an older run's only file) what the parts don't replace."""
    if whole is None:
        return list(parts)
    for part in parts:
        whole = whole.join(
            part.select("language", "template").unique(), on=["language", "template"], how="anti", nulls_equal=True
        )
    return [whole, *parts]
