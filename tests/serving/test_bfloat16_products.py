"""Models whose linear layers multiply in bfloat16: bf16x2 against float64, the vocabulary head of bfloat16, falling back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny_models import tiny_model

from evaluator_serving.checks.verify import verify_engine
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.rows import Head, Row
from evaluator_serving.transformers_engine import products
from evaluator_serving.transformers_engine.engine import TransformersEngine
from tests.float64_loop import saved_answers

SPLIT = EngineOptions("bf16x2", "cpu")

needs_products = pytest.mark.skipif(
    products.bfloat16_products() is None, reason="this CPU has no units for bfloat16, or there is no C++ compiler"
)


def rows_of(head: Head) -> list[Row]:
    """Rows that share beginnings, of several lengths, each read at several positions."""
    texts = [tuple(5 + (3 * i + 7 * (i > 6) * n) % 40 for i in range(length)) for n in range(3) for length in (4, 9, 23)]
    return [Row(head, ids, tuple((at, 6 + at % 9) for at in range(1, len(ids), 2))) for ids in dict.fromkeys(texts)]


def expected(folder: Path, head: Head, rows: list[Row]) -> np.ndarray:
    """By transformers in float64, a row at a time."""
    auto = {"causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM"}[head]
    return np.concatenate(saved_answers(folder, rows, auto))


def largest(engine: TransformersEngine, rows: list[Row], numbers: np.ndarray) -> float:
    return float(np.abs(np.concatenate(engine.score(rows)) - numbers).max())


@needs_products
@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("family", "head"), [("gpt2", "causal"), ("llama", "causal"), ("bert", "masked")])
def test_bf16x2_is_float32_whatever_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, head: Head, weights: torch.dtype
) -> None:
    """Weights that aren't exact in bfloat16 are split as well where that is faster than float32."""
    monkeypatch.setattr(products, "gain", lambda parts: 2.0)
    folder = tiny_model(family, tmp_path / "model")
    if weights == torch.bfloat16:
        model = transformers.AutoModelForMaskedLM if head == "masked" else transformers.AutoModelForCausalLM
        model.from_pretrained(folder, dtype=weights).save_pretrained(folder)
    rows = rows_of(head)
    numbers = expected(folder, head, rows)
    source = resolve(str(folder))
    for tokens in (None, 8, 40):
        engine = TransformersEngine(source, replace(SPLIT, batch_tokens=tokens), rows)
        assert largest(engine, rows, numbers) < 1e-3
    said = engine.details()["linear_layers"][head]
    assert "bf16x2" in said
    assert "float32" not in said


@needs_products
def test_weights_that_are_not_exact_stay_in_float32_where_that_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "gain", lambda parts: 0.7)
    source = resolve(str(tiny_model("llama", tmp_path)))
    said = TransformersEngine(source, SPLIT, rows_of("causal")).details()["linear_layers"]["causal"]
    assert said.startswith("15 in float32 (")  # two layers of seven, and the vocabulary head


@pytest.mark.parametrize("lacking", ["units", "compiler"])
def test_without_units_or_compiler_bf16x2_is_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    monkeypatch.setattr(products, "bfloat16_products", lambda: None)
    monkeypatch.setattr(products, "bfloat16_units", lambda: None if lacking == "units" else "avx512_bf16")
    folder, rows = tiny_model("gpt2", tmp_path), rows_of("causal")
    engine = TransformersEngine(resolve(str(folder)), SPLIT, rows)
    assert largest(engine, rows, expected(folder, "causal", rows)) < 1e-4
    said = engine.details()["linear_layers"]["causal"]
    assert said.startswith("9 in float32 (")
    assert ("no bfloat16 units" in said) == (lacking == "units")


def test_matrix_units_without_a_compiler_multiply_stacked_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN multiplies them in float32 where the units are not really there: the parts and their sum are the same."""
    monkeypatch.setattr(products, "bfloat16_products", lambda: None)
    monkeypatch.setattr(products, "bfloat16_units", lambda: "amx_bf16")
    folder = tiny_model("gpt2", tmp_path)
    transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    rows = rows_of("causal")
    engine = TransformersEngine(resolve(str(folder)), SPLIT, rows)
    assert largest(engine, rows, expected(folder, "causal", rows)) < 1e-3
    assert engine.details()["linear_layers"]["causal"].startswith("9 in bf16x2 (stacked")
    assert engine.fall_back()
    assert largest(engine, rows, expected(folder, "causal", rows)) < 1e-4


def test_a_stacked_product_has_float32s_infinities_and_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "bfloat16_products", lambda: None)
    monkeypatch.setattr(products, "bfloat16_units", lambda: "amx_bf16")
    linear = torch.nn.Linear(70, 130)
    linear.weight.data = linear.weight.data.bfloat16().float()
    x = torch.zeros(6, 70)
    x[range(6), range(6)] = torch.tensor([torch.inf, -torch.inf, torch.nan, 3.4e38, 1e-40, 0.0])
    before = torch.backends.mkldnn.matmul.fp32_precision
    with torch.no_grad():
        expected = linear(x)
        products.pack_weights(torch.nn.Sequential(linear), split=True)
        assert type(linear) is products.StackedLinear
        torch.testing.assert_close(linear(x), expected, rtol=1e-4, atol=1e-6, equal_nan=True)
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@needs_products
def test_the_vocabulary_head_of_bfloat16_is_not_rounded_to_it(tmp_path: Path) -> None:
    """Logits of 8 and above have steps of 2^-5 and more in bfloat16: nearly all would be multiples of 2^-8."""
    folder, rows = tiny_model("llama", tmp_path), rows_of("causal")
    engine = TransformersEngine(resolve(str(folder)), EngineOptions("bfloat16", "cpu"), rows)
    logits, _ = engine._forwards["causal"].logits(rows)
    assert logits.dtype == torch.float32
    assert ((logits * 2**8) % 1 == 0).float().mean() < 0.1
    assert largest(engine, rows, expected(folder, "causal", rows)) < 0.6


@needs_products
def test_wrong_products_give_way_to_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go wrong after the check on loading: what the run's own rows show is seen, told and mended."""
    monkeypatch.setattr(products, "gain", lambda parts: 2.0)
    folder, rows = tiny_model("llama", tmp_path), rows_of("causal")
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))  # nothing is remembered of the oracle
    source = resolve(str(folder))
    engine = TransformersEngine(source, SPLIT, rows)
    plain = products.Products.__call__
    monkeypatch.setattr(products.Products, "__call__", lambda *given: plain(*given) * 1.1)
    verified = verify_engine(engine, source, SPLIT, rows)
    assert "fell back" in str(verified)
    assert "verified against transformers" in str(verified)
    assert verified.difference < 1e-3
    assert "bf16x2" not in engine.details()["linear_layers"]["causal"]
    assert not engine.fall_back()


@needs_products
def test_bf16x2_is_verified_against_float32(tmp_path: Path) -> None:
    source = resolve(str(tiny_model("llama", tmp_path)))
    rows = rows_of("causal")
    engine = TransformersEngine(source, SPLIT, rows)
    verified = verify_engine(engine, source, SPLIT, rows)
    assert verified.method.startswith("transformers")
    assert 0 <= verified.difference < 1e-3 == verified.tolerance


def test_bf16x2_is_refused_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator_serving.engine.check_cuda", lambda name: None)
    with pytest.raises(InputError, match=r"bf16x2 is for CPUs: use float32 or bfloat16 on a GPU, or --device cpu"):
        TransformersEngine.check_here(EngineOptions("bf16x2", "cuda"), frozenset({"causal"}))
