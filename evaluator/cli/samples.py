"""`evaluator samples`: the sentences behind a rate."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import polars as pl

from evaluator.cli.options import RUN, LocalPath, beside_options, calls, data_option, encoding_option
from evaluator.cli.output import write, write_lines
from evaluator.vocabulary import Scale

if TYPE_CHECKING:
    from rich.text import Text

    from evaluator.comparison.sample_list import SampleList
    from evaluator.vocabulary import Layout

WIDTH = 80


@calls("evaluator.comparison.sample_list:list_samples")
@click.command(name="samples")
@click.argument("run", type=RUN)
@click.option("--model", metavar="M", help="Model (default: the run's only one).")
@click.option("--task", metavar="T", help="Task (default: the run's only one).")
@click.option("--stereotype", "--group", "group", metavar="G", help="Stereotype or group (default: over all).")
@click.option("--measure", metavar="R", help="Measure (default: the task's main one, g_s, or q of a stereotype).")
@click.option("--template", metavar="T", help="Only this template.")
@click.option("--against", metavar="M2", help="List the sentences on which these two models differ most instead.")
@click.option(
    "--top", type=click.IntRange(min=1), default=20, show_default=True, help="Number of sentences at either end, per template."
)
@click.option("--scale", type=click.Choice(get_args(Scale)), default="ratio", show_default=True, help="Units of the rate.")
@click.option("--samples", type=LocalPath(path_type=Path, dir_okay=False), help="File of custom samples, if the task uses one.")
@encoding_option
@data_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@beside_options
def command(format_: str, **arguments: Any) -> None:
    """List the sentences that drive a model's rate up and down: both words' probabilities and how the rate moves without each.

    Each template has a separate list. In csv and json `first` and `second` name the words whose probabilities are p_first and
    p_second. With --published or --beside each sentence says how many comparable references score it lower (columns
    `references`, `lower`), and --against takes a reference too.

    The sentences are read from the data set, which must be the one that the run scored. They are stereotypes and can
    offend; their licences are those of the data sets.

    \b
    Examples:
      evaluator samples runs/gest --model gpt2 --stereotype 7
      evaluator samples runs/gest --model gpt2 --published
      evaluator samples runs/gest --model tuned --against base --top 50 --format csv > differences.csv
    """
    from evaluator.comparison.sample_list import list_samples

    found = list_samples(**arguments, report=lambda note: click.echo(f"note: {note}", err=True))
    if format_ == "table":
        write_lines([line for first, last in found.ends for line in _terminal(first, last, found)])
    else:
        write(found.rows.write_csv() if format_ == "csv" else found.rows.write_json() + "\n")


def _terminal(first: pl.DataFrame, last: pl.DataFrame, found: "SampleList") -> "Iterator[Text]":
    from rich.text import Text

    rate, layout, against = found.rate, found.layout, found.against
    name = layout.shown(rate.measure) + (f" of {layout.named(rate.group)}" if rate.group else "")
    shown = first if first.height else last
    model, template = shown["model"][0], shown["template"][0]
    under = f" under {template}" if template else ""
    if against is None:
        titles = (f"{model}: these drive {name} up most{under}", f"{model}: these drive {name} down most{under}")
    else:
        than = f"scores of {model} than of {against}{under}"
        titles = (f"higher {than}", f"lower {than}")
    for title, rows in zip(titles, (first, last), strict=True):
        if rows.height:
            yield from (Text(line, style="bold") for line in textwrap.wrap(title, WIDTH, subsequent_indent="    "))
            for row in rows.iter_rows(named=True):
                yield from _lines(row, layout)
            yield Text()


def _lines(row: dict[str, Any], layout: "Layout") -> "Iterator[Text]":
    """The numbers of a sample, then its text."""
    from rich.text import Text

    from evaluator.comparison.samples import short

    place = " ".join(part for part in (row["language"], row["template"]) if part)
    group = layout.named(row["sample_group"]) if row["sample_group"] else ""
    parts = [f"#{row['sample']}", place, group, _number("score", row["score"])]
    if "difference" in row:
        parts += [_number("other", row["other_score"]), _number("difference", row["difference"])]
    else:
        if row["p_first"] is not None:
            first, second = layout.poles
            parts += [f"P {first} {short(row['p_first'])}, {second} {short(row['p_second'])}"]
        if row.get("references"):
            parts += [f"score higher than {row['lower']} of {row['references']} references"]
        parts += [_number("mass", row["mass"]), f"rate {short(row['rate'])}, without it {short(row['without'])}"]
    details = " · ".join(part for part in parts if part)
    yield from (Text(line, style="dim") for line in textwrap.wrap(details, WIDTH, subsequent_indent="    "))
    yield from (Text(line) for line in textwrap.wrap(row["text"] or "", WIDTH, initial_indent="    ", subsequent_indent="    "))


def _number(name: str, value: float | None) -> str:
    from evaluator.comparison.samples import short

    return "" if value is None else f"{name} {short(value)}"
