"""`evaluator report`: rates with confidence intervals, in six formats."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evaluator.cli.options import (
    FORMATS,
    RUN,
    LocalPath,
    beside_options,
    calls,
    data_option,
    figures_option,
    log_option,
    rates_options,
)
from evaluator.cli.output import json_text, write, write_lines
from evaluator.store.run import Run
from evaluator.vocabulary import MeasureOptions
from evaluator_serving.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluator.reports.page import Part
    from evaluator.reports.report import Report
    from evaluator.trackers import Tracker

MANY_MODELS = 6
"""After a run of more models than this only each task's first table is printed."""


@calls("evaluator.reports.function:report")
@click.command(name="report")
@click.argument("run", type=RUN)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="csv, json: tidy rows; latex: one table per task; latex-long: all tables.",
)
@rates_options
@click.option(
    "--models",
    type=LocalPath(path_type=Path, dir_okay=False),
    metavar="CSV",
    help="Facts of the models for figures: column model (names as in the run) and some of parameters (7e9 or 7B), family, "
    "tuned (yes, no), base (the model that it was tuned from), release, series and step (of checkpoints of one training).",
)
@figures_option
@click.option(
    "--samples",
    is_flag=True,
    help="html: include the sentences that drive each model's main rate, read from the data set. They can offend, and its "
    "licence may not allow redistribution.",
)
@beside_options
@click.option("--paths", is_flag=True, help="Show absolute paths of the machine that made the run (default: their last part).")
@log_option
@data_option
def command(
    run: Path,
    format_: str,
    tasks: tuple[str, ...],
    figures: Path | None,
    samples: bool,
    log_to: "Tracker | None",
    data: Path | None,
    **arguments: Any,
) -> None:
    """Turn a run's scores into rates with confidence intervals.

    csv and json are tidy rows with the columns model, task, language, template, measure, group, value, low, high, n, scale,
    interval (how low and high were made), pole (of a group), other (template or model of a correlated pair), protocol; notes
    and warnings then go to stderr. html is one file that needs no network, with figures that can be saved from there.

    \b
    Examples:
      evaluator report runs/gest
      evaluator report runs/gest --format csv --scale published --interval published
      evaluator report runs/gest --format html --models models.csv > report.html
      evaluator report runs/gest --figures figures
      evaluator report runs/gest --published --format html > report.html
    """
    if samples and format_ != "html":
        raise InputError(f"--samples belongs to --format html, not {format_}: evaluator samples {run} lists the sentences")
    opened = Run.open(run)
    if not opened.tasks and not arguments["settings"]:  # those are refused by name
        raise InputError(f"{opened.shown} holds no scores: score some models first")
    if figures is not None or format_ == "html":
        from evaluator.reports.page import check_libraries

        check_libraries("--figures" if figures is not None else "--format html")  # before minutes of computing
    from evaluator.reports.function import report as make_report

    texts = None
    if samples:
        from evaluator.comparison.sample_parts import sample_parts, sentences

        texts = sentences(opened, tasks or opened.tasks, data)  # data that aren't here are told before minutes of computing
    report = make_report(run, tasks, **arguments)
    if figures is not None:
        from evaluator.reports.export import write_figures
        from evaluator.reports.figures import report_figures

        written = write_figures(report_figures(report), figures)
        click.echo(f"figures: {len(written)} files in {figures}", err=True)
    emit(report, format_, sample_parts(opened, report, texts) if texts is not None else ())
    if log_to is not None:
        from evaluator.trackers import log_report

        log_report(log_to, opened, report)


def emit(report: "Report", format_: str, more: "Sequence[Part]" = ()) -> None:
    """Write a report to stdout, a page with `more` parts; with csv, json and latex its notes and warnings go to stderr."""
    from evaluator.reports import latex, markdown

    if format_ in ("csv", "json", "latex", "latex-long"):
        for note in report.notes:
            click.echo(f"note: {note}", err=True)
        for warning in report.warnings:
            click.echo(f"warning: {warning}", err=True)
    if format_ == "table":
        _table(report)
    elif format_ == "markdown":
        write(markdown.render(report))
    elif format_ in ("latex", "latex-long"):
        write(latex.render(report, long=format_ == "latex-long"))
    elif format_ == "csv":
        write(report.listed.write_csv())
    elif format_ == "json":
        write(json_text(report.listed))
    else:
        from evaluator.reports import html

        write(html.render(report, more))


def _table(report: "Report", *, brief: bool = False) -> None:
    from evaluator.reports import table

    write_lines(list(table.render(report, brief=brief)))


def show(path: Path) -> "Report":
    """Print the tables of a run with the default choices (of many models the first only); keep the rows in RUN/tables.

    Returns the report.
    """
    from evaluator.reports.report import build_report

    run = Run.open(path)
    report = build_report(run, MeasureOptions(protocol=run.protocol))
    _table(report, brief=len(run.models) > MANY_MODELS)
    for section in report.sections:
        run.write_table(section.task, section.rows)
    return report
