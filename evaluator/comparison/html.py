"""A comparison as one HTML file: see `evaluator.reports.page`."""

from collections.abc import Iterator

from evaluator.comparison import tables
from evaluator.comparison.build import Comparison
from evaluator.reports.page import Page, Part, check_libraries, render_page

SMALL = "A difference that is not significant may still exist: the table shows the minimum detectable effect."


def render(comparison: Comparison) -> str:
    """The page. Raises InputError where a library that it needs isn't installed."""
    check_libraries()
    others = comparison.models[1:]
    who = " and ".join(others) if 0 < len(others) < 3 else f"{len(others)} models"
    title = f"{who} compared with {comparison.baseline}"
    return render_page(Page(title, tables.choices(comparison), comparison.notes, tuple(_parts(comparison))))


def _parts(comparison: Comparison) -> Iterator[Part]:
    """One part per task; the first says how much was found in all of them."""
    from evaluator.comparison.figures import task_figures

    blocks = tables.tables(comparison)
    lead = (tables.verdict(comparison),) if comparison.rows.height else ()
    for task, layout in comparison.layouts.items():
        yield Part(
            task,
            lead=(*lead, *(f"{each.meaning}." for each in layout.overview[:1] if each.meaning)),
            cautions=(SMALL, *layout.cautions),
            figures=tuple(task_figures(comparison, task)),
            tables=tuple(block for block in blocks if block.title.startswith(f"{task}: ")),
            empty="Nothing to compare.",
        )
        lead = ()
