"""SmolLM2 in the onnx engine on what GEST, StereoSet and WinoBias ask of it, against the transformers engine in float64."""

from pathlib import Path

import numpy as np
import pytest

from evaluator.tasks import task
from evaluator.tasks.base import DataSource
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx.engine import OnnxEngine
from evaluator_serving.requests import Request
from evaluator_serving.rows import Row, merge
from evaluator_serving.transformers_engine.engine import TransformersEngine

REQUESTS = 24
"""Of each task, spread evenly over it."""


def asked(name: str, data_dir: Path) -> list[Request]:
    """Some of a task's requests, the longest among them."""
    one = task(name)
    rendered = one.render(one.load(DataSource(data_dir)), frozenset({"causal"}), "default").requests
    every = sorted(rendered.values(), key=lambda request: len(repr(request)))
    return [*every[:: max(1, len(every) // (REQUESTS - 1))], every[-1]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gest", "stereoset-en", "winobias"])
def test_smollm2_is_exact_to_four_digits(name: str, smollm: ModelSource, data_dir: Path) -> None:
    encoder = encoder_for(smollm)
    encoded = []
    for request in asked(name, data_dir):
        try:
            encoded.append(encoder.encode(request))
        except InputError:
            continue
    rows: tuple[Row, ...] = merge(encoded).rows
    assert len(rows) >= REQUESTS - 4
    expected = np.concatenate(TransformersEngine(smollm, EngineOptions("float64", "cpu"), rows).score(rows))
    engine = OnnxEngine(smollm, EngineOptions(device="cpu"), rows)
    for _ in ("pruned", "plain"):
        found = np.concatenate(engine.score(rows))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
        engine.fall_back()
