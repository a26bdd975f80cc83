"""`evaluator status`: how far a run has come, from any shell."""

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluator import logs
from evaluator.cli.options import RUN, duration
from evaluator.cli.output import clock
from evaluator.reports.notes import run_notes
from evaluator.reports.short_names import legend, shortened
from evaluator.reports.starts import Starts, start_lines, starts_of
from evaluator.scoring.heartbeat import Heartbeat, read_heartbeat
from evaluator.store.files import read_json
from evaluator.store.run import Run
from evaluator_serving.errors import InputError

WORDS = {
    "retryable": "failed, the same command tries again",
    "poisonous": "failed whenever it was tried, given up (--retry asks again)",
    "unaskable": "can't be asked",
}
"""What each kind of a request's failure is called."""
OTHERS, NARROWEST = 60, 16
"""Columns that a line needs besides the model's name, and the fewest for that."""
ORDER = {kind: place for place, kind in enumerate(WORDS)}
"""What can be mended comes first."""
SETTLED = {"done", "failed", "imported"}
"""States of a model of which nothing more is to come."""


def model_rows(run: Run) -> list[dict[str, Any]]:
    """One record a model: name, state, done, total, failed, unaskable, rate (requests a second), left (seconds or None).

    All but the last two count requests; those that can't be asked are in neither `total` nor `failed`.

    A state of `running` or `loading` is only believed while the driver gives signs of life, else it is the driver's: `stopped`
    or `silent` (see `evaluator.scoring.heartbeat`). progress.json knows the last command's models, and of those what that
    command asked; all that was ever asked is read from what is stored.
    """
    shown = _models_shown(run)
    driver = driver_signs(run).state
    alive = driver != "ended"
    failures = run.failures()
    rows = []
    for name, entry in run.record["models"].items():
        if entry.get("imported"):
            none = {"done": 0, "total": 0, "failed": 0, "unaskable": 0}
            rows.append({"name": name, "state": "imported", **none, "rate": 0.0, "left": None})
            continue
        mine = failures.filter(model=name)
        unaskable = (pl.col("kind") == "unaskable") & (pl.col("request") != "")
        refused, failed = mine.filter(unaskable), mine.filter(~unaskable)
        known = shown.get(name, {"state": "waiting", "total": 0, "done": 0, "failed": 0, "rate": 0.0})
        requests, answered = _requests(run, name) - set(refused["request"]), run.done(name)
        total = len(requests) or known["total"]
        done = len(answered & requests) if requests else len(answered)
        state = known["state"]
        if state in ("running", "loading", "waiting") and not (alive and (name in shown or not shown)):
            ended = done + failed.filter(pl.col("request") != "").height
            whole = "failed" if "" in failed["request"] else "interrupted"
            state = "done" if total and ended >= total else whole
        left = (
            (known["total"] - known["done"] - known["failed"]) / known["rate"] if state == "running" and known["rate"] else None
        )
        if state == "done" and done + failed.height < total:
            state = "incomplete"  # answers have gone, or an earlier command was cut off: given again it scores them
        if state in ("running", "loading", "waiting") and driver in ("stopped", "silent"):
            state = driver
        rows.append(
            {
                "name": name,
                "state": state,
                "done": done,
                "total": max(total, done),
                "failed": failed.height,
                "unaskable": refused.height,
                "rate": known["rate"],
                "left": left,
            }
        )
    return rows


def _requests(run: Run, model: str) -> set[str]:
    """All that is asked of a model; nothing where the run's tables are damaged."""
    with contextlib.suppress(InputError):
        return run.requests(model)
    return set()


def _shown(run: Run) -> dict[str, Any]:
    """progress.json; empty where it is missing or damaged, as it is a help only."""
    with contextlib.suppress(OSError, ValueError):
        shown = read_json(run.path / "progress.json")
        return shown if isinstance(shown, dict) else {}
    return {}


def _models_shown(run: Run) -> dict[str, dict[str, Any]]:
    with contextlib.suppress(KeyError, TypeError):
        models = [{"done": 0, "failed": 0, **model} for model in _shown(run)["models"]]
        return {model["name"]: model for model in models if _is_progress(model)}
    return {}


def _is_progress(model: dict[str, Any]) -> bool:
    numbers = all(isinstance(model.get(name), int | float) for name in ("total", "done", "failed", "rate"))
    return numbers and isinstance(model.get("name"), str) and isinstance(model.get("state"), str)


def driver_signs(run: Run) -> Heartbeat:
    """Whether the driver is at work, and when it last got on; of a run of an older version, when the last chunk was stored."""
    found = read_heartbeat(_shown(run), held=run.busy)
    if found.progressed is None:
        last = run.timings()["finished"].max()
        found = replace(found, progressed=last if isinstance(last, float) else None)
    return found


def driver_line(found: Heartbeat, now: float) -> str:
    """One line on the driver and on how long nothing has been finished."""
    where = f" on {found.driver.host} (process {found.driver.process})" if found.driver else ""
    quiet = found.quiet(now)
    beat = "" if found.beat is None else f" for {clock(max(0.0, now - found.beat))}"
    said = {
        "running": f"at work{where}",
        "stopped": f"suspended{where}: kill -CONT lets it go on",
        "silent": f"no sign of life{beat}{where}: dead, suspended or cut off",
        "ended": "not running",
    }[found.state]
    return f"driver: {said}" + (f"; last progress {clock(quiet)} ago" if quiet is not None else "")


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


@click.command(name="status")
@click.argument("run", type=RUN)
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--fail-if-stuck",
    "stuck",
    metavar="TIME",
    callback=duration,
    help="Exit code 1 where a model is unfinished and nothing has got on for this long (90s, 10m, 2h): for an alert.",
)
def command(run: Path, format_: str, stuck: float | None) -> None:
    """Say how far a run has come: per model what is done, its rate and the time left, and what its start took.

    \b
    Examples:
      evaluator status runs/gest
      evaluator status runs/gest --fail-if-stuck 10m
    """
    opened, now = Run.open(run), time.time()
    rows, found = model_rows(opened), driver_signs(opened)
    show(opened, rows, found, format_, now)
    if stuck is not None:
        refuse_stuck(rows, found, stuck, now)


def show(opened: Run, rows: list[dict[str, Any]], found: Heartbeat, format_: str, now: float) -> None:
    """Print all of it."""
    failures = opened.failures()
    notes = run_notes(opened.record)
    if format_ == "json":
        starts = {name: Starts.of(each).record() for name, each in starts_of(opened.record).items()}
        driver = {**(found.driver.record() if found.driver else {}), "state": found.state, "seen": found.beat}
        progress = {"last_progress": found.progressed, "progress_age": found.quiet(now)}
        told = {"models": rows, "driver": driver, **progress, "starts": starts, "notes": notes, "failures": failures.to_dicts()}
        click.echo(json.dumps(told, ensure_ascii=False))
        return
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
    if (waiting := _shown(opened).get("waiting")) and found.state == "running":
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
