"""Engines checked at load: against the oracle where it fits, against themselves where it doesn't."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import tiny_model

from evaluator_serving.checks import verify
from evaluator_serving.checks.verify import sample_rows, verify_engine
from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.engine import TransformersEngine

ROWS = [Row("causal", tuple(range(5, 6 + n)), ((n, 9), (n, 11))) for n in range(1, 30)]

Change = Callable[[list[np.ndarray]], list[np.ndarray]]


class Changed(Engine):
    """The oracle's own numbers, changed; `fall_back` goes over to them unchanged if it is allowed to."""

    def __init__(self, source: ModelSource, change: Change, *, plain: bool = False) -> None:
        self.engine = TransformersEngine(source, EngineOptions(), ROWS[:1])
        self.change = change
        self.plain = plain
        self.calls: list[int] = []

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        self.calls.append(len(rows))
        return self.change([np.array(a) for a in self.engine.score(rows)])

    def close(self) -> None:
        self.engine.close()

    def fall_back(self) -> bool:
        self.change = (lambda answers: answers) if self.plain else self.change
        return self.plain


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """A small GPT-2."""
    return resolve(str(tiny_model("gpt2", tmp_path_factory.mktemp("gpt2"))))


def shift(by: float) -> Change:
    """Adds `by` to the last number of the last row."""

    def change(answers: list[np.ndarray]) -> list[np.ndarray]:
        answers[-1][-1] += by
        return answers

    return change


def test_an_exact_engine_is_verified_against_the_oracle(source: ModelSource) -> None:
    result = verify_engine(Changed(source, shift(0)), source, EngineOptions(), ROWS)
    assert result.method == "transformers"
    assert result.difference < 1e-5
    assert result.reads == 2 * len(sample_rows(ROWS))
    assert "transformers" in str(result)


@pytest.mark.parametrize(("dtype", "by"), [("float32", 5e-4), ("bfloat16", 0.4)])
def test_a_difference_within_tolerance_is_recorded(source: ModelSource, dtype: str, by: float) -> None:
    engine = Changed(source, shift(0))
    engine.engine = TransformersEngine(source, EngineOptions(dtype=dtype), ROWS[:1])
    plain = verify_engine(engine, source, EngineOptions(dtype=dtype), ROWS).difference
    engine.change = shift(by)
    assert plain <= verify_engine(engine, source, EngineOptions(dtype=dtype), ROWS).difference <= plain + by + 1e-6


@pytest.mark.parametrize("by", [2e-3, -2e-3, np.nan, np.inf])
def test_a_wrong_engine_is_refused_with_both_values(source: ModelSource, by: float) -> None:
    with pytest.raises(InputError, match="this engine is wrong here") as caught:
        verify_engine(Changed(source, shift(by)), source, EngineOptions(), ROWS)
    assert "\n" not in str(caught.value)
    if np.isfinite(by):
        right = float(TransformersEngine(source, EngineOptions(), ROWS[-1:]).score(ROWS[-1:])[0][-1])
        shown = [float(number) for number in re.findall(r"-\d+\.\d{6}", str(caught.value))]
        assert shown == pytest.approx([right + by, right], abs=1e-5)


@pytest.mark.parametrize(("token", "left"), [(20, 14), (5, 0)])
def test_rows_without_finite_numbers_are_left_to_the_run(token: int, left: int, source: ModelSource, tmp_path: Path) -> None:
    """ROWS 1 to 14 are without token 20; each has token 5."""
    shutil.copytree(source.path, tmp_path / "nan")
    weights = load_file(tmp_path / "nan" / "model.safetensors")
    weights["transformer.wte.weight"][token] = torch.nan
    weights["lm_head.weight"] = load_file(source.path / "model.safetensors")["transformer.wte.weight"]
    save_file(weights, tmp_path / "nan" / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "nan" / "config.json").read_text())
    (tmp_path / "nan" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    poisoned = resolve(str(tmp_path / "nan"))
    engine = Changed(poisoned, shift(0))
    assert verify_engine(engine, poisoned, EngineOptions(), ROWS).reads == 2 * sum(
        row in ROWS[:left] for row in sample_rows(ROWS)
    )
    if left:
        with pytest.raises(InputError, match="this engine is wrong here"):
            verify_engine(Changed(poisoned, shift(1.0)), poisoned, EngineOptions(), ROWS)


def test_a_wrong_graph_gives_way_to_the_plain_one(source: ModelSource) -> None:
    result = verify_engine(Changed(source, shift(1.0), plain=True), source, EngineOptions(), ROWS)
    assert "fell back" in result.method


@pytest.mark.parametrize(
    "no_room", [{"quantization": "fp8"}, {}], ids=["quantized weights have no oracle", "the oracle doesn't fit"]
)
def test_without_an_oracle_rows_alone_are_compared_with_rows_together(
    source: ModelSource, no_room: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not no_room:
        monkeypatch.setattr(verify, "available_memory", lambda: 1000)
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    engine = Changed(source, shift(0))
    options = EngineOptions(**no_room)
    result = verify_engine(engine, source, options, ROWS)
    count = len(sample_rows(ROWS))
    assert result.method.startswith("itself")
    assert sorted(engine.calls) == [1] * count + [count]
    engine.change = lambda answers: shift(1.0)(answers) if len(answers) > 1 else answers
    with pytest.raises(InputError, match="this engine is wrong here"):
        verify_engine(engine, source, options, ROWS)


def test_sampled_rows_cover_every_head_from_the_shortest_to_the_longest() -> None:
    masked = [Row("masked", (1,) * n, ((0, 1),)) for n in range(3, 60)]
    few = sample_rows([*ROWS, *masked])
    assert len(few) <= 2 * verify.ROWS
    for rows in (ROWS, masked):
        lengths = [row.length for row in few if row.head == rows[0].head]
        assert min(lengths) == min(row.length for row in rows)
        assert max(lengths) == max(row.length for row in rows)
    assert sample_rows(ROWS[:1]) == ROWS[:1]


def test_a_missing_folder_has_no_oracle(source: ModelSource, tmp_path: Path) -> None:
    empty = ModelSource("empty", tmp_path, "none", source.heads, source.config, source.context)
    assert verify_engine(Changed(source, shift(0)), empty, EngineOptions(), ROWS).method.startswith("itself")
