"""The vocabulary head as an ONNX subgraph, and the builder's weight file."""

import io
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from onnx import TensorProto
from problems import Problem, assert_exact, problems

from evaluator_kernels import onnx_graph
from evaluator_kernels.onnx_graph import GraphBuilder, WeightFile, linear, store_int8, vocabulary_head


def head(problem: Problem, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the head's graph on a problem."""
    vocabulary, depth = problem.weight.shape
    bias = problem.bias if problem.bias is not None else torch.zeros(vocabulary)
    with (folder / "w.bin").open("wb") as file:
        weights = WeightFile(file, "w.bin")
        weights.add("v.weight", problem.weight.numpy())
        weights.add("v.bias", bias.numpy())
    graph = GraphBuilder(weights, np.dtype(np.float32))
    hidden = graph.input("hidden", TensorProto.FLOAT, ["n", depth])
    ids = graph.input("ids", TensorProto.INT64, ["n", "k"])
    log_probs, logsumexp = vocabulary_head(graph, hidden, ids, "v")
    graph.output("log_probs", log_probs, TensorProto.FLOAT, ["n", "k"])
    graph.output("logsumexp", logsumexp, TensorProto.FLOAT, ["n"])
    graph.save(folder / "head.onnx", {})
    onnx.checker.check_model(folder / "head.onnx")
    session = onnxruntime.InferenceSession(folder / "head.onnx")
    found = session.run(None, {"hidden": problem.hidden.numpy(), "ids": problem.candidates.numpy()})
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


@given(problems(rows=7, vocabulary=200, depth=20))
@settings(max_examples=25, deadline=None)
def test_head_equals_float64(problem: Problem) -> None:
    problem = Problem(problem.hidden.float(), problem.weight.float(), problem.candidates, problem.bias)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(onnx_graph, "VOCABULARY_BLOCK", 64)
        assert_exact(problem, head(problem, Path(folder)))


def test_a_block_without_any_probability_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "VOCABULARY_BLOCK", 64)
    bias = torch.zeros(150)
    bias[:128] = float("-inf")
    problem = Problem(torch.ones(2, 3), torch.ones(150, 3), torch.tensor([[0, 149], [-1, 140]]), bias)
    log_probs, logsumexp = head(problem, tmp_path)
    log_22 = 3.091042453358316  # 22 entries of equal logit 3 remain
    torch.testing.assert_close(log_probs, torch.tensor([[float("-inf"), -log_22], [float("-inf"), -log_22]]))
    torch.testing.assert_close(logsumexp, torch.full((2,), 3 + log_22))


def test_stored_tensors_are_aligned_and_rows_are_ranges_of_the_whole() -> None:
    file = io.BytesIO()
    weights = WeightFile(file, "w.bin")
    weights.add("first", np.arange(6, dtype=np.float32).reshape(3, 2))
    whole = weights.add("second", np.arange(12, dtype=np.float32).reshape(4, 3), np.full((2, 3), 7, np.float32))
    rows = whole.rows(3, 5)
    assert (whole.offset % 4096, whole.shape, rows.shape) == (0, (6, 3), (2, 3))
    stored = np.frombuffer(file.getvalue()[rows.offset : rows.offset + rows.nbytes], np.float32).reshape(2, 3)
    assert stored.tolist() == [[9, 10, 11], [7, 7, 7]]
    with pytest.raises(ValueError, match="'first' is stored already"):
        weights.add("first", np.zeros(1))


def test_linear_in_8_bits_is_within_half_a_step_of_its_weights(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((40, 30)).astype(np.float32) * np.geomspace(0.01, 10, 40, dtype=np.float32)[:, None]
    weight[7] = 0
    with (tmp_path / "w.bin").open("wb") as file:
        weights = WeightFile(file, "w.bin")
        store_int8(weights, "w", weight, 63)
        weights.add("w.bias", np.arange(40, dtype=np.float32))
    graph = GraphBuilder(weights, np.dtype(np.float32))
    x = graph.input("x", TensorProto.FLOAT, ["n", 30])
    graph.output("y", linear(graph, x, "w"), TensorProto.FLOAT, ["n", 40])
    graph.save(tmp_path / "g.onnx", {})
    # Inputs of 0 and 1 are exact in 8 bits, so that only the weights are rounded: by half a step each at most.
    inputs = generator.integers(0, 2, (5, 30)).astype(np.float32)
    inputs[0, :2] = 0, 1
    (y,) = onnxruntime.InferenceSession(tmp_path / "g.onnx").run(None, {"x": inputs})
    steps = np.abs(weight).max(axis=1) / 63
    error = np.abs(y - (inputs @ weight.T + np.arange(40)))
    assert (error <= inputs.sum(axis=1)[:, None] * steps / 2 + 1e-3).all()
    assert error.max() > 0
