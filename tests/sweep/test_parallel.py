"""Replicas of two devices for real: vLLM's CPU build, tensor and pipeline parallel, with Ray and without."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from evaluator.cli.report import show
from evaluator.store.run import Run
from evaluator.sweep.hardware import GIB
from evaluator.sweep.planning.fit import OVERHEAD, ROOM
from evaluator.tasks.stored import scores_of
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.resolving import resolve
from evaluator_serving.opening import open_engine
from evaluator_serving.rows import Row
from evaluator_serving.weights.files import count_parameters
from tests.e2e.conftest import sentences, write_samples
from tests.tiny_models import tiny_model

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

# What vLLM's CPU attention takes: heads of 32, two of which two devices can share.
SHAPE: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 17 million parameters, so that half of them is something that a plan can see."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    return tiny_model("llama", folder, **SHAPE, intermediate_size=11000, num_hidden_layers=4)


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2)])
def test_two_devices_give_the_oracles_numbers(llama: Path, tensor: int, pipeline: int) -> None:
    source = resolve(str(llama))
    rows = [Row("causal", tuple(range(3, 3 + n)), ((n - 2, 7), (n - 1, 9), (n - 1, 8))) for n in (5, 9, 12)]
    # Prompts whose own tokens are scored, from the middle on.
    rows += [Row("causal", tuple(range(3, 3 + n)), tuple((at, at + 4) for at in range(n // 2, n))) for n in (20, 40)]
    oracle = open_engine("transformers", source, EngineOptions(), rows)
    expected = oracle.score(rows)
    oracle.close()
    engine = open_engine("vllm", source, EngineOptions(tensor_parallel=tensor, pipeline_parallel=pipeline), rows)
    try:
        for a, b in zip(engine.score(rows), expected, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-4)
    finally:
        engine.close()


@pytest.mark.ray
def test_the_plans_sizes_reach_vllm_on_ray(llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A worker is given too little memory for the model: the plan takes two, and vLLM is loaded on two."""
    samples = write_samples(tmp_path / "own.csv", sentences(60))
    weights = 4 * count_parameters(llama) * 1.05
    enough_for_a_half = (0.7 * weights + OVERHEAD["cpu"]) / ROOM / GIB
    path = tmp_path / "SWEEP.toml"
    entries = {
        "planned": 'engine = "vllm"',
        "stages": 'engine = "vllm"\npipeline_parallel = 2',
        "oracle": 'engine = "transformers"',
    }
    models = "".join(f'[[models]]\nmodel = "{llama}"\nname = "{name}"\n{rest}\n' for name, rest in entries.items())
    path.write_text(f'tasks = ["gest"]\nsamples = "{samples}"\n{models}')
    memory = ["--workers", "2", "--worker-memory", str(enough_for_a_half)]
    command = [sys.executable, "-m", "evaluator", "sweep", str(path), "--out", str(tmp_path / "run"), "--ray", "local", *memory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run.open(tmp_path / "run")
    scores = scores_of(run, run.tasks[0])
    expected = scores.filter(model="oracle").sort("template", "sample")["score"]
    for name, sizes in {"planned": (2, 1, 1), "stages": (1, 2, 1), "oracle": (1, 1, 2)}.items():
        found = scores.filter(pl.col("model") == name).sort("template", "sample")["score"]
        assert len(found) == 2 * 60
        assert float((found - expected).abs().max()) < 4e-4, name
        (start,) = run.record["models"][name]["starts"]
        placed = start["placement"]
        assert (placed["tensor_parallel"], placed["pipeline_parallel"], placed["spread"]) == sizes
    show(run.path)
    assert "2 devices" in capsys.readouterr().out
