"""`evaluator scores`: the per-sample scores of a run as tidy rows."""

import io
from pathlib import Path
from typing import Any

import click
import polars as pl

from evaluator.cli.options import RUN, LocalPath, calls, data_option, encoding_option
from evaluator.cli.output import write, write_bytes
from evaluator.reports.sample_scores import sample_scores


@calls("evaluator.reports.sample_scores:sample_scores")
@click.command(name="scores")
@click.argument("run", type=RUN)
@click.option("--format", "format_", type=click.Choice(["csv", "json", "parquet"]), default="csv", show_default=True)
@click.option("--candidates", is_flag=True, help="Print the candidates instead, one per row, with role, tokens and value.")
@click.option("--task", "tasks", multiple=True, metavar="T", help="Only this task; may be repeated.")
@click.option("--text", is_flag=True, help="Add each sample's sentence and its group's name (columns text, group_name).")
@click.option("--samples", type=LocalPath(path_type=Path, dir_okay=False), help="With --text: the file of custom samples.")
@encoding_option
@data_option
def command(format_: str, **arguments: Any) -> None:
    """Print a run's per-sample scores: model, task, language, template, sample, group, score (natural log), id.

    `id` is the sample's row (from 0) or id in its data set; `sample` numbers the samples of the task.

    With --candidates, in place of the score: candidate (its number in the request), role (stereotype, anti-stereotype,
    unrelated, male, female, more, less, …), prefix (ids of tokens that are computed with it and not scored), tokens (its scored
    tokens), logprob (their sum, natural log) and value, which the task compares: a score is a difference of two values.

    The sentences of --text are read from the data set, which must be the one that the run scored. They can offend.

    \b
    Examples:
      evaluator scores runs/gest > scores.csv
      evaluator scores runs/gest --text --data DATA > sentences.csv
      evaluator scores runs/gest --candidates --format parquet > words.parquet
    """
    frame = sample_scores(**arguments)
    if format_ == "parquet":
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        write_bytes(buffer.getvalue())
    elif format_ == "json":
        write(frame.write_json() + "\n")
    else:
        lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
        write(frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" ")).write_csv())
