"""lm-evaluation-harness's results JSON: what reads its files can read these. One document per model.

A task's rates over all groups stand under its name, those of a group under TASK_GROUP; the harness's filter is the template.
"""

import json
from calendar import timegm
from collections.abc import Mapping, Sequence
from time import strptime
from typing import Any

import polars as pl

from evaluator import __version__
from evaluator.exports.result import Result
from evaluator.measures.intervals import Z95
from evaluator.store.names import folder_name

WHOLE = (None, "all")


def documents(results: Sequence[Result]) -> dict[str, str]:
    """Path → text: MODEL/results_TIME.json."""
    made = {}
    for model in dict.fromkeys(result.model for result in results):
        mine = [result for result in results if result.model == model]
        when = str(mine[0].attempt.get("time", "")).replace(":", "-") or "results"
        made[f"{folder_name(model)}/results_{when}.json"] = json.dumps(_document(mine), indent=2, ensure_ascii=False) + "\n"
    return made


def _document(results: Sequence[Result]) -> dict[str, Any]:
    first = results[0]
    entry, time = first.entry, first.attempt.get("time")
    made: dict[str, Any] = {key: {} for key in ("results", "configs", "versions", "n-shot", "higher_is_better", "n-samples")}
    made["group_subtasks"] = {}
    for result in results:
        for name, rows in _parts(result):
            made["results"][name] = {"alias": name, **_metrics(rows)}
            made["configs"][name] = _config(result, name)
            made["versions"][name] = result.attempt.get("evaluator", __version__)
            made["n-shot"][name] = 0
            made["higher_is_better"][name] = {}
            effective = result.samples if name in _wholes(result) else int(rows["n"].max() or 0)  # type: ignore[arg-type]
            made["n-samples"][name] = {"original": result.task_entry.get("samples", effective), "effective": effective}
            parent = name in _wholes(result)
            if not parent:
                made["group_subtasks"].setdefault(_key(result, rows["language"][0], None), []).append(name)
    return {
        **made,
        "config": {
            "model": entry.get("engine"),
            "model_args": {"pretrained": first.hub_id or first.model, "revision": entry.get("revision")},
            "model_num_parameters": entry.get("facts", {}).get("parameters"),
            "model_dtype": entry.get("dtype"),
            "model_revision": entry.get("revision"),
            "model_sha": entry.get("revision"),
            "limit": entry.get("asked", {}).get(first.task, {}).get("limit"),
            "bootstrap_iters": first.options.resamples,
            "random_seed": first.options.seed,
        },
        "git_hash": first.attempt.get("commit"),
        **({"date": float(timegm(strptime(time, "%Y-%m-%dT%H:%M:%SZ")))} if time else {}),
        "transformers_version": entry.get("versions", {}).get("transformers"),
        "model_source": entry.get("engine"),
        "model_name": first.hub_id or first.model,
        "model_name_sanitized": folder_name(first.model),
        "system_instruction": (entry.get("condition") or {}).get("system"),
        "chat_template": entry.get("details", {}).get("chat_template"),
        "stereotype_evaluator": {
            "intervals": {result.task: _intervals(result) for result in results},
            "not_defined": {result.task: result.undefined for result in results},
            "notes": list(dict.fromkeys(note for result in results for note in result.notes)),
        },
    }


def _key(result: Result, language: str | None, group: str | None) -> str:
    several = result.section.rows["language"].n_unique() > 1
    return "_".join([result.task, *([language] if several and language else []), *([group] if group not in WHOLE else [])])


def _wholes(result: Result) -> set[str]:
    return {_key(result, language, None) for language in result.section.rows["language"].unique()}


def _parts(result: Result) -> list[tuple[str, pl.DataFrame]]:
    """Name in the harness's sense → its rows; those over all groups first."""
    found: dict[str, list[pl.DataFrame]] = {}
    for (language, group), rows in result.section.rows.group_by("language", "group", maintain_order=True):
        found.setdefault(_key(result, language, group), []).append(rows)
    wholes = _wholes(result)
    return [(name, pl.concat(found[name])) for name in sorted(found, key=lambda name: name not in wholes)]


def _metric(row: Mapping[str, Any], what: str = "") -> str:
    return f"{row['measure']}{what},{(row['template'] or 'none').replace(',', ';')}"


def _metrics(rows: pl.DataFrame) -> dict[str, Any]:
    """Values with standard errors; a value that is not defined is left out.

    The harness has standard errors where we have intervals: the width of the 95% interval over 2 × 1.96, N/A without one.
    """
    made: dict[str, Any] = {}
    for row in rows.drop_nulls("value").iter_rows(named=True):
        made[_metric(row)] = row["value"]
        made[_metric(row, "_stderr")] = "N/A" if row["interval"] is None else (row["high"] - row["low"]) / (2 * Z95)
    return made


def _intervals(result: Result) -> dict[str, dict[str, Any]]:
    """The intervals themselves, by the names that the rates have here."""
    made: dict[str, dict[str, Any]] = {}
    for name, rows in _parts(result):
        for row in rows.filter(pl.col("interval").is_not_null()).iter_rows(named=True):
            made.setdefault(name, {})[_metric(row)] = {key: row[key] for key in ("low", "high", "interval", "scale", "n")}
    return made


def _config(result: Result, name: str) -> dict[str, Any]:
    return {
        "task": name,
        "dataset_path": next((known.hub for known in result.datasets if known.hub), None),
        "dataset_name": result.task,
        "num_fewshot": 0,
        **({"generation_kwargs": _generation(result)} if result.generation else {}),
        "metadata": {
            "version": result.attempt.get("evaluator", __version__),
            "sha256": result.task_entry.get("sha256", {}),
            "licence": {known.name: known.licence for known in result.datasets},
            "urls": [url for known in result.datasets for url in known.urls],
            "protocol": result.options.protocol,
            "scale": result.options.scale,
        },
    }


def _generation(result: Result) -> dict[str, Any]:
    settings = dict(result.generation)
    tokens = {"max_gen_toks": settings.pop("max_tokens")} if "max_tokens" in settings else {}
    return {**settings, **tokens}
