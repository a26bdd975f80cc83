"""What an export says of one model on one task."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from evaluator.datasets.registry import Dataset, datasets
from evaluator.reports.notes import run_notes
from evaluator.reports.overall import wholes
from evaluator.reports.report import Report, Section
from evaluator.store.names import folder_name
from evaluator.store.run import Run
from evaluator.tasks.base import Task
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import Layout, MeasureOptions

PLACE = ("language", "group", "template")
BY_TASK = ("asked", "unasked", "heads_used", "text_tokens", "parts")
"""What a model's entry in run.json says of each task."""
OF_CHATS = ("chats", "decoding")
"""What it says of answers in words."""


@dataclass(frozen=True, slots=True)
class Result:
    """One model's rates on one task.

    Attributes:
        model: its name in the run.
        section: the task's rows of this model alone; correlations between templates or models are left out.
        entry, task_entry: the model's and the task's entry in run.json.
        attempt: the last command that worked on the run, with the program's version and a time.
        asked: the task.
        samples: how many of its samples have answers of this model.
        options: the choices of the report.
        notes: what a reader of the numbers must know, a sentence each.
    """

    model: str
    section: Section
    entry: Mapping[str, Any]
    task_entry: Mapping[str, Any]
    attempt: Mapping[str, Any]
    asked: Task
    samples: int
    options: MeasureOptions
    notes: tuple[str, ...]

    @property
    def task(self) -> str:
        """The task's name."""
        return self.section.task

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """What the task reads."""
        return tuple(datasets()[name] for name in self.asked.reads if name in datasets())

    @property
    def layout(self) -> Layout:
        """How the task's rows are shown."""
        return self.section.layout

    @property
    def defined(self) -> pl.DataFrame:
        """The rows that have a value."""
        return self.section.rows.drop_nulls("value")

    @property
    def undefined(self) -> list[str]:
        """The rates without a value, one name each."""
        return [label(row) for row in self.section.rows.filter(pl.col("value").is_null()).iter_rows(named=True)]

    def main_rows(self) -> Iterator[dict[str, Any]]:
        """See `main_rows`."""
        return main_rows(self.section)

    @property
    def hub_id(self) -> str | None:
        """The model's id on the Hugging Face Hub; None where it came from elsewhere."""
        spec, revision = str(self.entry.get("spec", "")), self.entry.get("revision")
        known = isinstance(revision, str) and not revision.startswith("sha256:") and "://" not in spec
        return spec.partition("@")[0] if known and not self.entry.get("imported") else None

    @property
    def public_id(self) -> str:
        """DEVELOPER/NAME: the Hub's id, else the name in the run behind `hub`, `server` or `local`."""
        found = self.hub_id
        if found is not None:
            return found if "/" in found else f"hub/{found}"
        return f"{'server' if '://' in str(self.entry.get('spec', '')) else 'local'}/{folder_name(self.model)}"

    @property
    def generation(self) -> dict[str, Any]:
        """How a model that answers in words was made to answer: temperature, max_tokens …; empty of log-probabilities."""
        names = ("temperature", "max_tokens", "answers", "seed", "orders") if "chats" in self.entry else ()
        parameters = self.asked.parameters
        return {name: getattr(parameters, name) for name in names if name in type(parameters).model_fields}

    @property
    def setting(self) -> dict[str, str]:
        """What the numbers depend on besides data and weights, as texts: protocol, engine, dtype, versions, prompt …"""
        entry, condition = self.entry, self.entry.get("condition") or {}
        known = {
            "protocol": self.options.protocol,
            **{key: entry.get(key) for key in ("engine", "dtype", "revision", "fingerprint", "verified", "date")},
            **{key: entry.get("details", {}).get(key) for key in ("chat_template", "quantization", "thinking")},
            "versions": entry.get("versions"),
            "adapter": entry.get("adapter"),
            "condition": condition.get("name"),
            "system_prompt": condition.get("system"),
            "decoding": entry.get("decoding"),
            "limit": entry.get("asked", {}).get(self.task, {}).get("limit"),
        }
        return texts(known)


def results(run: Run, report: Report) -> list[Result]:
    """Every model on every task that it has rates of, in the report's order."""
    record = report.record
    made = []
    for section in report.sections:
        task = task_of(run, section.task)
        rows = section.rows.filter(pl.col("other").is_null())
        answered = scores_of(run, section.task).group_by("model").agg(pl.col("sample").n_unique())
        samples = dict(answered.iter_rows())
        for model in (name for name in record["models"] if name in set(rows["model"])):
            entry = record["models"][model]
            of_task = {key: _only(entry[key], section.task) for key in BY_TASK if key in entry}
            if "chat" not in entry.get("heads_used", {}).get(section.task, ()):
                of_task |= {key: {} for key in OF_CHATS}
            about = {"models": {model: {**entry, **of_task}}, "tasks": {section.task: record["tasks"][section.task]}}
            made.append(
                Result(
                    model,
                    replace(section, rows=rows.filter(pl.col("model") == model)),
                    entry,
                    record["tasks"][section.task],
                    record["attempts"][-1],
                    task,
                    samples.get(model, 0),
                    report.options,
                    (*run_notes(about), *section.warnings),
                )
            )
    return made


def _only(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: values[name]} if name in values else {}


def main_rows(section: Section) -> Iterator[dict[str, Any]]:
    """The rows that models are compared by (see `reports.overall.wholes`), each with its measure."""
    for main in (*section.layout.overview, *section.layout.by_language):
        for row in wholes(section, main.measure).filter("overall").iter_rows(named=True):
            yield {**row, "measure": main.measure, "group": None, "template": row["template"] or None}


def label(row: Mapping[str, Any]) -> str:
    """A rate's name among those of its model and task: measure, then language, group and template where it has them."""
    return "/".join([row["measure"], *(str(row[name]) for name in PLACE if row[name] is not None)])


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as texts, those that are None or empty left out."""
    kept = {key: value for key, value in values.items() if value not in (None, "", {}, [], ())}
    return {key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in kept.items()}
