"""Every Eval Ever: one JSON document a model and task and, if wanted, one line per sample beside it.

Schema 0.3.0 of the package `every-eval-ever`, whose validator the tests run. A document's path is the one that its data store
wants: data/TASK/DEVELOPER/MODEL/UUID.json; the UUID follows from what is told, so that a second export replaces the first.
"""

import hashlib
import json
import uuid
from calendar import timegm
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import strptime
from typing import Any, Literal

import polars as pl

from evaluator import __version__
from evaluator.exports.result import Result, label, texts
from evaluator.measures.intervals import BOOTSTRAPS

SCHEMA = "0.3.0"
LIBRARY = "stereotype-evaluator"
Relationship = Literal["first_party", "third_party", "collaborative", "other"]


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports the results, and how it is related to the models' makers."""

    organization: str = "unknown"
    relationship: Relationship = "other"


def documents(
    results: Sequence[Result], source: Reporter, now: int, scores: Mapping[str, pl.DataFrame] | None = None
) -> dict[str, str]:
    """Path → text. `now` is Unix time in seconds.

    `scores`, for instance-level records: task → per-sample scores (columns SCORES, `id` and, where sentences may be told,
    `text`).
    """
    made: dict[str, str] = {}
    for result in results:
        key = json.dumps([result.model, result.public_id, result.task, result.setting, repr(result.options)])
        name = str(uuid.UUID(bytes=hashlib.sha256(key.encode()).digest()[:16], version=4))
        folder = "/".join(["data", result.task, *result.public_id.replace("/", "\0", 1).replace("/", "_").split("\0")])
        evaluation = f"{result.task}/{result.public_id}/{now}-{name[:8]}"
        document = _aggregate(result, source, evaluation, now)
        if scores is not None and (lines := _instances(result, evaluation, scores[result.task])):
            path = f"{folder}/{name}_samples.jsonl"
            made[path] = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            document["detailed_evaluation_results"] = {
                "format": "jsonl",
                "file_path": path,
                "hash_algorithm": "sha256",
                "checksum": hashlib.sha256(made[path].encode()).hexdigest(),
                "total_rows": len(lines),
            }
        made[f"{folder}/{name}.json"] = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return made


def _aggregate(result: Result, source: Reporter, evaluation: str, now: int) -> dict[str, Any]:
    attempt = result.attempt
    scored = {"evaluation_timestamp": str(timegm(strptime(attempt["time"], "%Y-%m-%dT%H:%M:%SZ")))} if "time" in attempt else {}
    undefined = {"not_defined": result.undefined}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        **scored,
        "retrieved_timestamp": str(now),
        "source_metadata": {
            "source_name": LIBRARY,
            "source_type": "evaluation_run",
            "source_organization_name": source.organization,
            "evaluator_relationship": source.relationship,
            "additional_details": texts({"notes": result.notes, **undefined}),
        },
        "eval_library": {
            "name": LIBRARY,
            "version": attempt.get("evaluator", __version__),
            "additional_details": texts({"commit": attempt.get("commit"), "python": attempt.get("python")}),
        },
        "model_info": _model(result),
        "evaluation_results": [_rate(result, row) for row in result.defined.iter_rows(named=True)],
    }


def _model(result: Result) -> dict[str, Any]:
    entry, served = result.entry, "://" in str(result.entry.get("spec", ""))
    engine = entry.get("engine")
    version = entry.get("versions", {}).get(engine or "")
    facts = texts({"parameters": entry.get("facts", {}).get("parameters"), "family": entry.get("facts", {}).get("family")})
    return {
        "name": result.model,
        "id": result.public_id,
        **({"inference_engine": {"name": engine, **({"version": version} if version else {})}} if engine else {}),
        "additional_details": {
            "deployment_type": "self_deployed" if engine and not served else "unknown",
            "model_availability": "open_weights" if result.hub_id else "unknown",
            **result.setting,
            **facts,
        },
    }


