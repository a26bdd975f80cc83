"""`evaluator run`: score models on tasks."""

import shlex
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, get_args

import click
import polars as pl

from evaluator import logs
from evaluator.cli.options import (
    RUN,
    ParametersCommand,
    asking_options,
    calls,
    data_option,
    engine_options,
    leaving_out_options,
    log_option,
    no_verify_option,
    watching_options,
)
from evaluator.cli.output import tell
from evaluator.reports.notes import given_notes, unasked_notes
from evaluator.store.run import Run
from evaluator.vocabulary import Protocol_

if TYPE_CHECKING:
    from evaluator.scoring.driver import Outcome
    from evaluator.trackers import Tracker

SHOWN_FAILURES = 5
"""Failures that are named when a run ends; `evaluator status` names the others."""


def interrupt(signum: int, frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C: all finished work is stored, the exit is clean."""
    raise KeyboardInterrupt


def of_reports(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
    """Callback of --set, which is looked for here too: say where it belongs."""
    if value:
        where = f"evaluator report RUN --set {value[0]}"
        raise click.UsageError(f"report settings are options of `evaluator report`, not of `evaluator run`: {where}", context)


@calls("evaluator.scoring.run:run")
@click.command(name="run", cls=ParametersCommand)
@click.argument("tasks", nargs=-1, required=True, metavar="TASK…")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[NAME=]MODEL",
    help="Hub id, id@revision, folder, LoRA adapter or GGUF, or URL#NAME of one behind an API; [NAME=] is its name in the "
    "results; repeatable.",
)
@click.option(
    "--allow-pickle",
    multiple=True,
    metavar="MODEL",
    help="Allow pickled weights (.bin), which can execute code, for this --model; repeatable.",
)
@click.option(
    "--trust-remote-code",
    multiple=True,
    metavar="MODEL",
    help="Run code from this --model's repository with your permissions; repeatable.",
)
@engine_options
@click.option(
    "--protocol",
    type=click.Choice(get_args(Protocol_)),
    default="default",
    show_default=True,
    help="Rules for making requests: default, or exactly as in the papers' released code (published-2025: EuroGEST's "
    "first version).",
)
@click.option("--limit", type=click.IntRange(min=1), help="Score only N samples of each task, spread over its groups.")
@data_option
@asking_options
@click.option("--out", type=RUN, help="The run's folder or URL (s3://, gs://, az://; default: runs/TASK…-MODEL…).")
@click.option("--set", multiple=True, hidden=True, expose_value=False, callback=of_reports)
@no_verify_option
@leaving_out_options
@watching_options
@log_option
def command(log_to: "Tracker | None", **arguments: Any) -> None:
    """Score models on tasks, then print the table.

    Running the same command again finishes an interrupted run; adding models or tasks extends it.

    \b
    Examples:
      evaluator run gest-demo --model HuggingFaceTB/SmolLM2-135M-Instruct
      evaluator run gest --model bert-base-uncased --model gpt2 --data DATA --out runs/gest
      evaluator run gest --model early=run1/checkpoint --model late=run2/checkpoint
      evaluator run gest --samples my.csv --templates my.toml --model ./my-model
      evaluator run eurogest --language cs --language de --model utter-project/EuroLLM-1.7B
      evaluator run gest --model Qwen/Qwen3-0.6B --system none --system fair='Treat all people alike.' --out runs/fair
      evaluator run gest-who --model http://127.0.0.1:8000/v1#my-model --out runs/who
      evaluator run gest-mt --translations DATA/gest/translations --data DATA --out runs/mt
    """
    from evaluator.scoring.run import ModelFailedWarning, run

    signal.signal(signal.SIGTERM, interrupt)
    warnings.simplefilter("ignore", ModelFailedWarning)  # they are told in the end, with what to do
    scored = run(**arguments, command=("evaluator", *sys.argv[1:]))
    finish(scored.outcome, scored.models_asked, log_to)


def finish(outcome: "Outcome", models: Sequence[str] = (), log_to: "Tracker | None" = None) -> None:
    """Print the run's tables, and send them to a tracker if one is named; exit 1 if a model, or a request worth trying again,
    failed (2 if nothing but wrong input came of all models).

    What was left out for good is told and no failure of the command. Only what this command asked or was given counts: a run
    may hold others of earlier commands. The causes come last.
    """
    from evaluator.cli.report import show

    run, errors = outcome.run, outcome.errors
    report = show(run.path)
    if log_to is not None:
        from evaluator.trackers import log_report

        log_report(log_to, run, report)
    failures = run.failures()
    names = [*models, *outcome.given]
    failures = failures.filter(pl.col("model").is_in(names))
    for line in left_out(run, failures, names):
        logs.say(f"evaluator: {line}", "warning")
    failures = failures.filter((pl.col("request") == "") | (pl.col("kind") == "retryable"))
    if not errors and failures.is_empty():
        return
    failures = failures.filter((pl.col("request") != "") | ~pl.col("model").is_in(list(errors)))  # those are told below
    worth_it = not errors.only_input or "retryable" in failures["kind"]
    retry = f"; to try again: {shlex.join(['evaluator', *sys.argv[1:]])}" if worth_it else ""
    logs.say(f"evaluator: everything else is kept{retry}", "error")
    if failures.height:
        for row in failures.head(SHOWN_FAILURES).iter_rows(named=True):
            logs.say(f"evaluator: {row['model']}: {row['reason']}", "error")
        more = failures.height - SHOWN_FAILURES
        if more > 0:
            logs.say(f"evaluator: and {more} more: evaluator status {run.shown}", "error")
    tell(errors)
    nothing_done = errors and len(errors) == len(models) and errors.only_input
    raise click.exceptions.Exit(2 if nothing_done else 1)


def left_out(run: Run, failures: pl.DataFrame, models: Sequence[str]) -> Iterator[str]:
    """Lines on what these models weren't asked: tasks that can't ask them, samples that can't be asked, requests given up."""
    entries = run.record["models"]
    for name in models:
        entry = entries.get(name, {})
        yield from (note.removesuffix(".") for note in (*unasked_notes(name, entry), *given_notes(name, entry)))
    failed = failures.filter(pl.col("request") != "")
    descriptions = {
        "unaskable": "cannot be scored and are skipped",
        "poisonous": "failed at every attempt (--retry sends them again)",
    }
    for kind, what in descriptions.items():
        counts = failed.filter(kind=kind).group_by("model", maintain_order=True).len()
        if counts.height:
            numbers = ", ".join(f"{count:,} of {name}" for name, count in counts.head(SHOWN_FAILURES).iter_rows())
            more = " and more" if counts.height > SHOWN_FAILURES else ""
            yield f"requests that {what}: {numbers}{more}: evaluator status {run.shown}"
