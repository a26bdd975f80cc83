"""The reference and the CPU path against float64."""

import pytest
import torch
from hypothesis import example, given, settings
from problems import Problem, assert_exact, make, problems

from evaluator_kernels import cpu, masked_log_probs
from evaluator_kernels.reference import reference_log_probs


@given(problems(rows=9, vocabulary=300, depth=40))
@settings(max_examples=60, deadline=None)
def test_reference_equals_float64(problem: Problem) -> None:
    assert_exact(problem, reference_log_probs(problem.hidden, problem.weight, problem.candidates, problem.bias))


@given(problems(rows=9, vocabulary=300, depth=40))
@settings(max_examples=100, deadline=None)
@example(make(9, 300, 8, 3, dtype=torch.float32, bias="holes", scale=1e4, seed=1))
def test_cpu_path_equals_float64_over_several_blocks(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "MIN_BLOCK", 64)
        patch.setattr(cpu, "BLOCK_BYTES", 0)
        patch.setattr(cpu, "MAX_ROWS", 4)
        assert_exact(problem, masked_log_probs(problem.hidden, problem.weight, problem.candidates, problem.bias))


def test_cpu_path_at_its_real_block_sizes() -> None:
    problem = make(40, 30_001, 64, 4, dtype=torch.float32, bias="plain", scale=10.0, seed=3)
    answer = masked_log_probs(problem.hidden, problem.weight, problem.candidates, problem.bias)
    assert_exact(problem, answer)


def test_a_first_block_of_minus_infinity_is_no_nan() -> None:
    bias = torch.zeros(200)
    bias[:150] = float("-inf")
    problem = Problem(torch.ones(2, 3), torch.ones(200, 3), torch.tensor([[0, 199], [-1, 150]]), bias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "MIN_BLOCK", 64)
        patch.setattr(cpu, "BLOCK_BYTES", 0)
        answer = masked_log_probs(problem.hidden, problem.weight, problem.candidates, problem.bias)
    # 50 entries of equal logit 3 remain: log P = -log 50 for each of them, log-sum-exp = 3 + log 50.
    log_50 = 3.912023005428146
    expected = torch.tensor([[float("-inf"), -log_50], [float("-inf"), -log_50]])
    torch.testing.assert_close(answer.log_probs, expected)
    torch.testing.assert_close(answer.logsumexp, torch.full((2,), 3 + log_50))


def test_a_row_without_any_probability_is_nan_and_stays_alone() -> None:
    hidden = torch.tensor([[1.0], [0.0]])
    weight = torch.tensor([[float("-inf")], [float("-inf")]])
    answer = masked_log_probs(hidden[:1], weight, torch.tensor([[0]]))
    assert answer.logsumexp.item() == float("-inf")
    assert answer.log_probs.isnan().all()


def test_probabilities_of_all_entries_sum_to_one() -> None:
    problem = make(3, 57, 8, 0, dtype=torch.float32, bias="plain", scale=5.0, seed=5)
    everything = torch.arange(57).expand(3, 57)
    total = masked_log_probs(problem.hidden, problem.weight, everything, problem.bias).log_probs.exp().sum(dim=1)
    torch.testing.assert_close(total, torch.ones(3))


def test_a_block_of_logits_is_the_only_large_allocation() -> None:
    rows, vocabulary = 64, 200_000
    problem = make(rows, vocabulary, 4, 2, dtype=torch.float32, bias="none", scale=1.0, seed=7)
    shapes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                shapes.append(out.numel())
            return out

    with Watch():
        masked_log_probs(problem.hidden, problem.weight, problem.candidates)
    largest_allowed = max(cpu.BLOCK_BYTES // 4, rows * cpu.MIN_BLOCK, problem.weight.numel())
    assert max(shapes) <= largest_allowed < rows * vocabulary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": torch.ones(5, 4)}, "do not fit"),
        ({"weight": torch.ones(0, 3)}, "empty"),
        ({"weight": torch.ones(5, 3).half()}, "must both be"),
        ({"candidates": torch.zeros(3, 1).long()}, "N = 2"),
        ({"candidates": torch.zeros(2, 1)}, "int32 or int64"),
        ({"candidates": torch.full((2, 1), 5)}, "from 5 to 5"),
        ({"candidates": torch.full((2, 1), -2)}, "from -2 to -2"),
        ({"bias": torch.zeros(4)}, "V = 5"),
        ({"bias": torch.zeros(5, device="meta")}, "one device"),
    ],
)
def test_input_that_does_not_fit_is_named(change: dict[str, torch.Tensor], message: str) -> None:
    arguments = {"hidden": torch.ones(2, 3), "weight": torch.ones(5, 3), "candidates": torch.zeros(2, 1).long()}
    with pytest.raises(ValueError, match=message):
        masked_log_probs(**{**arguments, **change})
