"""Rates that are kept in a run: computed once for several formats, anew where anything that they rest on has changed."""

import os
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.reports.cache import KEPT
from evaluator.reports.report import build_report
from evaluator.store.run import Run
from evaluator.tasks.base import Task
from evaluator.vocabulary import MeasureOptions
from tests.made_up_runs import write_gest, write_predictions


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two imported models."""
    write_gest(tmp_path / "data", 64)
    for model in ("one", "two"):
        files = write_predictions(tmp_path / "files", model, *[[(i * 7 % 11 - 5) / 10 for i in range(64)]] * 2)
    words = ["import", "gest-predictions", "--kind", "glm", files, "--out", tmp_path / "run", "--data", tmp_path / "data"]
    assert CliRunner().invoke(cli, [str(word) for word in words]).exit_code == 0
    return Run.open(tmp_path / "run")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A scale for each time that rates were computed."""
    times: list[str] = []
    real = Task.measure

    def counting(task: Task, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        times.append(options.scale)
        return real(task, scores, options)

    monkeypatch.setattr(Task, "measure", counting)
    return times


def test_a_second_report_computes_nothing_and_says_the_same(run: Run, counted: list[str]) -> None:
    first, second = (build_report(run, MeasureOptions(resamples=50)) for _ in range(2))
    assert counted == ["ratio"]
    assert second.rows.equals(first.rows)
    assert (second.warnings, second.sections[0].layout) == (first.warnings, first.sections[0].layout)
    assert first.warnings


def test_another_choice_or_another_score_is_computed(run: Run, counted: list[str]) -> None:
    build_report(run, MeasureOptions(resamples=50))
    build_report(run, MeasureOptions(resamples=51))
    build_report(run, MeasureOptions(resamples=50, scale="log10"))
    assert counted == ["ratio", "ratio", "log10"]
    (part, *_) = sorted((run.path / "imported" / "gest").glob("*.parquet"))
    frame = pl.read_parquet(part).with_columns(pl.col("score") + 1)
    frame.write_parquet(part)
    os.utime(part, ns=(1, 1))
    changed = build_report(run, MeasureOptions(resamples=50))
    assert len(counted) == 4
    assert not changed.rows.equals(build_report(run, MeasureOptions(resamples=51)).rows)


def test_what_is_kept_may_be_damaged_or_gone(run: Run, counted: list[str]) -> None:
    first = build_report(run, MeasureOptions(resamples=50))
    (kept,) = (run.path / "tables" / "rates").glob("*.parquet")
    kept.write_bytes(b"PAR1")
    assert build_report(run, MeasureOptions(resamples=50)).rows.equals(first.rows)
    kept.unlink()
    assert build_report(run, MeasureOptions(resamples=50)).rows.equals(first.rows)
    assert len(counted) == 3


def test_only_the_newest_are_kept(run: Run) -> None:
    for resamples in range(1, KEPT + 4):
        build_report(run, MeasureOptions(resamples=resamples))
    assert len(list((run.path / "tables" / "rates").glob("*.parquet"))) == KEPT
