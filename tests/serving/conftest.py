"""The packaged real model, and an independent plain loop that says what its log-probabilities are.

Makes `completions_server` importable by the test modules beside it (pytest runs with --import-mode=importlib).
"""

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest

from evaluator.demo import demo_model
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource

sys.path.insert(0, str(Path(__file__).parent))

Loop = Callable[[tuple[int, ...]], np.ndarray]


@pytest.fixture(scope="session")
def smollm() -> ModelSource:
    """SmolLM2-135M-Instruct as float32 safetensors; skips where its package isn't installed."""
    pytest.importorskip("gguf", reason="the packaged model is a GGUF file: install the gguf extra")
    try:
        return resolve(str(demo_model()))
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def plain_loop() -> Callable[[Path], Loop]:
    """Of a model's folder: token ids → log P of every next token [len(ids), vocabulary], float64, one text at a time."""

    @cache
    def load(folder: Path) -> Loop:
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()

        @lru_cache(maxsize=64)
        def log_probs(ids: tuple[int, ...]) -> np.ndarray:
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([ids])).logits[0]
            return torch.log_softmax(logits, dim=-1).numpy()

        return log_probs

    return load


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client of a server wanted to wait before each retry; it doesn't wait."""
    wanted: list[float] = []
    monkeypatch.setattr("evaluator_serving.openai_engine.client.time.sleep", wanted.append)
    return wanted
