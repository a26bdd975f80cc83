"""Runs in bf16x2: their record; every kind of request gives float32's numbers."""

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from tiny_models import tiny_model, tiny_talker

from evaluator.reports.notes import run_notes
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.tasks import task
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource
from evaluator_serving.engine import EngineOptions
from evaluator_serving.transformers_engine import products
from tests.scoring.made_up import write_data

pytestmark = pytest.mark.skipif(
    products.bfloat16_products() is None, reason="this CPU has no units for bfloat16, or there is no C++ compiler"
)


def spec_of(tmp_path: Path, model: Path, engine: str = "auto", dtype: str = "float32", *, out: str = "run") -> RunSpec:
    options = EngineOptions(dtype, "cpu")
    return RunSpec((ModelSpec(str(model), engine, options=options, label="m"),), (task("gest-demo"),), tmp_path / out, limit=8)


def test_it_is_recorded_and_float32_stays_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("gpt2", tmp_path / "model")
    monkeypatch.setattr(products, "gain", lambda parts: 3.0)
    run = execute(spec_of(tmp_path, model, dtype="bf16x2")).run
    entry = run.record["models"]["m"]
    assert (entry["engine"], entry["dtype"]) == ("transformers", "bf16x2")
    assert entry["verified"].startswith("verified against transformers")
    assert "bf16x2" in entry["engine_details"]["linear_layers"]["causal"]
    assert any(note.startswith("m: float32 multiplied as sums of bfloat16 numbers (bf16x2)") for note in run_notes(run.record))
    plain = execute(spec_of(tmp_path, model, "transformers", out="plain")).run
    assert plain.record["models"]["m"]["dtype"] == "float32"
    assert plain.record["models"]["m"]["fingerprint"] != entry["fingerprint"]
    assert_frame_equal(scores_of(run, "gest-demo"), scores_of(plain, "gest-demo"), abs_tol=1e-3)


@pytest.mark.parametrize(("name", "tolerance"), [("gest", 1e-3), ("stereoset-en", 3e-3), ("gest-who", 1e-3)])
def test_scores_are_those_of_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, tolerance: float) -> None:
    """Texts of StereoSet are sums of several log-probabilities."""
    monkeypatch.setattr(products, "gain", lambda parts: 3.0)
    folder = tmp_path / "model"
    model = tiny_talker(folder) if name == "gest-who" else tiny_model("llama", folder)
    scores = []
    for dtype in ("float32", "bf16x2"):
        spec = spec_of(tmp_path, model, "transformers", dtype, out=dtype)
        made = RunSpec(spec.models, (task(name),), spec.out, data=DataSource(write_data(tmp_path / f"data-{dtype}")))
        scores.append(scores_of(execute(made).run, name))
    assert scores[0].height > 0
    assert_frame_equal(*scores, abs_tol=tolerance)
