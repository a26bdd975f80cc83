"""A comparison of the models of one run or of several: reads the runs, refuses what can't be compared, makes the rows."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.comparison.comparable import check
from evaluator.comparison.differences import COMPARED, corrected, differences, named_groups, too_few_permutations
from evaluator.comparison.expressions import Check, Crossed, crossed
from evaluator.measures.bootstrap import Bootstrap
from evaluator.measures.paired import PERMUTATIONS
from evaluator.measures.sampled import Label
from evaluator.reports.beside import Source, beside, sentences
from evaluator.reports.blocks import MANY_GROUPS
from evaluator.reports.local_paths import named_only, without_folders
from evaluator.reports.notes import collect_notes
from evaluator.reports.report import Section, measured
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import TIDY, Layout, MeasureOptions
from evaluator_serving.errors import InputError

TOGETHER = 8
"""Models that are compared with the baseline at once."""


@dataclass(frozen=True, slots=True)
class Side:
    """A model of a run, and what it is called in the comparison."""

    run: Run
    name: str
    label: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the renderers get.

    Attributes:
        models: what the compared models are called, the baseline first.
        options: scale, interval and seed.
        permutations: of the paired test.
        rows: columns COMPARED, the largest difference of each measure first.
        rates: columns TIDY: every model's own rates, as its run's report gives them.
        layouts: task → how its rows are shown.
        notes: what every reader must know, a sentence each.
        beside: task → its rates with references, where there are any; they are part of no test.
        checks: the conditions that a model fails by meeting them.
    """

    models: tuple[str, ...]
    options: MeasureOptions
    permutations: int
    rows: pl.DataFrame
    rates: pl.DataFrame
    layouts: Mapping[str, Layout]
    notes: tuple[str, ...]
    beside: Mapping[str, Section] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    @property
    def baseline(self) -> str:
        """What the others are compared with."""
        return self.models[0]

    def failing(self) -> list[Crossed]:
        """Which models fail which checks: the baseline is not checked beside others. InputError where one can't be decided."""
        rates = self.rates.filter(pl.col("model") != self.baseline) if len(self.models) > 1 else self.rates
        return [found for each in self.checks for found in crossed(each, rates, self.rows)]


def sides(runs: Sequence[Run]) -> list[Side]:
    """All models of the runs; one whose name another run has too is called RUN:MODEL.

    Raises InputError for a run that is given twice or holds no models.
    """
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise InputError("a run is given twice: give each run once")
    if empty := [run.shown for run in runs if not run.models]:
        raise InputError(f"{' and '.join(empty)} {'have' if len(empty) > 1 else 'has'} no models: score some first")
    names = [name for run in runs for name in run.models]
    folders = [run.path.resolve().name for run in runs]
    made = []
    for run in runs:
        folder = run.path.resolve().name
        prefix = folder if folders.count(folder) == 1 else run.shown
        made += [Side(run, name, name if names.count(name) == 1 else f"{prefix}:{name}") for name in run.models]
    return made


def select_sides(everything: Sequence[Side], models: Sequence[str], baseline: str | None) -> list[Side]:
    """The sides to compare, the baseline (by default the first) first. Raises InputError for a name that isn't one side's."""
    picked = [_named(everything, name) for name in dict.fromkeys(models)] or list(everything)
    if baseline is None:
        return picked
    first = _named(everything, baseline)
    return [first, *(side for side in picked if side != first)]


def _named(everything: Sequence[Side], name: str) -> Side:
    found = [side for side in everything if side.label == name] or [side for side in everything if side.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"two runs have a model {name!r}: write {' or '.join(side.label for side in found)}")
    known = ", ".join(side.label for side in everything) or "none"
    raise InputError(f"no run has a model {name!r}: choose from {known}")


