"""What is refused, from records alone."""

from typing import Any

import pytest

from evaluator.comparison.comparable import check
from evaluator_serving.errors import InputError


def record(**model: Any) -> dict[str, Any]:
    """A run of one model."""
    return {"protocol": "default", "tasks": {"gest": {"sha256": {"g": "1"}, "definition": None}}, "models": {"m": model}}


def test_dtypes_and_templates_are_refused_together_and_can_be_allowed() -> None:
    one = record(dtype="float32", heads_used={"gest": ["masked"]})
    other = record(dtype="bfloat16", heads_used={"gest": ["causal"]})
    sides = (one, "m", "A"), (other, "m", "B")
    with pytest.raises(InputError) as refused:
        check("gest", *sides)
    assert str(refused.value) == (
        "B against A can't be compared on gest: templates for masked against causal models; dtype float32 against bfloat16: "
        "--allow templates --allow dtype compares them anyway"
    )
    with pytest.raises(InputError, match=r"on gest: dtype"):
        check("gest", *sides, allow=["templates"])
    assert check("gest", *sides, allow=["templates", "dtype"]) == (
        "B against A: templates for masked against causal models (--allow templates).",
        "B against A: dtype float32 against bfloat16 (--allow dtype).",
    )


def test_quantized_weights_are_another_dtype() -> None:
    plain, other = record(dtype="bfloat16"), record(dtype="bfloat16", details={"quantization": "fp8"})
    with pytest.raises(InputError, match="dtype bfloat16 against bfloat16 with weights in fp8: --allow dtype"):
        check("gest", (plain, "m", "A"), (other, "m", "B"))


def test_what_a_record_does_not_know_is_not_refused() -> None:
    assert check("gest", (record(imported=True), "m", "A"), (record(dtype="float32"), "m", "B")) == ()


def test_another_definition_is_other_data() -> None:
    other = record()
    other["tasks"]["gest"]["definition"] = "name = 'gest'"
    with pytest.raises(InputError, match=r"gest has another definition: only scores of the same samples can be compared"):
        check("gest", (record(), "m", "A"), (other, "m", "B"), allow=["dtype"])
