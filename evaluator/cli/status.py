"""`evaluator status`: how far a run has come, from any shell."""

import contextlib
import json
from pathlib import Path
from typing import Any

import click
import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluator.cli.output import clock
from evaluator.reports.notes import run_notes
from evaluator.reports.short_names import legend, shortened
from evaluator.reports.starts import Starts, start_lines, starts_of
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


def model_rows(run: Run) -> list[dict[str, Any]]:
    """One record a model: name, state, done, total, failed, unaskable, rate (requests a second), left (seconds or None).

    All but the last two count requests; those that can't be asked are in neither `total` nor `failed`.

    A state of `running` or `loading` is only believed while a process holds the run. progress.json knows the last command's
    models, and of those what that command asked; all that was ever asked is read from what is stored.
    """
    shown = _shown(run.path / "progress.json")
    alive = run.busy
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


def _shown(path: Path) -> dict[str, dict[str, Any]]:
    """What progress.json says of each model; nothing where it is missing or damaged, as it is a help only."""
    try:
        models = json.loads(path.read_text(encoding="utf8"))["models"]
        return {model["name"]: {"done": 0, "failed": 0, **model} for model in models}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@click.command(name="status")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(run: Path, format_: str) -> None:
    """Say how far a run has come: per model what is done, its rate and the time left, and what its start took.

    \b
    Example:
      evaluator status runs/gest
    """
    opened = Run.open(run)
    rows = model_rows(opened)
    failures = opened.failures()
    notes = run_notes(opened.record)
    if format_ == "json":
        starts = {name: Starts.of(each).record() for name, each in starts_of(opened.record).items()}
        told = {"models": rows, "starts": starts, "notes": notes, "failures": failures.to_dicts()}
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    console = Console()
    title = f"{run}: {', '.join(opened.tasks)} ({opened.protocol} protocol)"
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
    for line in start_lines(opened.record, float(opened.timings()["seconds"].sum())):
        console.print(line, markup=False, highlight=False)
    for note in notes:
        console.print(note, markup=False, highlight=False)
    for row in (
        failures.sort(pl.col("kind").replace_strict(ORDER, default=0), maintain_order=True).head(20).iter_rows(named=True)
    ):
        what = WORDS[row["kind"]] if row["request"] else "failed"
        console.print(f"{what}: {row['model']} {row['request']}: {row['reason']}", markup=False, highlight=False)
