"""The figures of a report, drawn with Vega-Altair: functions from a task's section to figures.

Which figures a task's results have is said by its layout (`evaluator.vocabulary.Layout`), never by its name.
"""

from collections.abc import Callable, Iterator

from evaluator.reports.figure import Figure
from evaluator.reports.figures.across import across
from evaluator.reports.figures.groups import groups
from evaluator.reports.figures.languages import languages
from evaluator.reports.figures.overview import overview
from evaluator.reports.figures.pairs import pairs
from evaluator.reports.figures.ranks import ranks
from evaluator.reports.figures.scatters import scatters
from evaluator.reports.figures.sizes import sizes
from evaluator.reports.report import Report, Section

FIGURES: tuple[Callable[[Section], Iterator[Figure]], ...] = (overview, languages, sizes, groups, ranks, scatters, pairs)
"""What draws a section's figures, in the page's order; the first is the main one. Another figure is a function more."""


def section_figures(section: Section) -> list[Figure]:
    """The figures of one task."""
    return [figure for draw in FIGURES for figure in draw(section)]


def report_figures(report: Report) -> list[Figure]:
    """All figures of a report: of each task, then of tasks against each other."""
    return [*(figure for section in report.sections for figure in section_figures(section)), *across(report)]
