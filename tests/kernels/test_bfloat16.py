"""Products of bfloat16 numbers with float32 sums, against float64 and against what float32 gives."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator_kernels.bfloat16 import LaidOut, Products, is_exact
from evaluator_serving.devices import bfloat16_units

TINY = 1e-37
"""Units for bfloat16 take subnormal numbers for zero: each term may be wrong by so much times the other factor."""


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Products:
    if bfloat16_units() is None:
        pytest.skip("this CPU has no units for bfloat16 (avx512_bf16 or amx_bf16)")
    made = Products.load(tmp_path_factory.mktemp("kernels"))
    if made is None:
        pytest.skip("no C++ compiler is installed")
    return made


def magnitudes(shape: tuple[int, int], low: float, high: float, seed: int) -> torch.Tensor:
    """Numbers of both signs whose magnitudes are spread evenly over decades."""
    dice = torch.Generator().manual_seed(seed)
    size = 10 ** (low + (high - low) * torch.rand(shape, generator=dice, dtype=torch.float64))
    return (size * (torch.randint(0, 2, shape, generator=dice) * 2 - 1)).float()


shapes = st.tuples(st.integers(1, 70), st.integers(1, 140), st.integers(1, 90))
decades = st.tuples(st.floats(-6, 6), st.floats(-6, 6)).map(sorted)


@given(shape=shapes, x=decades, w=decades, exact=st.booleans(), bias=st.booleans(), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_split_products_equal_float64(
    products: Products, shape: tuple[int, int, int], x: list[float], w: list[float], exact: bool, bias: bool, seed: int
) -> None:
    """Within 2^-15 of each term: two roundings to 2^-17 and one product of two rests, which is left out."""
    rows, outputs, width = shape
    left, weight = magnitudes((rows, width), *x, seed), magnitudes((outputs, width), *w, seed + 1)
    weight = weight.bfloat16().float() if exact else weight
    offset = magnitudes((1, outputs), *x, seed + 2)[0] if bias else None
    got = products(left, LaidOut.of(weight, 1 if exact else 2), offset)
    added = 0 if offset is None else offset.double()
    expected = left.double() @ weight.double().T + added
    terms = left.abs().double() @ weight.abs().double().T + (0 if offset is None else offset.abs().double())
    assert ((got - expected).abs() <= 2**-15 * terms + TINY).all()


@given(shape=shapes, seed=st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_products_of_bfloat16_are_exact_but_for_float32_sums(
    products: Products, shape: tuple[int, int, int], seed: int
) -> None:
    rows, outputs, width = shape
    x, weight = magnitudes((rows, width), -3, 3, seed).bfloat16(), magnitudes((outputs, width), -3, 3, seed + 1).bfloat16()
    terms = x.abs().double() @ weight.abs().double().T
    assert ((products(x, LaidOut.of(weight, 1)) - x.double() @ weight.double().T).abs() <= 1e-5 * terms).all()


special = st.sampled_from([0.0, -0.0, 1e-40, -1e-45, 1e-38, float("inf"), float("-inf"), float("nan"), 1.0, -3.3e38, 3.4e38])


@given(values=st.lists(special, min_size=1, max_size=40), parts=st.sampled_from([1, 2]), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_zeros_subnormals_infinities_and_nan_as_float32_gives_them(
    products: Products, values: list[float], parts: int, seed: int
) -> None:
    """Weights include zeros (infinity times zero is NaN) and are at most 1e-3, so that large numbers don't overflow."""
    x = torch.tensor([values])
    weight = magnitudes((70, len(values)), -6, -3, seed)
    weight[::5] = 0.0
    weight = weight.bfloat16().float() if parts == 1 else weight
    got, expected = products(x, LaidOut.of(weight, parts))[0], (x @ weight.T)[0]
    finite = expected.isfinite()
    torch.testing.assert_close(got[~finite], expected[~finite], equal_nan=True)
    terms = (x.abs() @ weight.abs().T)[0]
    assert ((got - expected).abs()[finite] <= 2**-15 * terms[finite] + TINY).all()


@given(shape=shapes, seed=st.integers(0, 999))
@settings(max_examples=10, deadline=None)
def test_a_laid_out_weight_comes_back(shape: tuple[int, int, int], seed: int) -> None:
    weight = magnitudes((shape[1], shape[2]), -6, 6, seed)
    exact = weight.bfloat16().float()
    assert is_exact(exact)
    assert torch.equal(LaidOut.of(exact, 1).weight(), exact)
    assert torch.equal(LaidOut.of(exact, 2).weight(), exact)
    assert ((LaidOut.of(weight, 2).weight() - weight).abs() <= 2**-16 * weight.abs()).all()


def test_rows_do_not_depend_on_the_rows_beside_them(products: Products) -> None:
    x, weight = magnitudes((130, 96), -2, 2, 0), LaidOut.of(magnitudes((75, 96), -2, 0, 1), 2)
    whole = products(x.view(2, 65, 96), weight)
    assert whole.shape == (2, 65, 75)
    for row in (0, 63, 64, 129):
        torch.testing.assert_close(products(x[row], weight), whole.view(130, 75)[row], rtol=1e-6, atol=1e-5)


def test_without_onednn_there_are_none(products: Products, tmp_path: Path) -> None:
    """PyTorch's microkernel then throws; nothing must crash."""
    with torch.backends.mkldnn.flags(enabled=False):
        with pytest.raises(RuntimeError, match="multiplies no bfloat16 here"):
            products(torch.ones(2, 40), LaidOut.of(torch.ones(3, 40), 1))
        assert Products.load(tmp_path) is None


@pytest.mark.parametrize("compiler", ["/nowhere/c++", "false"])
def test_without_a_working_compiler_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    monkeypatch.setitem(os.environ, "CXX", compiler)
    assert Products.load(tmp_path) is None
    assert not list(tmp_path.iterdir())
