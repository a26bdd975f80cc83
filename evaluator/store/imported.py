"""Imported scores in run.json. Pure functions; `evaluator.store.run` reads and writes.

Scores are imported in parts, one for each source file (a language, a template). Each part is a file named by its content. The
model's entry lists the files, their sources and their failures:

    {"imported": true, "tasks": [TASK, …], "revision": {PART: source},
     "parts": {TASK: {PART: {"file": …, "failures": […], "left_out": […]}}}, "kinds": {TASK: heads of the model}}

A single write of run.json replaces a part with its source and failures, so a kill leaves the old or the new state. Older
versions wrote one file per model without `parts`; it is used for parts that were not replaced.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

Entry = Mapping[str, Any]


def part_file(stem: str, content: bytes) -> str:
    """The file name of a part; `stem` is its readable beginning."""
    return f"part-{stem}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"


def sources(entry: Entry) -> dict[str, Any]:
    """Part → its source: a sha256, or a mapping with more facts."""
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
    """The model's entry with this part added or replaced. A source without a part's name applies to the whole model."""
    known = dict(entry or {"spec": model, "imported": True})
    parts = {name: dict(entries) for name, entries in known.get("parts", {}).items()}
    skipped = {"left_out": list(left_out)} if left_out else {}
    parts.setdefault(task, {})[part] = {"file": file, "failures": list(failures), **skipped}
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
    """(model, empty request, reason) of missing scores in the parts of all models."""
    for model, entry in models.items():
        for parts in entry.get("parts", {}).values():
            yield from ((model, "", reason) for part in parts.values() for reason in part["failures"])


def difference(known: Any, now: Any) -> str:
    """A description of how two sources differ, with shortened hashes; empty if they are equal."""
    before, after = (source if isinstance(source, Mapping) else {"sha256": source} for source in (known, now))
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return ", ".join(f"{key} {str(before.get(key))[:12]}, now {str(after.get(key))[:12]}" for key in changed)


def combined(parts: Sequence[pl.DataFrame], whole: pl.DataFrame | None) -> list[pl.DataFrame]:
    """The scores of all parts, and the rows of `whole` (an older run's single file) that no part replaces."""
    if whole is None:
        return list(parts)
    for part in parts:
        whole = whole.join(
            part.select("language", "template").unique(), on=["language", "template"], how="anti", nulls_equal=True
        )
    return [whole, *parts]
