"""A run that was cut says so, is finished by a larger limit or none, and scores as many samples as were asked."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from evaluator.cli.plan import command as plan_command
from evaluator.cli.status import command as status_command
from evaluator.reports.notes import run_notes
from evaluator.reports.report import build_report
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.files import write_json, write_parquet
from evaluator.store.run import Run
from evaluator.tasks.gest import GestTask
from evaluator.tasks.stored import candidates_of, scores_of
from evaluator.vocabulary import MeasureOptions
from evaluator_serving.engine import EngineOptions
from tests.own_tasks import custom
from tests.tiny_models import tiny_model

WORDS = ("people", "children", "friend", "doctor", "nurse", "boss")
WHOLE = 48
"""Samples: three of each stereotype."""


@dataclass(frozen=True)
class Bench:
    """Two tiny models and a task of short sentences."""

    models: tuple[str, str]
    task: GestTask

    def ask(self, out: Path, limit: int | None = None, model: int = 0, task: GestTask | None = None) -> Run:
        spec = ModelSpec(self.models[model], "transformers", options=EngineOptions(dtype="float64"))
        return execute(RunSpec((spec,), (task or self.task,), out, limit=limit)).run

    def note(self, number: int) -> str:
        return f"{self.task.name}: only {number} (limit, seed 0) of its {WHOLE} samples are used, spread over its groups."


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("limit")
    lines = [f"I am not {WORDS[i % 6]} {i // 6}.,{i % 16 + 1}" for i in range(WHOLE)]
    (folder / "own.csv").write_text("\n".join(["sentence,stereotype", *lines]))
    one, two = (str(tiny_model("gpt2", folder / name, seed=seed)) for seed, name in enumerate(("one", "two")))
    return Bench((one, two), custom(folder / "own.csv"))


@pytest.fixture(scope="module")
def whole(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return bench.ask(tmp_path_factory.mktemp("whole") / "run")


def rows(run: Run) -> pl.DataFrame:
    return build_report(run, MeasureOptions(resamples=50)).rows


def assert_equal_reports(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """Other chunks were cut: sums differ in the last bits."""
    numbers = [name for name, kind in one.schema.items() if kind.is_float()]
    assert one.drop(numbers).equals(other.drop(numbers))
    for name in numbers:
        assert one[name].is_null().equals(other[name].is_null())
        assert one[name].drop_nulls().to_list() == pytest.approx(other[name].drop_nulls().to_list(), rel=1e-9)


def test_a_larger_limit_and_then_none_finish_the_run(bench: Bench, whole: Run, tmp_path: Path) -> None:
    assert run_notes(whole.record) == ()
    stages = []
    for limit in (8, 20, 12, None):
        run = bench.ask(tmp_path / "run", limit)
        stages.append((scores_of(run, bench.task.name)["sample"].n_unique(), run.timings()["requests"].sum()))
        if limit == 8:
            assert run.record["models"]["one"]["asked"] == {bench.task.name: {"limit": 8, "seed": 0, "samples": 8}}
            assert run.record["tasks"][bench.task.name]["samples"] == WHOLE
            assert run_notes(run.record) == (bench.note(8),)
            assert scores_of(run, bench.task.name)["group"].n_unique() == 8
            assert bench.note(8) in CliRunner().invoke(status_command, [str(run.path)], env={"COLUMNS": "200"}).output
            assert json.loads(CliRunner().invoke(status_command, [str(run.path), "--format", "json"]).output)["notes"] == [
                bench.note(8)
            ]
            small = scores_of(run, bench.task.name)
    templates = 2
    assert stages == [(8, 8 * templates), (20, 20 * templates), (20, 20 * templates), (WHOLE, WHOLE * templates)]
    assert run_notes(run.record) == ()
    assert_equal_reports(rows(run), rows(whole))
    same = scores_of(whole, bench.task.name).join(small, on=["template", "sample"], how="semi")
    assert small["score"].to_list() == pytest.approx(same["score"].to_list(), rel=1e-9)


def test_models_that_were_asked_differently_are_named(bench: Bench, tmp_path: Path) -> None:
    bench.ask(tmp_path / "run", 20)
    run = bench.ask(tmp_path / "run", 8, 1)
    counts = scores_of(run, bench.task.name).group_by("model", maintain_order=True).agg(pl.col("sample").n_unique())
    assert counts.rows() == [("one", 20), ("two", 8)]
    assert set(scores_of(run, bench.task.name).filter(model="two")["sample"]) < set(
        scores_of(run, bench.task.name).filter(model="one")["sample"]
    )
    (note,) = run_notes(run.record)
    assert note == (
        f"{bench.task.name}: models use different numbers of its {WHOLE} samples; compare them with care: "
        "20 (limit, seed 0): one; 8 (limit, seed 0): two."
    )
    (section,) = build_report(run, MeasureOptions(resamples=50)).sections
    assert not [warning for warning in section.warnings if "no score;" in warning or warning.endswith("no score")]
    bench.ask(tmp_path / "run", 20, 1)
    (note,) = run_notes(run.record)
    assert note.startswith(f"{bench.task.name}: only 20 (limit, seed 0) of its {WHOLE} samples")


def test_what_is_said_of_the_samples_stays_said_of_the_most_that_were_asked(bench: Bench, tmp_path: Path) -> None:
    lines = [f"I am {'naïve' if i % 3 else 'simple'} {i}.,{i % 4 + 1}" for i in range(24)]
    (tmp_path / "own.csv").write_text("\n".join(["sentence,stereotype", *lines]))
    own = custom(tmp_path / "own.csv")
    told = []
    for limit in (4, 12, 3, None, 4):
        run = bench.ask(tmp_path / "run", limit, task=own)
        entry = run.record["tasks"][own.name]
        assert entry["normal_forms"] == {"nfc": sum(i % 3 > 0 for i in scores_of(run, own.name)["sample"].unique()), "other": 0}
        told.append(entry["told_of"])
    assert told == [4, 12, 12, 24, 24]
    record = run.record
    del record["tasks"][own.name]["told_of"]  # as an older version wrote it
    write_json(run.path / "run.json", record)
    assert bench.ask(run.path, 4, task=own).record["tasks"] == record["tasks"]


def test_equal_sentences_count_as_often_as_they_were_asked(bench: Bench, tmp_path: Path) -> None:
    """60 rows, three of each sentence: a limit of 20 asks for 20 of them though their answers would serve more."""
    lines = [f"I am a boss {i}.,{i % 4 + 1}" for i in range(20)] * 3
    (tmp_path / "own.csv").write_text("\n".join(["sentence,stereotype", *lines]))
    own = custom(tmp_path / "own.csv")
    run = bench.ask(tmp_path / "run", 20, task=own)
    scores = scores_of(run, own.name)
    assert scores.group_by("template").len()["len"].to_list() == [20, 20]
    assert candidates_of(run, own.name).height == 20 * 2 * 2
    assert run.timings()["requests"].sum() < 40
    report = rows(run).filter(measure="q", model="one", template="3")
    assert report["n"].sum() == 20


def test_a_limit_above_the_number_of_samples_cuts_nothing(bench: Bench, whole: Run, tmp_path: Path) -> None:
    run = bench.ask(tmp_path / "run", 500)
    assert run_notes(run.record) == ()
    assert run.record["models"]["one"]["asked"][bench.task.name] == {"limit": 500, "seed": 0, "samples": WHOLE}
    assert rows(run).equals(rows(whole))


def test_a_run_of_an_older_version_opens_and_goes_on(bench: Bench, whole: Run, tmp_path: Path) -> None:
    """Older versions recorded no limit and no order, and the table of all samples."""
    run = bench.ask(tmp_path / "run", 8)
    cut = rows(run)
    record = run.record
    del record["models"]["one"]["asked"]
    write_json(run.path / "run.json", record)
    table = whole.table(bench.task.name, ["causal"]).drop("order").with_columns(pl.lit("causal").alias("heads"))
    write_parquet(run.path / "samples" / f"{bench.task.name}.parquet", table)
    assert run_notes(run.record) == ()
    answered = scores_of(run, bench.task.name).filter(pl.col("score").is_not_null())
    assert answered["sample"].n_unique() == 8
    assert rows(run).filter(measure="q")["value"].drop_nulls().to_list() == cut.filter(measure="q")["value"].to_list()
    bench.ask(run.path, 8, 1)
    assert "not recorded (an older version): one" in run_notes(run.record)[0]
    bench.ask(run.path)
    bench.ask(run.path, None, 1)
    assert run_notes(run.record) == ()
    assert_equal_reports(
        *(frame.filter(pl.col("measure") == "q", pl.col("model") == "one") for frame in (rows(run), rows(whole)))
    )


def test_a_plan_speaks_of_what_is_cut(bench: Bench, tmp_path: Path) -> None:
    model = bench.ask(tmp_path / "any", 1).record["models"]["one"]["spec"]
    sweep = tmp_path / "sweep.toml"
    own = bench.task.files.samples
    sweep.write_text(f'tasks = ["gest"]\nsamples = "{own}"\nlimit = 8\nout = "{tmp_path}/run"\n[[models]]\nmodel = "{model}"\n')
    told = json.loads(CliRunner().invoke(plan_command, [str(sweep), "--format", "json"]).output)
    assert told["notes"] == [bench.note(8)]
    assert "scored" not in bench.note(8), "nothing is yet"
    assert told["needs"][0]["forwards"] == 8
    assert bench.note(8) in CliRunner().invoke(plan_command, [str(sweep)], env={"COLUMNS": "200"}).output


def test_what_another_process_answered_before_the_lock_is_not_asked_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evaluator.scoring import driver

    write_down = driver.record
    meanwhile: list[Run] = []

    def record(*asked: Any) -> Run:
        """Between the preparing and the lock another process scores a third of the samples."""
        with monkeypatch.context() as other:
            other.setattr(driver, "record", write_down)
            meanwhile.append(bench.ask(tmp_path / "run", limit=16))
        return write_down(*asked)

    monkeypatch.setattr(driver, "record", record)
    run = bench.ask(tmp_path / "run")
    assert meanwhile
    stored = pl.concat([pl.read_parquet(part) for part in (run.path / "logprobs").rglob("part-*.parquet")])
    asked = stored.filter(candidate=0)["request"].to_list()
    assert len(asked) == len(set(asked))
    assert len(asked) == len(run.done(run.models[0]))
