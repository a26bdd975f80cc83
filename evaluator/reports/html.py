"""The report as one HTML file that needs nothing else: figures, tables, and where the numbers come from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evaluator.reports.beside import section_blocks
from evaluator.reports.blocks import Block, TableRow, facts
from evaluator.reports.headline import headline
from evaluator.reports.page import Page, Part, check_libraries, render_page
from evaluator.reports.report import Report, Section

if TYPE_CHECKING:
    from evaluator.reports.figure import Figure

SHOWN = 100
"""Failures and wrong rows that are listed."""


def render(report: Report, more: Sequence[Part] = ()) -> str:
    """The page, with `more` parts before the last. Raises InputError where a library that it needs isn't installed."""
    check_libraries()
    from evaluator.reports.figures import section_figures
    from evaluator.reports.figures.across import across

    parts = [_part(section, tuple(section_figures(section))) for section in report.sections]
    between = tuple(across(report))
    if between:
        parts.append(Part("Tasks compared with each other", figures=between))
    parts += more
    parts.append(Part("Provenance", tables=(*facts(report), *_lists(report))))
    return render_page(Page(report.path.resolve().name, report.choices, report.noted.main, tuple(parts), report.noted.details))


def _part(section: Section, figures: "tuple[Figure, ...]") -> Part:
    return Part(
        section.task,
        section.about,
        headline(section),
        section.layout.cautions,
        section.warnings,
        figures,
        tuple(section_blocks(section)),
    )


def _lists(report: Report) -> list[Block]:
    """Failures, wrong rows of the data, and the run's attempts, the newest first."""
    failures = [
        TableRow(model, (request, reason))
        for model, request, reason in report.failures.select("model", "request", "reason").rows()
    ]
    wrong = [
        TableRow(task, (str(row), reason))
        for task, entry in report.record["tasks"].items()
        for row, reason in entry.get("failures", [])
    ]
    attempts = [
        TableRow(key, (" ".join(map(str, value)) if isinstance(value, list) else str(value),))
        for attempt in reversed(report.record.get("attempts", []))
        for key, value in attempt.items()
    ]
    return [
        _cut(Block("failures", ("model", "request", "reason"), tuple(failures))),
        _cut(Block("invalid data rows, skipped", ("task", "row", "reason"), tuple(wrong))),
        Block("run", ("fact", "value"), tuple(attempts)),
    ]


def _cut(block: Block) -> Block:
    """A list of which only the first are shown, with a note that says so."""
    if len(block.rows) <= SHOWN:
        return block
    title = f"{len(block.rows):,} {block.title}"
    return Block(title, block.columns, block.rows[:SHOWN], (f"The first {SHOWN} are shown; the run folder has all of them.",))
