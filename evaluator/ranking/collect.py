"""From run folders to a board: the main number of each task, model by model, with its value in every resample."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from evaluator.comparison.build import Side, sides
from evaluator.datasets.registry import PUBLISHED, published_run
from evaluator.measures.bootstrap import Array, Bootstrap, Stratum
from evaluator.measures.estimate import KEYS
from evaluator.measures.intervals import BOOTSTRAPS
from evaluator.ranking.board import VALUES, Board, BoardColumn, BoardRow
from evaluator.reports.beside import way_of, why_partial
from evaluator.reports.blocks import OVER_ALL
from evaluator.reports.facts import model_facts
from evaluator.reports.overall import wholes
from evaluator.reports.report import Section, measured
from evaluator.store.run import Run
from evaluator.tasks.base import Task
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import SCALES, MeasureOptions, Overview
from evaluator_serving.errors import InputError


def collect(
    runs: Sequence[Run], options: MeasureOptions, tasks: Sequence[str] = (), models: Path | None = None, title: str = "Models"
) -> Board:
    """The board of all models of the runs; `models` is a table of facts (see `evaluator.reports.facts`).

    Raises InputError for a run that is given twice or is empty, a task that none has, and a wrong table.
    """
    every = sides(runs)
    known = list(dict.fromkeys(name for run in runs for name in run.tasks))
    if unknown := [name for name in tasks if name not in known]:
        raise InputError(f"no run has a task {unknown[0]!r}: there are {', '.join(known) or 'none'}")
    facts = model_facts({side.label: side.run.record["models"][side.name] for side in every}, models)
    entries = []
    for side in every:
        known_facts = facts[side.label]
        label = PUBLISHED if side.run.path == published_run() else side.run.path.resolve().name
        date = known_facts.release or _date(side.run)
        entries.append(BoardRow(side.label, label, known_facts.family or "", known_facts.parameters, known_facts.tuned, date))
    columns: dict[BoardColumn, int] = {}
    rows: list[tuple[object, ...]] = []
    draws: list[Array] = []
    bootstrap = Bootstrap.of(options)
    for run in runs:
        for name in (task for task in run.tasks if not tasks or task in tasks):
            for at, column, values, drawn in _values(run, name, every, options, bootstrap):
                rows.append((at, columns.setdefault(column, len(columns)), *values))
                draws.append(drawn)
    if not rows:
        raise InputError(f"the runs have no main number of {', '.join(tasks) or 'any task'}: score some models first")
    frame = pl.DataFrame(rows, schema=VALUES, orient="row")
    interval = f"interval: 95%, {BOOTSTRAPS[options.interval]}, {options.resamples:,} resamples, seed {options.seed}"
    scale = f"scale: {options.scale} ({SCALES[options.scale]})"
    return Board(title, tuple(columns), tuple(entries), frame, np.stack(draws), (scale, interval))


def _date(run: Run) -> str:
    """The day on which a run was made, where its record says it."""
    times = [str(attempt["time"])[:10] for attempt in run.record.get("attempts", ()) if "time" in attempt]
    return times[0] if times else ""


def _values(
    run: Run, name: str, every: Sequence[Side], options: MeasureOptions, bootstrap: Bootstrap
) -> Iterator[tuple[int, BoardColumn, tuple[object, ...], Array]]:
    """(place of the model, column, what VALUES has from `value` on, its resamples) of a task's main number."""
    section = measured(run, name, options)
    main = next(iter((*section.layout.overview, *section.layout.by_language)), None)
    if main is None:
        return
    rows = wholes(section, main.measure).filter("overall").drop_nulls("value")
    if "all" in rows["language"]:
        rows = rows.filter(language="all")
    places = {side.name: at for at, side in enumerate(every) if side.run is run}
    task, scores = task_of(run, name), scores_of(run, name)
    for (model,), part in rows.partition_by("model", as_dict=True, maintain_order=True).items():
        if model not in places:
            continue
        mine = scores.filter(pl.col("model") == model)
        drawn = _draws(task, mine, options, bootstrap, main.measure)
        settings = f"{way_of(run, name, str(model), mine, options)}; {_data(run, name)}"
        why = why_partial(run, name, str(model))
        for row in part.iter_rows(named=True):
            known = drawn.get((row["language"], row["template"]), np.full(options.resamples, np.nan))
            column = _column(section, main, row["language"], row["template"])
            yield places[str(model)], column, (row["value"], row["low"], row["high"], settings, why), known


def _data(run: Run, name: str) -> str:
    """The protocol and the data that a run's task was asked with: what must be alike for ranks."""
    entry = run.record["tasks"][name]
    parts = [f"protocol {run.protocol}", *(f"data {digest[:8]}" for digest in entry.get("sha256", {}).values())]
    if definition := entry.get("definition"):
        parts.append(f"definition {hashlib.sha256(definition.encode()).hexdigest()[:8]}")
    return ", ".join(parts)


def _column(section: Section, main: Overview, language: str | None, template: str) -> BoardColumn:
    several = section.rows["language"].n_unique() > 1
    parts = [language or "" if several else "", template if template not in OVER_ALL else ""]
    place = " ".join(part for part in parts if part)
    name = ".".join(part for part in (section.task, main.measure, *parts) if part)
    shown = f"{section.task} {section.layout.shown(main.measure)}" + (f" ({place})" if place else "")
    return BoardColumn(name, shown, language or "", main.neutral, main.meaning)


def _draws(
    task: Task, scores: pl.DataFrame, options: MeasureOptions, bootstrap: Bootstrap, measure: str
) -> dict[tuple[str | None, str], Array]:
    """(language, template) → the measure over all groups in each resample, [resamples]."""
    keys = KEYS[:2] if task.joint_languages else KEYS
    made: dict[tuple[str | None, str], Array] = {}
    for key, part in scores.group_by(keys, maintain_order=True):
        for block in task.sampled(part, options):
            wanted = [i for i, label in enumerate(block.labels) if label.measure == measure and label.group in (None, "all")]
            if not wanted:
                continue
            chosen = block.choose(wanted)
            strata = [Stratum(units.stratum, units.values) for units in chosen.strata]
            values = bootstrap.resampled(strata, chosen.statistic, len(wanted))
            for at, label in enumerate(chosen.labels):
                language = label.language if len(keys) < len(KEYS) else key[-1]
                made[str(language) if language is not None else None, label.template or ""] = values[:, at].astype(np.float32)
    return made
