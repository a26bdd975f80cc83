"""A sweep's run says what was planned and what it took."""

from pathlib import Path

import pytest

from evaluator.reports.notes import run_notes
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.sweep.driver import SweepOptions, sweep
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom
from tests.tiny_models import tiny_model


def test_a_sweep_records_its_plan_and_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    samples = write_samples(tmp_path / "own.csv", [(s, g) for s, g in sentences(12) if len(s) < 60])
    model = tiny_model("gpt2", tmp_path / "gpt2")
    spec = RunSpec((ModelSpec(str(model), "transformers"),), (custom(samples),), tmp_path / "run")
    sweep(spec, SweepOptions("none", price=2.0))
    (plan,) = Run.open(tmp_path / "run").record["plans"]
    assert plan["seconds"] > 0
    assert plan["took"] > 0
    assert (plan["whole"], plan["basis"], plan["price"], plan["devices"]) == (True, "", 2.0, 1)
    assert "was planned to take" in run_notes(Run.open(tmp_path / "run").record)[-1]
    sweep(spec, SweepOptions("none"))
    assert len(Run.open(tmp_path / "run").record["plans"]) == 1, "nothing was left to plan"
