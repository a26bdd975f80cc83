"""How far a run has come, from what is stored and from its driver's heartbeat."""

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.reports.notes import run_notes
from evaluator.reports.starts import Starts, starts_of
from evaluator.scoring.heartbeat import Heartbeat, read_heartbeat
from evaluator.store.files import read_json
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator_serving.errors import InputError


def status(run: str | Path) -> dict[str, Any]:
    """All that is known of how far a run has come, as `evaluator status --format json` prints it.

    `models` (see `model_rows`), `driver`, `last_progress` and `progress_age` (seconds), `starts`, `notes`, `failures`.
    """
    opened, now = Run.open(run_folder(run)).snapshot(), time.time()
    found = driver_signs(opened)
    return {
        "models": model_rows(opened),
        "driver": {**(found.driver.record() if found.driver else {}), "state": found.state, "seen": found.beat},
        "last_progress": found.progressed,
        "progress_age": found.quiet(now),
        "starts": {name: Starts.of(each).record() for name, each in starts_of(opened.record).items()},
        "notes": run_notes(opened.record),
        "failures": opened.failures().to_dicts(),
    }


def model_rows(run: Run) -> list[dict[str, Any]]:
    """One record per model: name, state, done, total, failed, unaskable, rate (requests a second), left (seconds or None).

    All but the last two count requests; those that can't be asked are in neither `total` nor `failed`.

    A state of `running` or `loading` is only believed while the driver gives signs of life, else it is the driver's: `stopped`
    or `silent` (see `evaluator.scoring.heartbeat`). progress.json knows the last command's models, and of those what that
    command asked; all that was ever asked is read from what is stored.
    """
    run = run.snapshot()
    shown = _models_in_progress(run)
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
        requests, answered = _requests(run, name).join(refused, on="request", how="anti"), run.answered(name)
        total = requests.height or known["total"]
        done = (answered.join(requests, on="request", how="semi") if requests.height else answered).height
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


def _requests(run: Run, model: str) -> pl.DataFrame:
    """All that is asked of a model (column `request`); nothing where the run's tables are damaged."""
    with contextlib.suppress(InputError):
        return run.requests(model)
    return pl.DataFrame(schema={"request": pl.String})


def progress_of(run: Run) -> dict[str, Any]:
    """progress.json; empty where it is missing or damaged, as it is a help only."""
    with contextlib.suppress(OSError, ValueError):
        shown = read_json(run.path / "progress.json")
        return shown if isinstance(shown, dict) else {}
    return {}


def _models_in_progress(run: Run) -> dict[str, dict[str, Any]]:
    with contextlib.suppress(KeyError, TypeError):
        models = [{"done": 0, "failed": 0, **model} for model in progress_of(run)["models"]]
        return {model["name"]: model for model in models if _is_progress(model)}
    return {}


def _is_progress(model: dict[str, Any]) -> bool:
    numbers = all(isinstance(model.get(name), int | float) for name in ("total", "done", "failed", "rate"))
    return numbers and isinstance(model.get("name"), str) and isinstance(model.get("state"), str)


def driver_signs(run: Run) -> Heartbeat:
    """Whether the driver is at work, and when it last got on; of a run of an older version, when the last chunk was stored."""
    found = read_heartbeat(progress_of(run), held=run.busy)
    if found.progressed is None:
        last = run.timings()["finished"].max()
        found = replace(found, progressed=last if isinstance(last, float) else None)
    return found
