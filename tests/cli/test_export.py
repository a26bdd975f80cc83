"""`evaluator export`: what it writes, what it says, what it refuses."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from click.testing import CliRunner
from tiny_models import tiny_model

from evaluator.cli.export import command
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.opening import open_engine
from evaluator_serving.rows import Row

pytestmark = pytest.mark.usefixtures("own_cache")


def test_the_complete_graph_answers_as_transformers_does(tmp_path: Path) -> None:
    model = tiny_model("xlm-roberta", tmp_path / "model")
    done = CliRunner().invoke(command, [str(model), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "xlm-roberta, float32, opset 20" in done.stdout
    assert "verified against transformers" in done.stdout
    ids = [[0, 7, 9, 4, 11, 2]]
    inputs = {
        "input_ids": np.array(ids),
        "attention_mask": np.ones((1, 6), np.int64),
        "mask_positions": np.array([[0, 3]]),
        "candidate_ids": np.array([[8, 30]]),
    }
    log_probs, logsumexp = onnxruntime.InferenceSession(tmp_path / "out" / "scores.onnx").run(None, inputs)
    with torch.no_grad():
        loaded = transformers.AutoModelForMaskedLM.from_pretrained(model, dtype=torch.float64)
        logits = loaded(torch.tensor(ids)).logits[0, 3]
    assert log_probs[0] == pytest.approx(torch.log_softmax(logits, -1)[[8, 30]].numpy(), abs=1e-4)
    assert logsumexp[0] == pytest.approx(float(logits.logsumexp(0)), abs=1e-4)


def test_an_exported_folder_is_used_for_its_own_model_only(tmp_path: Path) -> None:
    model, other = tiny_model("bert", tmp_path / "model"), tiny_model("bert", tmp_path / "other", seed=1)
    assert CliRunner().invoke(command, [str(model), "--out", str(tmp_path / "out"), "--no-verify"]).exit_code == 0
    rows = [Row("masked", (2, 7, 4, 3), ((2, 8),))]
    options = EngineOptions(device="cpu", extra={"folder": str(tmp_path / "out")})
    (number,) = open_engine("onnx", resolve(str(model)), options, rows).score(rows)
    assert np.isfinite(number).all()
    assert not (tmp_path / "cache" / "onnx").exists()
    with pytest.raises(InputError, match="contains another model, head or dtype"):
        open_engine("onnx", resolve(str(other)), options, rows)


def test_int8_says_its_drift(tmp_path: Path) -> None:
    model = tiny_model("bert", tmp_path / "model")
    done = CliRunner().invoke(command, [str(model), "--out", str(tmp_path / "out"), "--dtype", "int8"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["dtype"] == "int8"
    assert "max |Δ log P|" in done.stdout


def test_a_generative_model_is_exported_and_verified(tmp_path: Path) -> None:
    model = tiny_model("gpt2", tmp_path / "model")
    done = CliRunner().invoke(command, [str(model), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "verified against transformers" in done.stdout
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["head"] == "causal"


def test_a_translator_is_refused(tmp_path: Path) -> None:
    model = tiny_model("t5", tmp_path / "model")
    done = CliRunner().invoke(command, [str(model), "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, InputError)
    assert "only masked and generative language models" in str(done.exception)
    assert not (tmp_path / "out").exists()