def build(
    picked: Sequence[Side],
    options: MeasureOptions,
    *,
    tasks: Sequence[str] = (),
    allow: Collection[str] = (),
    permutations: int = PERMUTATIONS,
    checks: tuple[Check, ...] = (),
    references: Sequence[Source] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Compare every side with the first one on all tasks that both have, or on these; `progress` hears how many are done.

    Raises InputError where fewer than two are given (unless there are checks, none of a difference: then the rates of one will
    do), for runs that aren't comparable, and where nothing is left to compare.
    """
    alone = bool(checks) and not any(each.of_differences for each in checks)
    if len(picked) < 2 and not (alone and picked):
        have = f"only {picked[0].label}" if picked else "none"
        raise InputError(f"a comparison needs two or more models, but there is {have}: name another run, or give --model twice")
    wanted = _tasks(picked, tasks)
    scores, first = _Scores(), picked[0]
    notes = list(_notes(picked, wanted))
    pairs = [(name, side) for name in wanted for side in picked[1:] if scores.has(first, name) and scores.has(side, name)]
    for name, side in pairs:  # all of them before anything is computed
        notes += check(name, (first.run.record, first.name, first.label), (side.run.record, side.name, side.label), allow)
    rates, layouts = _rates(picked, wanted, options)
    frames = [pl.DataFrame(schema=COMPARED)]
    bootstrap = Bootstrap.of(options)
    for name, together in _batches(pairs):

        def told(share: float, before: int = len(frames) - 1, count: int = len(together)) -> None:
            progress(before + int(share * count), len(pairs))

        found = differences(
            task_of(first.run, name),
            (first.label, scores.of(first, name)),
            [(side.label, scores.of(side, name)) for side in together],
            options,
            bootstrap,
            shown=_Shown.of(layouts[name], rates.filter(pl.col("task") == name)),
            permutations=permutations,
            progress=told,
        )
        for each in found:
            frames.append(each.rows)
            notes += each.notes
    rows = corrected(pl.concat(frames))
    if rows.is_empty() and len(picked) > 1:
        raise InputError(_nothing(picked, wanted, notes))
    if few := too_few_permutations(rows, permutations):
        notes.append(few)
    placed = {name: _placed(picked, name, rates, layouts[name], references, options) for name in layouts if references}
    notes += [text for section in placed.values() for text in (*section.warnings, *sentences(section))]
    labels = tuple(side.label for side in picked)
    return Comparison(labels, options, permutations, rows, rates, layouts, tuple(dict.fromkeys(notes)), placed, checks)


def _batches(pairs: Sequence[tuple[str, Side]]) -> Iterator[tuple[str, list[Side]]]:
    """A task and some of its models, which share the test's random signs and fit into memory together."""
    for name in dict.fromkeys(name for name, _ in pairs):
        mine = [side for task, side in pairs if task == name]
        yield from ((name, mine[start : start + TOGETHER]) for start in range(0, len(mine), TOGETHER))


def _placed(
    picked: Sequence[Side],
    name: str,
    rates: pl.DataFrame,
    layout: Layout,
    references: Sequence[Source],
    options: MeasureOptions,
) -> Section:
    """A task's rates with the references that stand beside them."""
    section = Section(name, rates.filter(pl.col("task") == name), layout, ())
    called: dict[Path, dict[str, str]] = {}
    for side in picked:
        if side.label in set(section.rows["model"]):
            called.setdefault(side.run.path, {})[side.name] = side.label
    for path, names in called.items():
        section = beside(Run.open(path), section, references, options, names)
    return section


def _tasks(picked: Sequence[Side], tasks: Sequence[str]) -> list[str]:
    every = list(dict.fromkeys(name for side in picked for name in side.run.tasks))
    for name in tasks:
        if name not in every:
            raise InputError(f"no run has a task {name!r}: there are {', '.join(every) or 'none'}")
    return list(dict.fromkeys(tasks)) or every


def _nothing(picked: Sequence[Side], tasks: Sequence[str], notes: Sequence[str]) -> str:
    names = ", ".join(side.label for side in picked)
    reasons = f" ({' '.join(notes)})" if notes else ""
    return (
        f"{names} have no scored samples in common on {', '.join(tasks) or 'any task'}: score them on one task first{reasons}"
    )


class _Scores:
    """Per-sample scores of every model and task, read once."""

    def __init__(self) -> None:
        self._frames: dict[tuple[Side, str], pl.DataFrame] = {}

    def of(self, side: Side, task: str) -> pl.DataFrame:
        """One model's scores of a task."""
        if (side, task) not in self._frames:
            self._frames[side, task] = scores_of(side.run, task, [side.name])
        return self._frames[side, task]

    def has(self, side: Side, task: str) -> bool:
        """Whether there are any."""
        return task in side.run.tasks and not self.of(side, task).is_empty()


@dataclass(frozen=True, slots=True)
class _Shown:
    """Which outputs are compared: of very many groups only those that the layout names, as in reports."""

    groups: frozenset[str] | None

    @classmethod
    def of(cls, layout: Layout, rates: pl.DataFrame) -> "_Shown":
        details = rates.filter(pl.col("measure").is_in(layout.details))["group"].n_unique()
        return cls(frozenset(layout.groups) if details > MANY_GROUPS and layout.groups else None)

    def __call__(self, label: Label) -> bool:
        return self.groups is None or named_groups(label, self.groups)


def _rates(picked: Sequence[Side], tasks: Sequence[str], options: MeasureOptions) -> tuple[pl.DataFrame, dict[str, Layout]]:
    """Every model's own rates under the names of the comparison, and each task's layout."""
    frames = [pl.DataFrame(schema=TIDY)]
    layouts: dict[str, Layout] = {}
    for name in tasks:
        sections: dict[str, Section] = {}
        for side in picked:
            if name in side.run.tasks:
                key = str(side.run.path)
                sections[key] = sections.get(key) or measured(side.run, name, options)
                layouts.setdefault(name, sections[key].layout)
                mine = sections[key].rows.filter(pl.col("model") == side.name)
                frames.append(mine.with_columns(pl.lit(side.label).alias("model")))
    return pl.concat(frames), layouts


BY_TASK = ("heads_used", "asked", "unasked", "text_tokens")
"""Parts of a model's entry that have an entry for each task."""


def _about(entry: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """What a model's entry says of these tasks, or of none in particular."""
    parts = {key: {task: fact for task, fact in entry[key].items() if task in tasks} for key in BY_TASK if key in entry}
    return {**entry, **parts}


def _notes(picked: Sequence[Side], tasks: Sequence[str]) -> Iterator[str]:
    """What is known of the models and tasks of each run, whether it is still being written, and what has no answer yet."""
    for path in dict.fromkeys(side.run.path for side in picked):
        mine = [side for side in picked if side.run.path == path]
        run, record = mine[0].run, named_only(mine[0].run.record)
        models = {side.name: _about(record["models"][side.name], tasks) for side in mine}
        yield from collect_notes(
            {**record, "models": models, "tasks": {n: e for n, e in record["tasks"].items() if n in tasks}}
        ).lines
        if run.busy:
            yield f"{without_folders(str(path))} is still being written: the comparison uses the answers stored so far."
        for name in (task for task in tasks if task in run.tasks):
            left = run.unanswered(name, models)
            yield from (
                f"{side.label}: {left[side.name][0]:,} of {left[side.name][1]:,} requests of {name} have no answer yet."
                for side in mine
                if side.name in left
            )
