"""Every family's graphs against float64 transformers: real layer shapes, one unpadded sequence at a time there."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from shapes import LARGE, SHAPES, random_model

from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx.export import write
from evaluator_serving.onnx.families import family_of

TOLERANCE = {"float32": 2e-4, "float16": 0.1, "int8": 3.0}

LENGTHS = (31, 18, 4, 2)
MASKS = np.array([[0, 3], [0, 30], [1, 17], [1, 0], [2, 2], [3, 0]])
CANDIDATES = np.array([[5, 100, -1], [7, 7, 2999], [10, -1, -1], [1234, 8, 9], [-1, 50, 51], [2, 1, 0]])


def session(folder: Path, form: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(folder / f"{form}.onnx", options)


def batch(model: Any) -> dict[str, NDArray[np.int64]]:
    """Padded sequences of random ids (padding ids in no sequence) with two token types."""
    generator = np.random.default_rng(2)
    shape = (len(LENGTHS), max(LENGTHS))
    ids = generator.integers(5, model.config.vocab_size, shape)
    mask = (np.arange(shape[1]) < np.array(LENGTHS)[:, None]).astype(np.int64)
    types = np.broadcast_to((np.arange(shape[1]) > 5).astype(np.int64), shape).copy()
    inputs = {"input_ids": np.where(mask == 1, ids, model.config.pad_token_id or 0), "attention_mask": mask}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = types * mask
    return inputs


@torch.no_grad()
def expected(model: Any, inputs: dict[str, NDArray[np.int64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-probabilities [masks, V] and log-sum-exp [masks], in float64."""
    exact = model.double()
    logits = []
    for row, position in MASKS:
        alone = {name: torch.tensor(value[row : row + 1, : LENGTHS[row]]) for name, value in inputs.items()}
        logits.append(exact(**alone).logits[0, position])
    stacked = torch.stack(logits)
    return torch.log_softmax(stacked, -1).numpy(), torch.logsumexp(stacked, -1).numpy()


def exported(name: str, folder: Path, dtype: str) -> Any:
    model = random_model(name)
    source = ModelSource(name, folder, "test", frozenset({"masked"}), model.config, 512)
    write(source, folder, dtype, family_of(model, name, "masked"))
    return model


def outputs(folder: Path, form: str, inputs: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]:
    """log_probs and logsumexp by one of the ways through the graphs."""
    if form == "hidden":
        (hidden,) = session(folder, "hidden").run(None, {**inputs, "mask_positions": MASKS})
        return session(folder, "head").run(None, {"masked_hidden_states": hidden, "candidate_ids": CANDIDATES})
    return session(folder, form).run(None, {**inputs, "mask_positions": MASKS, "candidate_ids": CANDIDATES})


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in SHAPES])
def test_float32_equals_float64_transformers(name: str, tmp_path: Path) -> None:
    model = exported(name, tmp_path, "float32")
    inputs = batch(model)
    log_probs, logsumexp = expected(model, inputs)
    assert np.ptp(log_probs) > 3  # the candidates differ
    for form in ("scores", "hidden", "plain"):
        got, total = outputs(tmp_path, form, inputs)
        assert np.isneginf(got[CANDIDATES < 0]).all()
        for n in range(len(MASKS)):
            for k in np.flatnonzero(CANDIDATES[n] >= 0):
                assert got[n, k] == pytest.approx(log_probs[n, CANDIDATES[n, k]], abs=TOLERANCE["float32"]), form
            assert total[n] == pytest.approx(logsumexp[n], abs=TOLERANCE["float32"]), form


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("name", ["bert-base", "modernbert-base", "deberta-v3-base", "albert-base-v2"])
def test_coarser_types_stay_near(name: str, dtype: str, tmp_path: Path) -> None:
    """On a CPU float16 graphs run through float32 casts: a check of the graphs, not of a GPU's arithmetic."""
    model = exported(name, tmp_path, dtype)
    inputs = batch(model)
    log_probs, _ = expected(model, inputs)
    for form in ("scores", "hidden", "plain"):
        got, _ = outputs(tmp_path, form, inputs)
        wanted = np.take_along_axis(log_probs, np.maximum(CANDIDATES, 0), axis=1)
        difference = np.abs(got - wanted)[CANDIDATES >= 0]
        assert difference.max() < TOLERANCE[dtype], form


def test_only_masked_positions_go_through_the_last_layers_feed_forward(tmp_path: Path) -> None:
    model = exported("bert-base", tmp_path, "float32")
    inputs = {**batch(model), "mask_positions": MASKS}
    rows = {}
    for form in ("hidden", "plain"):
        graph = onnx.load(tmp_path / f"{form}.onnx", load_external_data=False)
        inside = next(n.output[0] for n in graph.graph.node if "1.up.weight" in n.input)
        graph.graph.output.add(name=inside)
        onnx.save(graph, tmp_path / "watched.onnx")
        feeds = inputs if form == "hidden" else {**inputs, "candidate_ids": CANDIDATES}
        (value,) = session(tmp_path, "watched").run([inside], feeds)
        rows[form] = value.shape[0]
    assert rows == {"hidden": len(MASKS), "plain": len(LENGTHS) * max(LENGTHS)}


@pytest.mark.slow
def test_xlm_v_whole_vocabulary_with_tensors_beyond_2_gib(tmp_path: Path) -> None:
    """XLM-V: XLM-R's layers and 901,629 entries, whose matrix alone is larger than a protobuf file may be."""
    model = random_model("xlm-roberta-base", vocab_size=901_629, num_hidden_layers=1)
    source = ModelSource("xlm-v", tmp_path, "test", frozenset({"masked"}), model.config, 512)
    write(source, tmp_path, "float32", family_of(model, "xlm-v", "masked"))
    assert (tmp_path / "weights.bin").stat().st_size > 2 << 30
    assert all((tmp_path / f"{form}.onnx").stat().st_size < 1 << 20 for form in ("scores", "hidden", "head", "plain"))
    inputs = batch(model)
    log_probs, logsumexp = expected(model, inputs)
    got, total = outputs(tmp_path, "hidden", inputs)
    wanted = np.take_along_axis(log_probs, np.maximum(CANDIDATES, 0), axis=1)
    assert np.abs(got - wanted)[CANDIDATES >= 0].max() <= TOLERANCE["float32"]
    np.testing.assert_allclose(total, logsumexp, rtol=0, atol=TOLERANCE["float32"])
