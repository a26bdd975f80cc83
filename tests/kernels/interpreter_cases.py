"""The Triton kernel in Triton's interpreter: test_triton_kernel.py runs this file with TRITON_INTERPRET=1."""

from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from problems import Problem, assert_exact, make, problems
from tiny_models import tiny_model

from evaluator_kernels.problem import MaskedLogProbs
from evaluator_kernels.triton_kernel import INTERPRETED, triton_log_probs, vocabulary_splits
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine import forward as forward_pass
from tests.float64_loop import row_answers


def test_this_process_interprets() -> None:
    assert INTERPRETED


@given(problems(rows=18, vocabulary=300, depth=40))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_problems(problem: Problem) -> None:
    assert_exact(problem, triton_log_probs(problem.hidden, problem.weight, problem.candidates, problem.bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("depth", [32, 70])
def test_several_tiles_of_rows_words_and_depth(dtype: torch.dtype, depth: int) -> None:
    problem = make(17, 300, depth, 10, dtype=dtype, bias="holes", scale=5.0, seed=1)
    assert vocabulary_splits(17, 300, 2) > 1
    assert_exact(problem, triton_log_probs(problem.hidden, problem.weight, problem.candidates, problem.bias))


def test_views_with_strides_of_their_own() -> None:
    wide = make(4, 90, 16, 2, dtype=torch.float32, bias="plain", scale=1.0, seed=2)
    problem = Problem(wide.hidden[:, :8], wide.weight[::2, 8:], wide.candidates.clamp(max=44), wide.bias[::2])
    assert_exact(problem, triton_log_probs(problem.hidden, problem.weight, problem.candidates, problem.bias))
    turned = Problem(problem.hidden.T.contiguous().T, problem.weight.T.contiguous().T, problem.candidates, None)
    assert_exact(turned, triton_log_probs(turned.hidden, turned.weight, turned.candidates))


def test_an_id_out_of_range_is_nan_and_padding_is_minus_infinity() -> None:
    problem = make(1, 10, 4, 1, dtype=torch.float32, bias="none", scale=1.0, seed=4)
    answer = triton_log_probs(problem.hidden, problem.weight, torch.tensor([[10, -2, -1, 3]])).log_probs[0]
    assert answer[:2].isnan().all()
    assert answer[2] == float("-inf")
    assert answer[3].isfinite()


def test_the_transformers_engine_asks_it_for_a_models_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA, where a model's states and vocabulary go to the kernel as they are."""
    asked: list[int] = []

    def interpreted(hidden: torch.Tensor, *others: torch.Tensor) -> MaskedLogProbs:
        asked.append(len(hidden))
        return triton_log_probs(hidden, *others)

    monkeypatch.setattr(forward_pass, "_FUSED", ("cpu",))
    monkeypatch.setattr(forward_pass, "possible", lambda model: False)  # no weights are laid out, as on CUDA
    monkeypatch.setattr(forward_pass, "masked_log_probs", interpreted)
    rows = [Row("causal", (5, 8, 11, 14, 9), ((3, 7), (3, 9), (1, 4))), Row("causal", (5, 8, 20), ((2, 40),))]
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model("llama", tmp_path), dtype=torch.float32).eval()
    forward = forward_pass.Forward(model, "causal")
    forward.check(rows)
    asked.clear()
    got = forward.numbers(rows)
    assert asked == [3], "three positions are read"
    for values, expected in zip(got, row_answers(model.double(), rows), strict=True):
        assert values == pytest.approx(expected, abs=1e-4)
