"""The report as one HTML file that needs nothing else: styles and plots are inside."""

from collections.abc import Callable, Iterator
from pathlib import Path

from evaluator.reports.blocks import blocks, by_model, facts
from evaluator.reports.plots import Plot, plots
from evaluator.reports.report import Report, Section
from evaluator_serving.errors import InputError

FIGURES: tuple[Callable[[Section], Iterator[Plot]], ...] = (plots,)
"""What draws a section's plots, in the page's order. Another figure is a function more."""


def render(report: Report) -> str:
    """The page. Raises InputError where Jinja2 isn't installed."""
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise InputError(
            "--format html needs Jinja2, which isn't installed: pip install 'stereotype-evaluator[report]'"
        ) from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(Path(__file__).with_name("report.html").read_text(encoding="utf8"))
    sections = [
        {
            "task": section.task,
            "warnings": section.warnings,
            "blocks": [part for block in blocks(section) for part in by_model(block)],
            "plots": [(plot.title, plot.caption, Markup(plot.svg)) for figure in FIGURES for plot in figure(section)],
        }
        for section in report.sections
    ]
    text: str = page.render(
        name=report.path.resolve().name,
        choices=report.choices,
        notes=report.notes,
        sections=sections,
        facts=facts(report),
        failures=report.failures.head(100).select("model", "request", "reason").rows(),
        failed=report.failures.height,
        wrong=[(task, *pair) for task, entry in report.record["tasks"].items() for pair in entry.get("failures", [])][:100],
        provenance=_provenance(report),
    )
    return text


def _provenance(report: Report) -> list[tuple[str, str]]:
    """Facts of the run's attempts as (name, value), the newest attempt first."""
    return [
        (key, " ".join(map(str, value)) if isinstance(value, list) else str(value))
        for attempt in reversed(report.record.get("attempts", []))
        for key, value in attempt.items()
    ]
