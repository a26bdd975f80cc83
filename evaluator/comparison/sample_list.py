"""The sentences behind a rate, for `evaluator samples` and for notebooks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from evaluator.comparison.samples import Rate, among, by_template, differing, drivers, ends, main_rate
from evaluator.reports.beside import reference_called, reference_scores, sources
from evaluator.reports.report import check_scale
from evaluator.reports.texts import sample_texts
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import Layout, MeasureOptions, Scale, plain_layout
from evaluator_serving.errors import InputError


@dataclass(frozen=True, slots=True)
class SampleList:
    """The samples at either end of a rate, or of the differences between two models.

    Attributes:
        ends: of each template the first samples and the last (columns DRIVERS or DIFFERING of `evaluator.comparison.samples`).
        rate: the rate that they are listed for.
        layout: how the task's rates are shown.
        against: the other model, None where there is none.
    """

    ends: tuple[tuple[pl.DataFrame, pl.DataFrame], ...]
    rate: Rate
    layout: Layout
    against: str | None = None

    @property
    def rows(self) -> pl.DataFrame:
        """All of them below each other; without another model with `first` and `second`, the words of p_first and p_second."""
        listed = pl.concat([end for both in self.ends for end in both])
        if self.against is not None:
            return listed
        first, second = self.layout.poles
        return listed.with_columns(first=pl.lit(first or None), second=pl.lit(second or None))


def list_samples(
    run: str | Path,
    model: str | None = None,
    task: str | None = None,
    *,
    group: str | None = None,
    measure: str | None = None,
    template: str | None = None,
    against: str | None = None,
    top: int = 20,
    scale: Scale = "ratio",
    samples: Path | None = None,
    encoding: str | None = None,
    data: Path | None = None,
    published: bool = False,
    beside: Sequence[str | Path] = (),
    report: Callable[[str], None] = print,
) -> SampleList:
    """The samples that drive a model's rate up and down, or those on which it differs most from another model.

    Args:
        model, task: whose rate, and of which task (default: the run's only one).
        group, measure, template: which rate (default: the task's main one over all groups, or its main one of the group).
        against: the other model of the run, or a reference.
        top: samples at either end, of each template.
        samples, encoding: the file of a task of the user's own; data: folder of the data sets.
        published, beside: references whose scores of the samples are counted: the published ones, those of other runs.
        report: called with a note on each reference that is left out.

    Raises InputError for an unknown model, task, group or rate, and where sentences are missing.
    """
    opened = Run.open(run_folder(run))
    it = task_of(opened, _only(task, opened.tasks, "task", opened.shown))
    options = MeasureOptions(scale=scale, resamples=1, protocol=opened.protocol)
    check_scale(it, options.scale)
    mine = _scores(_only(model, opened.models, "model", opened.shown), opened, it.name)
    layout = it.layout(options) or plain_layout(it.measure(mine, options))
    if group is not None and group not in set(mine["group"]):
        known = ", ".join(sorted(set(mine["group"].drop_nulls()), key=lambda g: (len(g), g)))
        raise InputError(f"{it.name} has no group {group!r}: it has {known}")
    rate = main_rate(layout, measure, group, template)
    runs = sources(published, [run_folder(each) for each in beside], [opened.path])
    references, notes = reference_scores(opened, it.name, mine, layout, runs, options)
    for note in notes:
        report(note)
    texts = sample_texts(opened, it.name, data, samples, encoding)
    if against is not None:
        reference = None if against in opened.models else reference_called(references, against)
        others = _scores(against, opened, it.name) if reference is None else reference
        against = others["model"][0]
        rows = differing(it, mine, others, texts, rate)
    else:
        rows = drivers(it, mine, texts, rate, options)
        if published or beside:
            rows = among(rows, references)
    if rows.is_empty():
        raise InputError(f"{opened.shown}: there is no such sentence: choose another --template, --stereotype or model")
    return SampleList(tuple(ends(part, top) for part in by_template(rows)), rate, layout, against)


def _only(name: str | None, names: list[str], what: str, run: str) -> str:
    """The named one, or the only one there is."""
    if name is None and len(names) == 1:
        return names[0]
    known = ", ".join(names) or "none"
    if name is None:
        raise InputError(f"{run} has {len(names)} {what}s: name one with --{what} ({known})")
    if name not in names:
        raise InputError(f"{run} has no {what} {name!r}: it has {known}")
    return name


def _scores(model: str, run: Run, task: str) -> pl.DataFrame:
    scores = scores_of(run, task, [_only(model, run.models, "model", run.shown)])
    if scores.is_empty():
        raise InputError(f"{model} has no scores of {task} yet: evaluator status {run.shown}")
    return scores
