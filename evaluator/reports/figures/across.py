"""Tasks of a run against each other: does one measure what the other one measures?"""

from collections.abc import Iterator

import polars as pl

from evaluator.measures import validity
from evaluator.reports.blocks import correlation
from evaluator.reports.figure import Figure, slug
from evaluator.reports.figures.drawing import finished, sentences, with_labels
from evaluator.reports.figures.scatters import points_chart
from evaluator.reports.report import Report, Section
from evaluator.vocabulary import Scatter


def across(report: Report) -> Iterator[Figure]:
    """A figure for each split of a check, and each task that it checks, over the models that have both."""
    for checked in _giving(report, validity.CHECKED):
        for check in _giving(report, validity.CHECK):
            points = validity.points(checked.rows, check.rows)
            scale = next(iter(checked.rows["scale"].drop_nulls()), report.options.scale)
            yield from validity_figures(points, validity.correlations(points, scale), checked.task, check.task)


def _giving(report: Report, measures: tuple[str, ...]) -> list[Section]:
    return [section for section in report.sections if set(measures) <= set(section.rows["measure"])]


def validity_figures(points: pl.DataFrame, rows: pl.DataFrame, checked: str, check: str) -> Iterator[Figure]:
    """A scatter a split of `evaluator.measures.validity.points`, with its correlation (`rows`) in the caption.

    Of a task of several languages the mean over them is shown, where models have it; else each language by itself.
    """
    x, y = validity.CHECKED[0], validity.CHECK[0]
    shown = points.filter(group=x)
    if (whole := shown.filter(language=validity.OVERALL)).height:
        shown = whole
    several = points["language"].n_unique() > 1
    for language, split in shown.select("language", "template").unique(maintain_order=True).iter_rows():
        data = with_labels(shown.filter(language=language, template=split).drop("group", "language"))
        spoken = f" in {'all languages' if language == validity.OVERALL else language}" if several else ""
        title = f"{y} of {check} {split} against {x} of {checked}{spoken}"
        found = rows.filter(language=language, template=split, group=x, measure="pearson").row(0, named=True)
        chart = points_chart(data, f"{x} ({checked}{spoken})", f"{y} ({check} {split})", Scatter(x, y))
        sentence = f"Pearson correlation over the models: {correlation(found)}."
        caption = sentences("Error bars: 95% intervals.", sentence)
        yield Figure(
            slug(checked, check, split, language if several else None),
            title,
            caption,
            data,
            finished(chart),
            f"{title}. {sentence}",
        )
