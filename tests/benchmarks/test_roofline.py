"""What the kernel must do at least, counted: against torch's own count of operations and bytes counted by hand."""

import gpu.roofline as counted
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from evaluator_kernels.reference import reference_log_probs


def test_operations_are_those_that_torch_counts() -> None:
    hidden, weight = torch.randn(5, 24), torch.randn(70, 24)
    with FlopCounterMode(display=False) as counter:
        reference_log_probs(hidden, weight, torch.zeros(5, 2, dtype=torch.int64))
    assert counted.work(5, 70, 24, 2, size=4, splits=3).products == counter.get_total_flops()


def test_bytes_by_hand() -> None:
    """2 rows, 3 words, width 4, 1 candidate, bfloat16, 2 splits: hidden 16, weight 24, bias 6, ids 16, pairs 2 x 2 x 8 = 32."""
    asked = counted.work(2, 3, 4, 1, size=2, splits=2)
    assert (asked.read, asked.written) == (16 + 24 + 6 + 16 + 32, 8 + 8 + 32)
    assert (asked.exponentials, asked.finish) == (6, 16)
    assert counted.work(2, 3, 4, 1, size=2, splits=2, bias=False).read == asked.read - 6


def test_time_is_the_larger_of_the_two() -> None:
    few, many = (counted.work(n, 50_000, 768, 4, size=4, splits=8) for n in (1, 4096))
    plain = counted.Ceilings(1000.0, {"float32": 50.0})
    assert counted.roofline(few, plain, "float32") == (pytest.approx(few.moved / 1e9), "memory")
    assert counted.roofline(many, plain, "float32") == (pytest.approx((many.products + many.finish) / 50e9), "arithmetic")
    with_tf32 = counted.Ceilings(1000.0, {"float32": 50.0, "tf32": 450.0})
    assert counted.roofline(many, with_tf32, "float32")[0] == pytest.approx((many.products + many.finish) / 150e9)
