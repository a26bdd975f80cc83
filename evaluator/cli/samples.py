"""`evaluator samples`: the sentences behind a rate."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import click
import polars as pl

from evaluator.cli.options import RUN, LocalPath, beside_options, data_option, encoding_option
from evaluator.cli.output import write, write_lines
from evaluator.store.run import Run
from evaluator.vocabulary import MeasureOptions, Scale
from evaluator_serving.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from evaluator.comparison.samples import Rate
    from evaluator.vocabulary import Layout

WIDTH = 80


@click.command(name="samples")
@click.argument("run", type=RUN)
@click.option("--model", metavar="M", help="Whose rate (default: the run's only model).")
@click.option("--task", "name", metavar="T", help="Of which task (default: the run's only one).")
@click.option("--stereotype", "--group", "group", metavar="G", help="Of this stereotype or group (default: over all).")
@click.option("--measure", metavar="R", help="Which rate (default: the task's main one, g_s, or q of a stereotype).")
@click.option("--template", metavar="T", help="Only this template.")
@click.option("--against", metavar="M2", help="Instead: the sentences on which these two models differ most.")
@click.option(
    "--top", type=click.IntRange(min=1), default=20, show_default=True, help="Sentences at either end, of each template."
)
@click.option("--scale", type=click.Choice(get_args(Scale)), default="ratio", show_default=True, help="Units of the rate.")
@click.option("--samples", "file", type=LocalPath(path_type=Path, dir_okay=False), help="Your own sentences, if the task has.")
@encoding_option
@data_option
@click.option(
    "--format", "format_", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True, help="Of the list."
)
@beside_options
def command(
    run: Path,
    model: str | None,
    name: str | None,
    group: str | None,
    measure: str | None,
    template: str | None,
    against: str | None,
    top: int,
    scale: str,
    file: Path | None,
    encoding: str | None,
    data: Path | None,
    format_: str,
    published: bool,
    beside: tuple[Path, ...],
) -> None:
    """List the sentences that drive a model's rate up and down: both words' probabilities and how the rate moves without each.

    Each template has a list of its own. In csv and json `first` and `second` name the words whose probabilities are p_first and
    p_second. With --published or --beside each sentence says how many comparable references score it lower (columns
    `references`, `lower`), and --against takes a reference too.

    The sentences are read from the data set, which must be the one that the run was made of. They are stereotypes and can
    offend; their licences are those of the data sets.

    \b
    Examples:
      evaluator samples runs/gest --model gpt2 --stereotype 7
      evaluator samples runs/gest --model gpt2 --published
      evaluator samples runs/gest --model tuned --against base --top 50 --format csv > differences.csv
    """
    from evaluator.comparison.samples import among, by_template, differing, drivers, ends, main_rate
    from evaluator.reports.beside import reference_called, reference_scores, sources
    from evaluator.reports.report import check_scale
    from evaluator.reports.texts import sample_texts
    from evaluator.tasks.stored import task_of
    from evaluator.vocabulary import plain_layout

    opened = Run.open(run)
    task = task_of(opened, _only(name, opened.tasks, "task", opened.shown))
    options = MeasureOptions(scale=cast(Scale, scale), resamples=1, protocol=opened.protocol)
    check_scale(task, options.scale)
    mine = _of(_only(model, opened.models, "model", opened.shown), opened, task.name)
    layout = task.layout(options) or plain_layout(task.measure(mine, options))
    if group is not None and group not in set(mine["group"]):
        known = ", ".join(sorted(set(mine["group"].drop_nulls()), key=lambda g: (len(g), g)))
        raise InputError(f"{task.name} has no group {group!r}: it has {known}")
    rate = main_rate(layout, measure, group, template)
    references, notes = reference_scores(opened, task.name, mine, layout, sources(published, beside, [run]), options)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    texts = sample_texts(opened, task.name, data, file, encoding)
    if against is not None:
        reference = None if against in opened.models else reference_called(references, against)
        others = _of(against, opened, task.name) if reference is None else reference
        against = others["model"][0]
        rows = differing(task, mine, others, texts, rate)
    else:
        rows = drivers(task, mine, texts, rate, options)
        if published or beside:
            rows = among(rows, references)
    if rows.is_empty():
        raise InputError(f"{opened.shown}: there is no such sentence: choose another --template, --stereotype or model")
    both = [ends(part, top) for part in by_template(rows)]
    if format_ == "table":
        write_lines([line for first, last in both for line in _terminal(first, last, rate, layout, against)])
        return
    listed = pl.concat([end for ends_ in both for end in ends_])
    if against is None:
        listed = listed.with_columns(first=pl.lit(layout.poles[0] or None), second=pl.lit(layout.poles[1] or None))
    write(listed.write_csv() if format_ == "csv" else listed.write_json() + "\n")


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


def _of(model: str, run: Run, task: str) -> pl.DataFrame:
    from evaluator.tasks.stored import scores_of

    mine = scores_of(run, task, [_only(model, run.models, "model", run.shown)])
    if mine.is_empty():
        raise InputError(f"{model} has no scores of {task} yet: evaluator status {run.shown}")
    return mine


def _terminal(first: pl.DataFrame, last: pl.DataFrame, rate: "Rate", layout: "Layout", against: str | None) -> "Iterator[Text]":
    from rich.text import Text

    name = layout.shown(rate.measure) + (f" of {layout.named(rate.group)}" if rate.group else "")
    model, template = first["model"][0], first["template"][0]
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
    said = " · ".join(part for part in parts if part)
    yield from (Text(line, style="dim") for line in textwrap.wrap(said, WIDTH, subsequent_indent="    "))
    yield from (Text(line) for line in textwrap.wrap(row["text"] or "", WIDTH, initial_indent="    ", subsequent_indent="    "))


def _number(name: str, value: float | None) -> str:
    from evaluator.comparison.samples import short

    return "" if value is None else f"{name} {short(value)}"
