"""Hugging Face: `.eval_results/*.yaml` for a model's repository, and a section for its card.

The YAML is what `huggingface_hub` writes and reads. The Hub shows an entry beside a data set that is there, so a task whose
data set is not gets a card only.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from evaluator import __version__
from evaluator.exports.result import Result
from evaluator.reports.blocks import Block, TableRow, digits_for, with_interval
from evaluator.reports.headline import headline
from evaluator.reports.markdown import escape, table
from evaluator.store.names import folder_name

CARD = "model-card.md"


def documents(results: Sequence[Result], url: str | None = None) -> dict[str, str]:
    """Path → text: MODEL/.eval_results/TASK.yaml where the task's data set is on the Hub, and MODEL/model-card.md.

    `url` is where the results can be looked at.
    """
    made: dict[str, str] = {}
    for result in results:
        if entries := list(_entries(result, url)):
            path = f"{folder_name(result.model)}/.eval_results/{folder_name(result.task)}.yaml"
            made[path] = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True)
    for model in dict.fromkeys(result.model for result in results):
        mine = [result for result in results if result.model == model]
        made[f"{folder_name(model)}/{CARD}"] = "\n".join(_card(mine)).rstrip() + "\n"
    return made


def _entries(result: Result, url: str | None) -> Iterator[EvalResultEntry]:
    """An entry a main rate; a rate that is not defined has none."""
    hub = next((known.hub for known in result.datasets if known.hub), None)
    if hub is None:
        return
    name = f"stereotype-evaluator {result.attempt.get('evaluator', __version__)}"
    for row in result.main_rows():
        if row["value"] is not None:
            yield EvalResultEntry(
                dataset_id=hub,
                task_id=".".join([result.task, row["measure"], *(row[key] for key in ("language", "template") if row[key])]),
                value=row["value"],
                date=result.attempt.get("time"),
                source_url=url,
                source_name=name if url else None,
                notes=_notes(result, row, name),
            )


def _notes(result: Result, row: dict[str, Any], name: str) -> str:
    bounds = f"95% interval {row['low']:.6g} to {row['high']:.6g} ({row['interval']})" if row["interval"] else "no interval"
    setting = result.setting
    shown = [f"{key} {setting[key]}" for key in ("engine", "dtype", "protocol", "condition", "chat_template") if key in setting]
    digests = [f"{file} sha256 {digest}" for file, digest in result.task_entry.get("sha256", {}).items()]
    share = f"{result.samples:,} of {result.task_entry.get('samples', 0):,} samples"
    return "; ".join(
        [name, bounds, f"n {row['n']}", *([f"scale {row['scale']}"] if row["scale"] else []), share, *shown, *digests]
    )


def _card(results: Sequence[Result]) -> Iterator[str]:
    """A section of a model card: what was measured, what it means, what not to conclude."""
    first = results[0]
    version, date = first.attempt.get("evaluator", __version__), str(first.attempt.get("time", ""))[:10]
    yield from ("## Stereotypes", "")
    yield f"Measured with stereotype-evaluator {version}{f' on {date}' if date else ''}. Intervals are 95%."
    yield ""
    for result in results:
        yield from (f"### {escape(result.task)}", "")
        if result.section.about:
            yield from (f"{escape(result.section.about[0].upper() + result.section.about[1:])}.".replace("..", "."), "")
        yield from table(_table(result))
        yield from ("**What it means**", "")
        yield from (f"- {escape(sentence)}" for sentence in headline(result.section))
        yield from ("", "**What not to conclude**", "")
        yield from (f"- {escape(sentence)}" for sentence in result.layout.cautions)
        if result.notes:
            yield from ("", "**Notes**", "")
            yield from (f"- {escape(sentence)}" for sentence in result.notes)
        yield ""
        setting = ", ".join(f"{key} {value}" for key, value in result.setting.items() if key in ("engine", "dtype", "protocol"))
        yield from (f"Settings: {escape(setting)}; {result.samples:,} samples.", "")


def _table(result: Result) -> Block:
    rows = list(result.main_rows())
    digits = digits_for(max((abs(row["value"]) for row in rows if row["value"] is not None), default=None))
    several = len({row["language"] for row in rows}) > 1
    places = ("language", "template") if several else ("template",)
    made = (
        TableRow(
            result.layout.shown(row["measure"]),
            (*(row[place] or "" for place in places), with_interval(row, digits), f"{row['n'] or 0:,}"),
        )
        for row in rows
    )
    return Block("", ("measure", *places, "value", "n"), tuple(made))
