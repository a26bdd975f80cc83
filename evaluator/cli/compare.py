"""`evaluator compare`: how much models differ on the same samples, and checks of model releases."""

import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from evaluator.cli.options import FORMATS, RUN, beside_options, calls, figures_option
from evaluator.cli.output import json_text, write, write_lines
from evaluator.vocabulary import Interval, Scale

if TYPE_CHECKING:
    from rich.text import Text

    from evaluator.comparison.build import Comparison

FAILED = 3
"""Exit code where a check fails."""
WIDTH = 80
EVERY = 10
"""Seconds between two lines of progress."""


@calls("evaluator.comparison.function:comparison")
@click.command(name="compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", type=RUN)
@click.option("--model", "models", multiple=True, metavar="M", help="Only this model; repeatable (default: all of the runs).")
@click.option("--baseline", metavar="M", help="Model that the others are compared with (default: the first).")
@click.option("--task", "tasks", multiple=True, metavar="T", help="Only this task; may be repeated.")
@click.option("--fail-if", "checks", multiple=True, metavar="EXPR", help="Exit with code 3 if this holds; may be repeated.")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["protocol", "templates", "dtype"]),
    help="Compare models although they differ in this; may be repeated.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="csv, json: one row per difference; latex: one table per task; latex-long: all tables; html: one file with figures.",
)
@click.option("--scale", type=click.Choice(get_args(Scale)), default="ratio", show_default=True, help="Units of the rates.")
@click.option(
    "--interval",
    type=click.Choice(get_args(Interval)),
    default="percentile",
    show_default=True,
    help="Kind of bootstrap for the differences' 95% intervals; published: normal fit.",
)
@click.option("--resamples", type=click.IntRange(min=1), default=1000, show_default=True, help="Bootstrap resamples.")
@click.option(
    "--permutations", type=click.IntRange(min=1), default=10_000, show_default=True, help="Permutations of the paired test."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of resamples and permutations.")
@figures_option
@beside_options
def command(format_: str, figures: Path | None, **arguments: Any) -> None:
    """Compare models, of one run or of several, with a baseline on the samples that both were scored on.

    Differences of every measure with bootstrap intervals, a paired permutation test, Holm's correction over templates,
    groups and models, and the minimum detectable effects at 80% power. Runs of other data, protocols, templates or dtypes
    are refused. A model in two runs is named RUN:MODEL.

    EXPR compares a rate with a number: a measure or one of its groups (g_s, q[7], SS[gender]), its interval's bounds
    (low(g_s)), the difference from the baseline (delta(g_s), low(delta(g_s)), abs(delta(g_s))), or the Holm-adjusted p
    (p(g_s)).
    If a measure has a row over all templates, that row is checked, else each template's. Exit code 3: an expression holds for a
    model other than the baseline.

    \b
    Examples:
      evaluator compare runs/base runs/tuned --format html > comparison.html
      evaluator compare runs/all --baseline base --fail-if 'g_s > 1.3' --fail-if 'low(delta(g_s)) > 0.05'
      evaluator compare runs/float32 runs/bfloat16 --allow dtype --format csv > rounding.csv
    """
    from evaluator.comparison.function import comparison as compare

    if figures is not None or format_ == "html":
        from evaluator.reports.page import check_libraries

        check_libraries("--figures" if figures is not None else "--format html")
    comparison = compare(**arguments, progress=ProgressLine())
    if figures is not None:
        from evaluator.comparison.figures import comparison_figures
        from evaluator.reports.export import write_figures

        written = write_figures(list(comparison_figures(comparison)), figures)
        click.echo(f"figures: {len(written)} files in {figures}", err=True)
    _show(comparison, format_)
    failing = comparison.failing()
    for crossed in failing:
        click.echo(f"evaluator: failed: {crossed}", err=True)
    if failing:
        raise click.exceptions.Exit(FAILED)


class ProgressLine:
    """A line on stderr every EVERY seconds."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """So many of the pairs are compared."""
        if (now := time.monotonic()) - self._said >= EVERY:
            self._said = now
            click.echo(f"compared {done} of {total} pairs", err=True)


def _show(comparison: "Comparison", format_: str) -> None:
    """Write the comparison to stdout; with csv, json and latex its notes go to stderr."""
    from evaluator.comparison import tables
    from evaluator.reports import latex, markdown

    if format_ in ("csv", "json", "latex", "latex-long"):
        for note in comparison.notes:
            click.echo(f"note: {note}", err=True)
    if format_ == "csv":
        write(comparison.rows.write_csv())
    elif format_ == "json":
        write(json_text(comparison.rows))
    elif format_ == "markdown":
        above = [f"- {markdown.escape(line)}" for line in tables.lines(comparison)]
        made: list[str] = []
        for block in tables.tables(comparison):
            made += [f"## {markdown.escape(block.title)}", "", *markdown.table(block)]
        write("\n".join(["# Comparison", "", *above, "", *made]).rstrip() + "\n")
    elif format_ in ("latex", "latex-long"):
        long = format_ == "latex-long"
        above = [latex.PREAMBLE_LONG if long else latex.PREAMBLE, *(f"% {line}" for line in tables.lines(comparison))]
        symbols = {*comparison.rows["measure"], "p"}
        if long:
            above += latex.long_tables("differences", tables.tables(comparison), symbols)
        else:
            above += [line for table in tables.paper(comparison) for line in ("", *latex.paper(table))]
        write("\n".join(above) + "\n")
    elif format_ == "html":
        from evaluator.comparison import html

        write(html.render(comparison))
    else:
        write_lines(list(_terminal(comparison)))


def _terminal(comparison: "Comparison") -> "Iterator[Text]":
    from rich.text import Text

    from evaluator.comparison import tables
    from evaluator.reports.table import block_lines

    for line in tables.lines(comparison):
        yield from (Text(part, style="bold") for part in textwrap.wrap(line, WIDTH, subsequent_indent="  "))
    yield Text()
    for block in tables.tables(comparison, brief=True):
        yield from block_lines(block, WIDTH)