def _rate(result: Result, row: Mapping[str, Any]) -> dict[str, Any]:
    options, layout = result.options, result.layout
    neutral = layout.neutral(row["measure"])
    mains = (*layout.overview, *layout.by_language)
    meaning = next((main.meaning for main in mains if main.measure == row["measure"] and main.meaning), None)
    place = {key: row[key] for key in ("language", "group", "template", "pole") if row[key] is not None}
    uncertainty: dict[str, Any] = {"num_samples": row["n"]} if row["n"] is not None else {}
    if row["interval"] is not None:
        bounds = {"lower": row["low"], "upper": row["high"], "confidence_level": 0.95, "method": row["interval"]}
        uncertainty["confidence_interval"] = bounds
        if row["interval"].startswith(tuple(BOOTSTRAPS.values())):
            uncertainty["num_bootstrap_samples"] = options.resamples
    return {
        "evaluation_result_id": label(row),
        "evaluation_name": result.task,
        "source_data": _data(result),
        "metric_config": {
            "evaluation_description": layout.notes.get(row["measure"]) or result.section.about or result.task,
            "metric_id": row["measure"],
            "metric_name": layout.shown(row["measure"]),
            **({"metric_unit": row["scale"]} if row["scale"] else {}),
            "metric_parameters": {**place, "protocol": options.protocol, "seed": options.seed},
            "lower_is_better": False,
            "additional_details": texts(
                {
                    "direction": "neither higher nor lower is better" if neutral is not None else None,
                    "unbiased_value": neutral,
                    "meaning": meaning,
                    "cautions": layout.cautions,
                    "group_name": layout.groups.get(row["group"] or ""),
                }
            ),
        },
        "score_details": {"score": row["value"], **({"uncertainty": uncertainty} if uncertainty else {})},
        **_generation(result),
    }


def _data(result: Result) -> dict[str, Any]:
    details = texts(
        {
            "sha256": result.task_entry.get("sha256"),
            "licence": {known.name: known.licence for known in result.datasets},
            "samples": result.task_entry.get("samples"),
            "samples_scored": result.samples,
        }
    )
    urls = [url for known in result.datasets for url in known.urls]
    if urls and result.task_entry.get("sha256"):
        return {"dataset_name": result.task, "source_type": "url", "url": urls, "additional_details": details}
    return {"dataset_name": result.task, "source_type": "other", "additional_details": details}


def _generation(result: Result) -> dict[str, Any]:
    settings = result.generation
    command = " ".join(result.attempt.get("command", ()))
    arguments: dict[str, Any] = {
        **{key: settings[key] for key in ("temperature", "max_tokens") if key in settings},
        **({"execution_command": command} if command else {}),
        **({"reasoning": True} if result.entry.get("details", {}).get("thinking") else {}),
    }
    more = texts({key: settings.get(key) for key in ("answers", "seed", "orders")})
    config = {"generation_args": arguments, "additional_details": more}
    return {"generation_config": {key: value for key, value in config.items() if value}} if arguments or more else {}


def _instances(result: Result, evaluation: str, scores: pl.DataFrame) -> list[dict[str, Any]]:
    """A record a scored sample and template; what has no score has no record."""
    mains = {(row["language"], row["template"]): label(row) for row in result.main_rows() if row["value"] is not None}
    mine = scores.filter(pl.col("model") == result.model).drop_nulls("score")
    return [_instance(result, evaluation, row, mains) for row in mine.iter_rows(named=True)]


def _instance(
    result: Result, evaluation: str, row: Mapping[str, Any], mains: Mapping[tuple[str, str | None], str]
) -> dict[str, Any]:
    text = row.get("text")
    places = ((row["language"], row["template"]), *((row["language"], name) for name in ("all", "overall", None)))
    rate = next((mains[place] for place in places if place in mains), None)
    return {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "model_id": result.public_id,
        "evaluation_name": result.task,
        **({"evaluation_result_id": rate} if rate else {}),
        "sample_id": row["id"],
        **({"sample_hash": hashlib.sha256(text.encode()).hexdigest()} if text else {}),
        "interaction_type": "single_turn",
        "input": {"raw": text or "", "reference": []},
        "output": {"raw": []},
        "answer_attribution": [],
        # No answer is right or wrong; the schema wants a truth value.
        "evaluation": {"score": row["score"], "is_correct": False},
        "metadata": texts(
            {
                **{key: row[key] for key in ("language", "template", "group")},
                "score": "per-sample score of the task; no answer is right or wrong, so is_correct has no meaning",
                "text": None if text else "left out",
            }
        ),
    }
