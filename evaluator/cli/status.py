"""`evaluator status`: how far a run has come, from any shell."""

import json
import time
from pathlib import Path
from typing import Any

import click
import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluator import logs
from evaluator.cli.options import RUN, calls, duration
from evaluator.cli.output import clock
from evaluator.reports.notes import run_notes
from evaluator.reports.short_names import legend, shortened
from evaluator.reports.starts import start_lines
from evaluator.scoring.heartbeat import Heartbeat
from evaluator.scoring.status import driver_signs, model_rows, progress_of, status
from evaluator.store.run import Run

WORDS = {
    "retryable": "failed (the same command retries it)",
    "poisonous": "failed at every attempt (--retry sends it again)",
    "unaskable": "cannot be scored",
}
"""What each kind of a request's failure is called."""
OTHERS, NARROWEST = 60, 16
"""Columns that a line needs besides the model's name, and the fewest for that."""
ORDER = {kind: place for place, kind in enumerate(WORDS)}
"""What can be mended comes first."""
SETTLED = {"done", "failed", "imported"}
"""States of a model of which nothing more is to come."""


def driver_line(found: Heartbeat, now: float) -> str:
    """One line on the driver and on how long nothing has been finished."""
    where = f" on {found.driver.host} (process {found.driver.process})" if found.driver else ""
    quiet = found.quiet(now)
    beat = "" if found.beat is None else f" for {clock(max(0.0, now - found.beat))}"
    text = {
        "running": f"running{where}",
        "stopped": f"suspended{where}: kill -CONT resumes it",
        "silent": f"no heartbeat{beat}{where}: dead, suspended or disconnected",
        "ended": "not running",
    }[found.state]
    return f"driver: {text}" + (f"; last progress {clock(quiet)} ago" if quiet is not None else "")


def refuse_stuck(rows: list[dict[str, Any]], found: Heartbeat, limit: float, now: float) -> None:
    """Exit with code 1 where something is left to do and nothing has got on for `limit` seconds."""
    quiet = found.quiet(now)
    left = [row["name"] for row in rows if row["state"] not in SETTLED]
    if left and (quiet is None or quiet >= limit):
        age = "no progress yet" if quiet is None else f"no progress for {clock(quiet)}"
        logs.say(
            f"evaluator: stuck: {age}, {len(left)} of {len(rows)} models are unfinished; {driver_line(found, now)}", "error"
        )
        raise click.exceptions.Exit(1)


@calls("evaluator.scoring.status:status")
@click.command(name="status")
@click.argument("run", type=RUN)
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--fail-if-stuck",
    "stuck",
    metavar="TIME",
    callback=duration,
    help="Exit with code 1 if a model is unfinished and made no progress for this long (90s, 10m, 2h); for alerts.",
)
def command(run: Path, format_: str, stuck: float | None) -> None:
    """Show each model's progress, speed, time left and start-up time.

    \b
    Examples:
      evaluator status runs/gest
      evaluator status runs/gest --fail-if-stuck 10m
    """
    opened, now = Run.open(run), time.time()
    if format_ == "json":
        click.echo(json.dumps(status(run), ensure_ascii=False))
    rows, found = model_rows(opened), driver_signs(opened)
    if format_ != "json":
        show(opened, rows, found, now)
    if stuck is not None:
        refuse_stuck(rows, found, stuck, now)


def show(opened: Run, rows: list[dict[str, Any]], found: Heartbeat, now: float) -> None:
    """Print all of it."""
    failures = opened.failures()
    notes = run_notes(opened.record)
    console = Console()
    title = f"{opened.shown}: {', '.join(opened.tasks)} ({opened.protocol} protocol)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    names = shortened([row["name"] for row in rows], max(NARROWEST, console.width - OTHERS))
    table.add_column("model", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for column in ("done", "of", "failed", "left out", "per s", "left"):
        table.add_column(column, justify="right")
    for r in rows:
        left = clock(r["left"]) if r["left"] is not None else ""
        rate = f"{r['rate']:.1f}" if r["rate"] else ""
        missing = [str(r[kind] or "") for kind in ("failed", "unaskable")]
        table.add_row(escape(names[r["name"]]), r["state"], str(r["done"]), str(r["total"]), *missing, rate, left)
    console.print(table)
    for line in legend(names):
        console.print(line, markup=False, highlight=False)
    console.print(driver_line(found, now), markup=False, highlight=False)
    if (waiting := progress_of(opened).get("waiting")) and found.state == "running":
        console.print(f"waiting: {waiting}", markup=False, highlight=False)
    for line in start_lines(opened.record, float(opened.timings()["seconds"].sum())):
        console.print(line, markup=False, highlight=False)
    for note in notes:
        console.print(note, markup=False, highlight=False)
    for row in (
        failures.sort(pl.col("kind").replace_strict(ORDER, default=0), maintain_order=True).head(20).iter_rows(named=True)
    ):
        what = WORDS[row["kind"]] if row["request"] else "failed"
        console.print(f"{what}: {row['model']} {row['request']}: {row['reason']}", markup=False, highlight=False)
