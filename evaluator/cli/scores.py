"""`evaluator scores`: the per-sample scores of a run as tidy rows."""

import io
from pathlib import Path

import click
import polars as pl

from evaluator.cli.options import RUN, LocalPath, data_option, encoding_option
from evaluator.cli.output import write, write_bytes
from evaluator.store.run import Run
from evaluator.tasks.stored import CANDIDATES, candidates_of, scores_of, with_ids
from evaluator.vocabulary import SCORES
from evaluator_serving.errors import InputError


@click.command(name="scores")
@click.argument("run", type=RUN)
@click.option("--format", "format_", type=click.Choice(["csv", "json", "parquet"]), default="csv", show_default=True)
@click.option(
    "--candidates", is_flag=True, help="What scores are made of instead: a row a candidate, with role, tokens and value."
)
@click.option("--task", "tasks", multiple=True, metavar="T", help="Only this task; may be repeated.")
@click.option("--text", is_flag=True, help="Also each sample's sentence and its group's name (columns text, group_name).")
@click.option("--samples", type=LocalPath(path_type=Path, dir_okay=False), help="With --text: the file of your own sentences.")
@encoding_option
@data_option
def command(
    run: Path,
    format_: str,
    candidates: bool,
    tasks: tuple[str, ...],
    text: bool,
    samples: Path | None,
    encoding: str | None,
    data: Path | None,
) -> None:
    """Print a run's per-sample scores: model, task, language, template, sample, group, score (natural log), id.

    `id` is the sample's row (from 0) or id in its data set; `sample` numbers the samples of the task.

    With --candidates, in place of the score: candidate (its number in the request), role (stereotype, anti-stereotype,
    unrelated, male, female, more, less, …), prefix (ids of tokens that are computed with it and not scored), tokens (its scored
    tokens), logprob (their sum, natural log) and value, which the task compares: a score is a difference of two values.

    The sentences of --text are read from the data set, which must be the one that the run was made of. They can offend.

    \b
    Examples:
      evaluator scores runs/gest > scores.csv
      evaluator scores runs/gest --text --data DATA > sentences.csv
      evaluator scores runs/gest --candidates --format parquet > words.parquet
    """
    opened = Run.open(run)
    unknown = set(tasks) - set(opened.tasks)
    if unknown:
        raise InputError(f"{opened.shown} has no task {', '.join(sorted(unknown))}: it has {', '.join(opened.tasks) or 'none'}")
    if samples is not None and not text:
        raise InputError("--samples goes with --text: leave it out")
    frame = _collect(opened, tasks or tuple(opened.tasks), candidates)
    if text:
        frame = _with_texts(opened, frame, data, samples, encoding)
    if format_ == "parquet":
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        write_bytes(buffer.getvalue())
    elif format_ == "json":
        write(frame.write_json() + "\n")
    else:
        lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
        write(frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" ")).write_csv())


def _collect(run: Run, tasks: tuple[str, ...], candidates: bool) -> pl.DataFrame:
    """The tasks' rows below each other, with exactly the documented columns; empty where nothing is scored yet."""
    schema = CANDIDATES if candidates else {**SCORES, "id": pl.String()}
    frames = [candidates_of(run, task) if candidates else with_ids(run, task, scores_of(run, task)) for task in tasks]
    cast = [frame.select(pl.col(c).cast(t) for c, t in schema.items()) for frame in frames if frame.width]
    return pl.concat([pl.DataFrame(schema=schema), *cast])


def _with_texts(run: Run, frame: pl.DataFrame, data: Path | None, samples: Path | None, encoding: str | None) -> pl.DataFrame:
    """The rows with `text`, the sample's sentence, and `group_name`, null where groups have no names."""
    from evaluator.reports.texts import group_names, sample_texts

    parts = [frame.clear().with_columns(text=pl.lit(None, pl.String), group_name=pl.lit(None, pl.String))]
    for (task,), rows in frame.group_by("task", maintain_order=True):
        names = group_names(run, str(task))
        named = pl.col("group").replace_strict(names, default=None, return_dtype=pl.String).alias("group_name")
        texts = sample_texts(run, str(task), data, samples, encoding)
        parts.append(rows.join(texts, on="sample", how="left", maintain_order="left").with_columns(named))
    return pl.concat(parts)
