"""Experiment trackers: a run's parameters, rates, figures and record, sent where a lab keeps its experiments.

One module a tracker, whose `send` takes what there is to log. A tracker never costs a result: what goes wrong, or takes longer
than PATIENCE, is one warning.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Unpack, get_args

import polars as pl

from evaluator.exports.result import Result, label, results
from evaluator.reports.function import report as make_report
from evaluator.reports.local_paths import named_only
from evaluator.reports.report import Report
from evaluator.reports.results import Results
from evaluator.store.files import write_json
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.vocabulary import RateChoices
from evaluator_serving.errors import InputError, in_words

Tracker = Literal["mlflow", "wandb", "trackio"]

PROJECT = "stereotypes"
"""Experiment or project, unless the tracker's own environment variable names one."""
PATIENCE = 120.0
"""Seconds that a tracker may take altogether."""


@dataclass(frozen=True, slots=True)
class ModelLog:
    """One model: its parameters as texts, and its rates over all groups with their bounds by name."""

    name: str
    parameters: Mapping[str, str]
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunLog:
    """What is logged of a run.

    Attributes:
        name: the run folder's name.
        models: a tracker's run each.
        files: run.json, rates.csv and figures: a tracker's run of their own.
    """

    name: str
    models: tuple[ModelLog, ...]
    files: tuple[Path, ...]


def log_to(
    run: Results | str | Path,
    tracker: Tracker,
    tasks: Sequence[str] = (),
    *,
    settings: Mapping[str, str] | None = None,
    **choices: Unpack[RateChoices],
) -> None:
    """Send a run's results to a tracker, as `evaluator report RUN --log-to TRACKER` does. A tracker that fails costs a warning.

    Args:
        run: what `evaluator.run` or `evaluator.open` returned, or the run's folder or URL.
        tracker: `mlflow`, `wandb` or `trackio`.
        tasks: names of tasks (default: all).
        settings: the tasks' parameters of a report, as `--set` takes them.
        choices: see `evaluator.vocabulary.RateChoices`.

    Raises InputError for an unknown tracker, or one whose package is not installed.
    """
    check_tracker(tracker)
    folder = run.path if isinstance(run, Results) else run_folder(run)
    log_report(tracker, Run.open(folder), make_report(folder, tasks, settings=settings, **choices))


def check_tracker(tracker: str) -> None:
    """Raise InputError for an unknown tracker, or one whose package is not installed: before anything is scored."""
    if tracker not in get_args(Tracker):
        raise InputError(f"unknown tracker {tracker!r}: choose {', '.join(get_args(Tracker))}")
    if importlib.util.find_spec(tracker) is None:
        raise InputError(f"--log-to {tracker} needs the package {tracker}: pip install 'stereotype-evaluator[{tracker}]'")


def log_report(tracker: Tracker, run: Run, report: Report) -> None:
    """Send a report to a tracker. Whatever goes wrong is one warning."""
    failed: list[BaseException] = []
    project = os.environ.get({"mlflow": "MLFLOW_EXPERIMENT_NAME", "wandb": "WANDB_PROJECT"}.get(tracker, ""), PROJECT)

    def work(log: RunLog) -> None:
        try:
            importlib.import_module(f"evaluator.trackers.{tracker}_").send(log, project)
        except BaseException as error:  # libraries end the process, too
            failed.append(error)

    reason = ""
    try:
        with tempfile.TemporaryDirectory(prefix="evaluator-log-", ignore_cleanup_errors=True) as folder:
            # A thread of its own, which doesn't keep the process: some clients wait for a silent server for hours.
            sending = threading.Thread(target=work, args=(_run_log(run, report, Path(folder)),), daemon=True)
            # Standard output holds the report: what the client prints is dropped. That ends with the wait, not with the thread.
            with contextlib.redirect_stdout(io.StringIO()):
                sending.start()
                sending.join(PATIENCE)
            reason = in_words(failed[0]) if failed else f"no answer in {PATIENCE:g} s" if sending.is_alive() else ""
    except Exception as error:  # the figures, or a full disk
        reason = in_words(error)
    if reason:
        warnings.warn(f"{tracker} was not logged to ({' '.join(reason.split())[:300]}); the run is complete", stacklevel=2)


def _run_log(run: Run, report: Report, folder: Path) -> RunLog:
    (folder / "rates.csv").write_text(report.rows.write_csv(), encoding="utf-8")
    write_json(folder / "run.json", named_only(run.record))
    if importlib.util.find_spec("altair") and importlib.util.find_spec("vl_convert"):
        from evaluator.reports.export import write_figures
        from evaluator.reports.figures import report_figures

        write_figures(report_figures(report), folder)
    files = tuple(sorted(path for path in folder.iterdir() if path.suffix != ".svg"))
    models: dict[str, list[Result]] = {}
    for result in results(run, report):
        models.setdefault(result.model, []).append(result)
    return RunLog(run.path.name, tuple(_model_log(name, found) for name, found in models.items()), files)


def _model_log(name: str, found: list[Result]) -> ModelLog:
    parameters = {"model": name, **found[0].setting, "scale": found[0].options.scale, "interval": found[0].options.interval}
    rates: dict[str, float] = {}
    for result in found:
        parameters |= {f"{result.task}.samples": str(result.samples)}
        parameters |= {f"{result.task}.sha256": digest for digest in result.task_entry.get("sha256", {}).values()}
        whole = result.defined.filter(pl.col("group").is_null() | (pl.col("group") == "all"))
        for row in whole.iter_rows(named=True):
            key = f"{result.task}/{label(row)}"
            numbers = {key: row["value"], f"{key}/low": row["low"], f"{key}/high": row["high"]}
            rates |= {where: number for where, number in numbers.items() if number is not None}
    return ModelLog(name, parameters, rates)
