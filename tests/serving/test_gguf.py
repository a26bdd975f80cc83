"""GGUF files: the model that is read is the one that the file was written from, or the file is refused and says why.

The right values are those of the source models in float64; what the files hold is what llama.cpp's converter writes for them.
"""

import io
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from gguf_files import CONTEXT, HEAD, HEADS, INNER, KINDS, LAYERS, Case, byte_tokens, source, write
from tiny_models import WORDS, byte_level
from tokenizers import Regex, pre_tokenizers

from evaluator_serving.cache import content_hash
from evaluator_serving.encoding.text import TextTokenizer
from evaluator_serving.errors import InputError
from evaluator_serving.models.file_tokens import with_file_tokens
from evaluator_serving.models.gguf_config import ARCHITECTURES, UnusableGgufError, attributes
from evaluator_serving.models.gguf_tokenizer import PRE_TOKENIZERS
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import FileTokens, ModelSource
from evaluator_serving.models.speech import Speech
from evaluator_serving.models.tokenizer import TEXTS, load_tokenizer
from evaluator_serving.requests import Continuation

RAW = byte_level()
VOCABULARY = RAW.get_vocab_size()
TEXT = torch.randint(0, VOCABULARY, (1, 48), generator=torch.Generator().manual_seed(1))

LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0}
SCALED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "base": ({"rope_type": "default", "rope_theta": 5e5}, {"rope.freq_base": 5e5, "rope.scaling.type": "none"}),
    "linear": (
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        {"rope.freq_base": 1e4, "rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "rope.scaling.finetuned": True},
    ),
    "linear by its old name": ({"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}, {"rope.scale_linear": 2.5}),
    "yarn": (
        {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 32},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 32},
    ),
    "yarn with bounds": (
        {
            **{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64},
            **{"beta_fast": 24.0, "beta_slow": 2.0},
        },
        {
            **{"rope.freq_base": 1e6, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
            **{"rope.scaling.original_context_length": 64},
            **{"rope.scaling.yarn_beta_fast": 24.0, "rope.scaling.yarn_beta_slow": 2.0},
        },
    ),
}
"""Ways to scale positions, as transformers and as GGUF say it."""


def llama3(original: int) -> Case:
    """Llama 3's scaling, which a file has as one factor for each frequency."""
    rope = {**LLAMA3, "original_max_position_embeddings": original}
    model = source(Case("llama", {"rope_parameters": rope}), VOCABULARY)
    plain = 1.0 / LLAMA3["rope_theta"] ** (np.arange(0, HEAD, 2) / HEAD)
    factors = plain / model.model.rotary_emb.inv_freq.double().numpy()
    return Case("llama", {"rope_parameters": rope}, {}, {"rope_freqs.weight": factors})


def longrope(turned: int) -> Case:
    """Phi-3's: two sets of factors, of which the longest row chooses; a part of each head turns."""
    short, long = np.linspace(1.0, 1.5, turned // 2), np.linspace(1.2, 9.0, turned // 2)
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": short.tolist(), "long_factor": long.tolist()}
    return Case(
        "phi3",
        {
            **{"rope_parameters": {**rope, "partial_rotary_factor": turned / HEAD, "original_max_position_embeddings": 32}},
            **{"original_max_position_embeddings": 32, "sliding_window": 20},
        },
        {
            **{"rope.dimension_count": turned, "rope.scaling.original_context_length": 32, "rope.freq_base": 1e4},
            **{"rope.scaling.attn_factor": float(np.sqrt(1 + np.log(CONTEXT / 32) / np.log(32)))},
            **{"attention.sliding_window": 20},
        },
        {"rope_factors_short.weight": short, "rope_factors_long.weight": long},
    )


def partial(kind: str, part: float) -> Case:
    rope = {"rope_type": "default", "rope_theta": 2e4, "partial_rotary_factor": part}
    return Case(kind, {"rope_parameters": rope}, {"rope.dimension_count": int(part * HEAD), "rope.freq_base": 2e4})


GEMMA3 = Case(
    "gemma3",
    {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        },
        "final_logit_softcapping": 3.0,
        "layer_types": ["full_attention" if i in (2, 5) else "sliding_attention" for i in range(7)],
    },
    {
        **{"rope.freq_base": 1e6, "rope.freq_base_swa": 5e3, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        **{"final_logit_softcapping": 3.0, "attention.sliding_window_pattern": 3},
    },
)


TURNED = ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "falcon", "starcoder2", "stablelm", "nemotron", "gemma2")
PART = {"stablelm": {"partial_rotary_factor": 0.25}, "nemotron": {"partial_rotary_factor": 0.5}}
TIED = ("llama", "qwen2", "qwen3", "stablelm", "nemotron")
UNTIED = ("gemma3", "phi3", "falcon", "bloom", "gpt2", "starcoder2", "mamba", "lfm2")
CASES = {
    **{kind: Case(kind) for kind in KINDS},
    "llama, Llama 3.2's own numbers": llama3(8192),
    "llama, other factors": llama3(64),
    "llama with biases": Case("llama", {"attention_bias": True, "mlp_bias": True}),
    "qwen3 with biases": Case("qwen3", {"attention_bias": True}),
    "stablelm with biases, parallel": Case("stablelm", {"use_qkv_bias": True, "use_parallel_residual": True}),
    "nemotron with biases": Case("nemotron", {"attention_bias": True, "mlp_bias": True}),
    "phi3, LongRoPE": longrope(HEAD),
    "phi3, LongRoPE of a part": longrope(HEAD // 2),
    "gemma2, caps": Case(
        "gemma2",
        {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "sliding_window": 7},
        {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "attention.sliding_window": 7},
    ),
    "gemma3, scaled": GEMMA3,
    "qwen2moe, weights of experts": Case("qwen2moe", {"norm_topk_prob": True}, {"expert_weights_norm": True}),
    "qwen3moe, weights of experts": Case(
        "qwen3moe", {"norm_topk_prob": False}, {"expert_weights_norm": False, "expert_gating_func": 1}
    ),
    "llama, called mistral": Case("llama", title="mistral"),
    "qwen2, a key for each head": Case("qwen2", {"num_key_value_heads": HEADS}, {"attention.head_count_kv": None}),
    "qwen35 that guesses ahead": Case(
        "qwen35",
        {},
        {"block_count": LAYERS + 1, "nextn_predict_layers": 1},
        {f"blk.{LAYERS}.nextn.eh_proj.weight": np.ones((64, 128)), f"blk.{LAYERS}.attn_norm.weight": np.ones(64)},
    ),
    "gpt2, usual inner size": Case("gpt2", {"n_inner": None}, {"feed_forward_length": 256}),
    "mamba, another width": Case("mamba", {"expand": 3}, {"ssm.inner_size": 192}),
    **{f"{kind}, a part turns": partial(kind, part) for kind, part in (("stablelm", 0.75), ("nemotron", 1.0), ("phi3", 0.5))},
    **{
        f"{kind}, {how}": Case(kind, {"rope_parameters": {**rope, **PART.get(kind, {})}}, keys)
        for kind in TURNED
        for how, (rope, keys) in SCALED.items()
    },
    **{
        f"{kind}, tied": Case(kind, {"tie_word_embeddings": True})
        for kind in ("llama", "qwen2", "qwen3", "stablelm", "nemotron")
    },
    **{f"{kind}, untied": Case(kind, {"tie_word_embeddings": False}) for kind in UNTIED},
    **{f"{kind}, small epsilon": Case(kind, epsilon=1e-6) for kind in KINDS},
}
"""Files and the models that they are written from."""

FAST = (
    *("llama, Llama 3.2's own numbers", "llama, other factors", "qwen2, yarn", "qwen3, linear", "phi3, LongRoPE of a part"),
    *("gemma2, caps", "gemma3, scaled", "starcoder2, base", "nemotron with biases", "stablelm", "falcon", "gpt2", "lfm2"),
)

NOT_WRITTEN = {
    "general": "no architecture",
    "tokenizer": "no architecture",
    "mistral": "llama.cpp has no such architecture: Mistral's files are called llama",
    "qwen2_moe": "transformers' name of qwen2moe",
    "qwen3_moe": "transformers' name of qwen3moe",
    "gpt_oss": "refused: transformers names experts that its model doesn't have",
    "minimax_m2": "refused: not tried",
    "gemma4": "refused: the file's sizes of layers and embeddings per layer aren't read",
    "deci": "refused: transformers has no such model",
    "t5": "refused: no causal model",
    "umt5": "refused: no causal model",
}
"""Architectures of transformers' converter that no file is written for."""


pytestmark = pytest.mark.usefixtures("own_cache")


def log_probs(model: Any) -> torch.Tensor:
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        return torch.log_softmax(model(input_ids=TEXT).logits[0], dim=-1)


def difference(case: Case, folder: Path) -> float:
    """How far the model that is read of a case's file is from the one that it was written from."""
    model = source(case, VOCABULARY)
    write(case, model, folder / "model.gguf", RAW)
    read = transformers.AutoModelForCausalLM.from_pretrained(
        resolve(str(folder / "model.gguf")).path, dtype=torch.float64, experts_implementation="eager"
    )
    exact = transformers.AutoModelForCausalLM.from_config(model.config, experts_implementation="eager", dtype=torch.float64)
    exact.load_state_dict(model.state_dict())
    return float((log_probs(exact.eval()) - log_probs(read.eval())).abs().max())


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in CASES])
def test_the_model_of_a_file_is_the_one_that_it_was_written_from(name: str, tmp_path: Path) -> None:
    assert difference(CASES[name], tmp_path) < 5e-4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_drawn_metadata(seed: int, tmp_path: Path) -> None:
    """Numbers as no released model has them, several at once."""
    draw = random.Random(seed)
    kind, (rope, keys) = draw.choice(TURNED), draw.choice(list(SCALED.values()))
    theta = float(np.float32(10 ** draw.uniform(3, 6.5)))
    part = {"partial_rotary_factor": draw.choice([2, 4, 8, 12]) / HEAD} if kind in PART else {}
    turned = {"rope.dimension_count": int(part["partial_rotary_factor"] * HEAD)} if part else {}
    tied = kind in TIED and draw.random() < 0.5
    case = Case(
        kind,
        {"rope_parameters": {**rope, **part, "rope_theta": theta}, **({"tie_word_embeddings": True} if tied else {})},
        {**keys, **turned, "rope.freq_base": theta},
        epsilon=10 ** draw.uniform(-7, -2),
    )
    assert difference(case, tmp_path) < 5e-4


def test_every_architecture_of_the_converter_is_written_or_has_a_reason() -> None:
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    missing = set(GGUF_SUPPORTED_ARCHITECTURES) - set(KINDS) - set(NOT_WRITTEN)
    assert not missing
    assert set(ARCHITECTURES) == set(KINDS)


REFUSED: dict[str, tuple[Case, dict[str, Any]]] = {
    **{
        f"llama.{key} ": (Case("llama", keys={key: value}), {})
        for key, value in {
            **{"attention.sliding_window": 32, "attention.scale": 0.2, "attention.causal": False, "expert_count": 8},
            **{"logit_scale": 0.5, "residual_scale": 0.2, "embedding_scale": 12.0, "attn_logit_softcapping": 50.0},
            **{"rope.dimension_count": 8, "attention.value_length": 8, "rope.scaling.type": "dynamic", "something.new": 1},
            **{"attention.head_count_kv": [2, 1, 2, 1], "rope.scaling.attn_factor": 1.2, "rope.freq_base_swa": 5e3},
        }.items()
    },
    **{
        f"llama.{key} is missing": (Case("llama", keys={key: None}), {})
        for key in ("attention.layer_norm_rms_epsilon", "attention.head_count", "context_length", "block_count")
    },
    "llama.rope.scaling.yarn_ext_factor": (
        Case("llama", keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.yarn_ext_factor": 0.5}),
        {},
    ),
    "gemma3.rope.freq_base is missing": (Case("gemma3", keys={"rope.freq_base": None}), {}),
    "gemma3.attention.sliding_window_pattern": (Case("gemma3", keys={"attention.sliding_window_pattern": [True, False]}), {}),
    "qwen2.feed_forward_length": (Case("qwen2", keys={"feed_forward_length": [INNER] * LAYERS}), {}),
    "gemma2.attention.sliding_window is missing": (Case("gemma2", keys={"attention.sliding_window": None}), {}),
    "falcon.attention.head_count_kv": (Case("falcon", keys={"attention.head_count_kv": 2}), {}),
    "phi3.rope.scaling.factor": (Case("phi3", keys={"rope.scaling.factor": 4.0}), {}),
    "mamba.ssm.dt_b_c_rms": (Case("mamba", keys={"ssm.dt_b_c_rms": True}), {}),
    "qwen3moe.expert_gating_func": (Case("qwen3moe", keys={"expert_gating_func": 2}), {}),
    "qwen2moe.expert_weights_scale": (Case("qwen2moe", keys={"expert_weights_scale": 2.5}), {}),
    "blk.0.ffn_gate_exps.weight": (Case("llama", tensors={"blk.0.ffn_gate_exps.weight": np.ones((2, 4, 4))}), {}),
    "v.patch_embd.weight": (Case("llama", tensors={"v.patch_embd.weight": np.ones(4)}), {}),
    f"blk.{LAYERS}.attn_norm.weight": (Case("llama", tensors={f"blk.{LAYERS}.attn_norm.weight": np.ones(64)}), {}),
    "rope_freqs.weight": (Case("qwen2", tensors={"rope_freqs.weight": np.ones(HEAD // 2)}), {}),
    "rope_freqs.weight .7 factors for 8": (Case("llama", tensors={"rope_freqs.weight": np.full(7, 2.0)}), {}),
    "rope_factors_long.weight is missing": (Case("phi3", tensors={"rope_factors_short.weight": np.ones(HEAD // 2)}), {}),
    "lacks the weights of model.layers.1.mlp.up_proj.weight": (Case("llama", drop=("blk.1.ffn_up.weight",)), {}),
    "lacks the weights of model.layers.0.self_attn.k_proj.bias": (
        Case("llama", tensors={"blk.0.attn_output.bias": np.ones(64)}),
        {},
    ),
    "blk.0.attn_output.bias": (Case("qwen2", tensors={"blk.0.attn_output.bias": np.ones(64)}), {}),
    "of its .* numbers": (Case("llama", tensors={"blk.1.attn_output.bias": np.ones(64)}), {}),
    "llama.rope.scaling.factor is missing": (Case("llama", keys={"rope.scaling.type": "yarn"}), {}),
    "tokenizer.ggml.pre is missing": (Case("llama"), {"pre": None}),
    "tokenizer.ggml.pre is 'default'": (Case("llama"), {"pre": "default"}),
    "tokenizer.ggml.pre is 'superbpe'": (Case("llama"), {"pre": "superbpe"}),
    **{f"tokenizer.ggml.model is '{name}'": (Case("llama"), {"model": name}) for name in ("t5", "bert", "rwkv", "no_vocab")},
    **{f"tokenizer.ggml.{key} is true": (Case("llama"), {key: True}) for key in ("add_eos_token", "add_space_prefix")},
    "tokenizer.ggml.precompiled_charsmap": (Case("llama"), {"precompiled_charsmap": [1, 2, 3]}),
    "tokenizer.ggml.merges is missing": (Case("llama"), {"merges": None}),
    "tokenizer.ggml.tokens has": (Case("llama"), {"tokens": ["a"] * VOCABULARY}),
    "tokenizer.ggml.bos_token_id is missing": (Case("llama"), {"add_bos_token": True, "bos_token_id": None}),
}
"""What is in a file that can't be applied, by what the refusal says."""


@pytest.mark.parametrize("said", REFUSED)
def test_what_would_be_lost_is_refused_by_its_name(said: str, tmp_path: Path) -> None:
    case, tokenizer = REFUSED[said]
    write(case, source(Case(case.kind), VOCABULARY), tmp_path / "model.gguf", RAW, tokenizer)
    with pytest.raises(InputError) as caught:
        resolve(str(tmp_path / "model.gguf"))
    assert re.search(said, str(caught.value)), caught.value
    assert "model.gguf" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"general.architecture": "gemma4"}, "'gemma4', and only llama"),
        ({"general.architecture": "clip"}, "mmproj"),
        ({"general.architecture": "llama", "general.type": "adapter"}, "adapter"),
        ({"general.architecture": "llama", "split.count": 3, "split.no": 0}, "one of 3 parts"),
        ({}, "None"),
    ],
)
def test_files_that_hold_something_else(meta: dict[str, Any], said: str) -> None:
    with pytest.raises(UnusableGgufError, match=said):
        attributes(meta, {}, {})


@pytest.mark.parametrize(("kind", "layers", "scalar"), [("gemma2", 42, 256), ("gemma2", 46, 144), ("gemma3", 62, 168)])
def test_the_scale_of_attention_of_the_largest_gemmas(kind: str, layers: int, scalar: int) -> None:
    """What google/gemma-2-9b, gemma-2-27b and gemma-3-27b have in their config.json (`query_pre_attn_scalar`)."""
    width, heads, head = {42: (3584, 16, 256), 46: (4608, 32, 128), 62: (5376, 32, 128)}[layers]
    keys = {
        **{"context_length": 8192, "embedding_length": width, "block_count": layers, "feed_forward_length": 9},
        **{"attention.head_count": heads, "attention.head_count_kv": 4, "attention.layer_norm_rms_epsilon": 1e-6},
        **{"attention.key_length": head, "attention.value_length": head, "attention.sliding_window": 4096},
        "rope.freq_base": 1e4,
    }
    meta = {"general.architecture": kind, **{f"{kind}.{key}": value for key, value in keys.items()}}
    assert attributes(meta, {"token_embd.weight": (9, width)}, {})["query_pre_attn_scalar"] == scalar


# --- which model it is --------------------------------------------------------------------------------------------


def test_answers_of_a_model_that_was_read_rightly_before_stay_and_others_do_not(tmp_path: Path) -> None:
    revisions = {}
    for name, case in {"plain": Case("llama"), "scaled": Case("llama", keys=SCALED["linear"][1])}.items():
        write(case, source(Case("llama"), VOCABULARY), tmp_path / f"{name}.gguf", RAW)
        revisions[name] = resolve(str(tmp_path / f"{name}.gguf")).revision
    assert revisions["plain"] == content_hash([tmp_path / "plain.gguf"])
    assert revisions["scaled"] != content_hash([tmp_path / "scaled.gguf"])


# --- tokens -------------------------------------------------------------------------------------------------------

_DIGITS = pre_tokenizers.Digits(individual_digits=True)
_WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False)
RELEASED = {
    "gpt-2": _WORDS,
    "smollm": pre_tokenizers.Sequence([_DIGITS, _WORDS]),
    "falcon": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            _WORDS,
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
}
"""Pre-tokenizers as the released models' tokenizer.json has them."""


@pytest.mark.parametrize("pre", RELEASED)
def test_text_is_cut_as_the_released_tokenizer_does(pre: str, tmp_path: Path) -> None:
    write(Case("llama"), source(Case("llama"), VOCABULARY), tmp_path / "model.gguf", RAW, {"pre": pre})
    tokenizer = load_tokenizer(resolve(str(tmp_path / "model.gguf")))
    released = byte_level()
    released.pre_tokenizer = RELEASED[pre]
    texts = [text for text in TEXTS if "<|" not in text] + ["in 12  34\n\n5", "the man (a child), 1234567"]
    assert [tokenizer(text)["input_ids"] for text in texts] == [released.encode(text).ids for text in texts]
    assert tokenizer("<|endoftext|>the")["input_ids"][0] == 0


def test_cuts_that_transformers_knows_too_are_its_own() -> None:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    own = {
        name: [step["pattern"]["Regex"] for step in PRE_TOKENIZERS[name] if step["type"] == "Split"] for name in PRE_TOKENIZERS
    }
    assert own == own | {name: [pattern] for name, pattern in GGUF_PRE_TOKENIZER_SPLITS.items()}


def test_llama_3s_words_stay_whole_and_begin_with_bos(tmp_path: Path) -> None:
    """A word of the vocabulary that no merges lead to is one token there (`ignore_merges`), and BOS is the default."""
    raw = byte_level()
    keys = byte_tokens(raw)
    word = "strawberries"
    keys |= {
        "tokens": [*keys["tokens"], word],
        "token_type": [*keys["token_type"], 1],
        "pre": "llama-bpe",
        "add_bos_token": None,
    }
    write(Case("llama"), source(Case("llama"), VOCABULARY + 1), tmp_path / "model.gguf", raw, keys)
    tokenizer = load_tokenizer(resolve(str(tmp_path / "model.gguf")))
    assert tokenizer(word)["input_ids"] == [0, VOCABULARY]


def sentencepiece(**options: Any) -> Any:
    """A small SentencePiece tokenizer."""
    library = pytest.importorskip("sentencepiece")
    trained = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=(" ".join(WORDS[i % 7 :: 1 + i % 5]) for i in range(80)),
        model_writer=trained,
        vocab_size=360,
        model_type="bpe",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        minloglevel=2,
        **options,
    )
    return library.SentencePieceProcessor(model_proto=trained.getvalue())


def resolved(kind: str, right: Any, folder: Path, **more: Any) -> ModelSource:
    """A model of this kind, from a file with a SentencePiece tokenizer."""
    size = right.vocab_size()
    keys = {
        **{"model": "llama", "pre": "default", "merges": None, "add_bos_token": None},
        **{"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0},
        "tokens": [right.id_to_piece(i) for i in range(size)],
        "scores": [float(right.get_score(i)) for i in range(size)],
        "token_type": [
            2 if right.is_unknown(i) else 3 if right.is_control(i) else 6 if right.is_byte(i) else 1 for i in range(size)
        ],
    }
    write(Case(kind), source(Case(kind), size), folder / "model.gguf", tokenizer={**keys, **more})
    return resolve(str(folder / "model.gguf"))


SPOKEN = ("The nurse said that she is late.", "a  child\nfeels", "Žofie: 12 🙂", " the man", "  the  man ", " ", *WORDS)


@pytest.mark.parametrize(
    ("kind", "prefix", "bos", "named"),
    [
        ("llama", True, None, {}),
        ("llama", False, True, {}),
        ("llama", True, False, {"bos_piece": "<|startoftext|>", "eos_piece": "<|endoftext|>", "unk_piece": "[UNK]"}),
        ("gemma2", False, None, {}),
        ("phi3", True, True, {}),
    ],
)
def test_sentencepiece_tokens(kind: str, prefix: bool, bos: bool | None, named: dict[str, str], tmp_path: Path) -> None:
    """Those of SentencePiece itself, for vocabularies with and without a space put in front, and no others."""
    right = sentencepiece(add_dummy_prefix=prefix, **named)
    tokenizer = load_tokenizer(resolved(kind, right, tmp_path, add_space_prefix=prefix, add_bos_token=bos))
    for text in SPOKEN:
        assert tokenizer(text)["input_ids"] == [*([] if bos is False else [1]), *right.encode(text)]
    assert len(tokenizer) == right.vocab_size()


def test_spaces_in_front_are_those_of_llama_cpp(tmp_path: Path) -> None:
    """A space is put in front of what follows a control token, too; answers to other texts are those from before."""
    right = sentencepiece(control_symbols=["<|user|>"])
    model = resolved("llama", right, tmp_path)
    mark = right.piece_to_id("<|user|>")
    assert TextTokenizer(model, load_tokenizer(model)).control_ids("<|user|>the man") == (mark, *right.encode("the man"))
    asked = {text: with_file_tokens(model, [Continuation(text, (" he", " she"))]).tokenizer for text in ("the man", " the man")}
    assert asked == {"the man": FileTokens("LlamaTokenizer", False), " the man": FileTokens("LlamaTokenizer", True)}


@pytest.mark.parametrize("key", [None, "eot_token_id", "eom_token_id"])
def test_answers_end_where_the_file_says(key: str | None, tmp_path: Path) -> None:
    """With the end of a turn, which some files only have by its usual name, and with that of a text."""
    right = sentencepiece(control_symbols=["<turn|>", "<|im_start|>", "<end_of_turn>"])
    turn = right.piece_to_id("<turn|>")
    model = resolved("llama", right, tmp_path, **({key: turn} if key else {}))
    assert Speech.of(model).ends == (2, *([turn] if key else []), right.piece_to_id("<end_of_turn>"))
