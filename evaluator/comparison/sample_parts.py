"""The sentences behind a report's rates as parts of its page; see `evaluator.comparison.samples`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.comparison.samples import Rate, by_template, drivers, ends, main_rate, short
from evaluator.reports.blocks import Block, TableRow
from evaluator.reports.page import Part
from evaluator.reports.report import Report, Section
from evaluator.reports.texts import sample_texts
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import Layout
from evaluator_serving.errors import InputError

TOP = 10
"""Sentences at either end, of each model."""
CONTENT = (
    "These sentences express stereotypes and can offend. They belong to the data set, whose licence governs who may "
    "receive this page."
)
EXPLAINED = (
    "up: the rate falls without the sentence; down: it rises. P: probabilities of the two words; mass: their sum. "
    "Empty if the task has no word pair."
)


def _columns(layout: Layout) -> tuple[str, ...]:
    words = (f"P {pole or place}" for pole, place in zip(layout.poles, ("first", "second"), strict=True))
    return (*("drives", "sentence", "sample", "place", "group", "score"), *words, *("mass", "rate", "change without it"))


def sentences(run: Run, tasks: Sequence[str], data: Path | None) -> dict[str, pl.DataFrame | None]:
    """Task → columns `sample` and `text`; None where they are the user's own.

    Raises InputError where a data set isn't here or is another one.
    """
    return {name: None if task_of(run, name).own_samples else sample_texts(run, name, data) for name in tasks}


def sample_parts(run: Run, report: Report, texts: Mapping[str, pl.DataFrame | None]) -> tuple[Part, ...]:
    """One part per task: of each model the sentences that drive its main rate up and down most."""
    return tuple(_part(run, report, section, texts[section.task]) for section in report.sections)


def _part(run: Run, report: Report, section: Section, texts: pl.DataFrame | None) -> Part:
    title = f"{section.task}: the sentences behind the rate"
    if texts is None:
        return Part(
            title,
            empty=(f"This task uses a custom file: evaluator samples {run.shown} --task {section.task} --samples FILE"),
        )
    scores = scores_of(run, section.task)
    if scores.is_empty():
        return Part(title)
    task = task_of(run, section.task)
    rows: list[TableRow] = []
    notes: list[str] = []
    try:
        rate = main_rate(section.layout, None, None, None)
    except InputError as error:
        return Part(title, empty=str(error))
    for model in section.rows["model"].unique(maintain_order=True):
        mine = scores.filter(pl.col("model") == model)
        try:
            found = drivers(task, mine, texts, rate, report.options)
        except InputError as error:
            notes.append(str(error))
            continue
        rows += [TableRow(model), *_rows(found, section.layout)]
    block = Block(_title(rate, section.layout), _columns(section.layout), tuple(rows), (EXPLAINED, *notes))
    return Part(title, warnings=(CONTENT,), tables=(block,), empty=" ".join(notes) or "No sentence drives this rate.")


def _title(rate: Rate, layout: Layout) -> str:
    return f"the {TOP} sentences at either end of each template that drive each model's {layout.shown(rate.measure)} most"


def _rows(found: pl.DataFrame, layout: Layout) -> Iterator[TableRow]:
    for each in by_template(found):
        for way, part in zip(("up", "down"), ends(each, TOP), strict=True):
            for place, row in enumerate(part.iter_rows(named=True), 1):
                yield TableRow(f"{way} {place}", _cells(row, layout))


def _cells(row: Mapping[str, Any], layout: Layout) -> tuple[str, ...]:
    group = layout.named(row["sample_group"]) if row["sample_group"] else ""
    place = " ".join(part for part in (row["language"], row["template"]) if part)
    cells = [row["text"] or "", str(row["sample"]), place, group, short(row["score"])]
    words = ["" if row[name] is None else short(row[name]) for name in ("p_first", "p_second", "mass")]
    return (*cells, *words, short(row["rate"]), short(row["move"]))
