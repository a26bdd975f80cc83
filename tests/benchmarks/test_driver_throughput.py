"""The benchmark of the program itself, small: what it counts, not how fast it is."""

from pathlib import Path

import driver_throughput
import pytest
from tiny_models import tiny_model


def test_a_model_of_the_demo_leaves_one_file_of_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATOR_COMMIT", "60")
    monkeypatch.setitem(driver_throughput.CASES, "demo", ("gest-demo", 2))
    models = [str(tiny_model("gpt2", tmp_path / name, seed=seed)) for seed, name in enumerate("ab")]
    found = driver_throughput.one("demo", models, None, 0)
    # 160 sentences under 4 templates for each model: run.json, .lock, progress.json, one table, and for each model (each is
    # committed when it is done) one part of answers and one of timings.
    assert found["requests"] % 2 == 0
    assert found["requests"] > 2 * 160
    assert found["files"] == 4 + 2 * 2
    assert all(seconds >= 0 for seconds in found["seconds"].values())
    assert found["per_second"]["driver"] == pytest.approx(found["requests"] / found["seconds"]["driver"], rel=0.1)
