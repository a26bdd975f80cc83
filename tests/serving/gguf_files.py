"""Small models written as GGUF files, with the tensors and keys that llama.cpp's converter gives each architecture."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tiny_models import byte_level, drawn_wide
from tokenizers import Tokenizer

LAYERS, HEADS, KV, HEAD, HIDDEN, INNER, CONTEXT = 4, 4, 2, 16, 64, 96, 256

Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """How a model of one architecture is made and written.

    Attributes:
        model: prefix of its configuration's class.
        config: options of the configuration, as little as it takes.
        keys: the metadata, after the architecture's name.
        rewritten: what the converter does to the tensors, by their names in transformers, beyond renaming.
        norm: attribute with the norms' epsilon, and the key that has it.
    """

    model: str
    config: Mapping[str, Any]
    keys: Mapping[str, Any]
    rewritten: Callable[[Tensors], Tensors] = lambda tensors: tensors
    norm: tuple[str, str] = ("rms_norm_eps", "attention.layer_norm_rms_epsilon")


_SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "intermediate_size": INNER,
    "max_position_embeddings": CONTEXT,
}
_KEYS = {
    "context_length": CONTEXT,
    "embedding_length": HIDDEN,
    "block_count": LAYERS,
    "feed_forward_length": INNER,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_EXPERT_KEYS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 24}
_LAYERNORM = "attention.layer_norm_epsilon"


def _each(change: Callable[[str, np.ndarray], np.ndarray]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: change(name, tensor) for name, tensor in tensors.items()}


def _interleaved(name: str, tensor: np.ndarray) -> np.ndarray:
    heads = HEADS if ".q_proj." in name else KV if ".k_proj." in name else 0
    if not heads:
        return tensor
    return tensor.reshape(heads, 2, len(tensor) // heads // 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def _plus_one(name: str, tensor: np.ndarray) -> np.ndarray:
    return tensor + 1 if name.endswith("norm.weight") else tensor


def _transposed(name: str, tensor: np.ndarray) -> np.ndarray:
    linear = any(part in name for part in (".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
    return tensor.T if linear else tensor


def _bloom(name: str, tensor: np.ndarray) -> np.ndarray:
    if "query_key_value" not in name:
        return tensor
    return np.concatenate(tensor.reshape(HEADS, 3, HEAD, *tensor.shape[1:]).swapaxes(0, 1)).reshape(tensor.shape)


def _mamba(name: str, tensor: np.ndarray) -> np.ndarray:
    return -np.exp(tensor) if name.endswith("A_log") else tensor[:, 0] if "conv1d.weight" in name else tensor


def _squeezed(name: str, tensor: np.ndarray) -> np.ndarray:
    return tensor[:, 0] if "conv.conv.weight" in name else tensor


def _qwen35(tensors: Tensors) -> Tensors:
    """Norms with one added, and the heads of values in turns of the keys' heads instead of in groups (two of each here)."""

    def by_turns(tensor: np.ndarray, width: int) -> np.ndarray:
        return tensor.reshape(2, 2, width, *tensor.shape[1:]).swapaxes(0, 1).reshape(tensor.shape)

    out = {}
    for name, tensor in tensors.items():
        if "norm.weight" in name and "linear_attn" not in name:
            out[name] = tensor + 1
        elif name.endswith("A_log"):
            out[name] = by_turns(-np.exp(tensor), 1)
        elif name.endswith(("dt_bias", "in_proj_a.weight", "in_proj_b.weight")):
            out[name.replace("dt_bias", "dt_proj.bias")] = by_turns(tensor, 1)
        elif name.endswith("in_proj_z.weight"):
            out[name] = by_turns(tensor, 8)
        elif name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            out[name] = np.concatenate([tensor[:32], by_turns(tensor[32:], 8)]).squeeze()
        elif name.endswith("out_proj.weight"):
            out[name] = by_turns(tensor.T, 8).T
        else:
            out[name] = tensor
    return _experts(out)


def _experts(tensors: Tensors) -> Tensors:
    out = {}
    for name, tensor in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(tensor, 2, axis=1)
            out |= {name.replace("gate_up_proj", "gate_proj.weight"): gate, name.replace("gate_up_proj", "up_proj.weight"): up}
        elif name.endswith("experts.down_proj"):
            out[f"{name}.weight"] = tensor
        else:
            out[name] = tensor[0] if name.endswith("shared_expert_gate.weight") else tensor
    return out


_GEMMA_KEYS = {**_KEYS, "attention.key_length": 32, "attention.value_length": 32, "attention.sliding_window": 4}
_GEMMA3_KEYS = {**_GEMMA_KEYS, "block_count": 7, "rope.freq_base": 1e6}
_GEMMA = {**_SIZES, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 4}

_LINEAR = {
    **{"head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8},
    **{"linear_value_head_dim": 8, "linear_conv_kernel_dim": 4},
    "rope_parameters": {
        **{"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25},
        **{"mrope_section": [2, 1, 1], "mrope_interleaved": True},
    },
}
_LINEAR_KEYS = {
    **{**_KEYS, "attention.key_length": 32, "attention.value_length": 32, "full_attention_interval": 4},
    **{"ssm.conv_kernel": 4, "ssm.state_size": 8, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 32},
    **{"rope.freq_base": 1e5, "rope.dimension_count": 8, "rope.dimension_sections": [2, 1, 1, 0]},
}
_SHARED = {"shared_expert_intermediate_size": 40}
_SHARED_KEYS = {"expert_shared_feed_forward_length": 40}

KINDS: Mapping[str, Kind] = {
    "qwen35": Kind("Qwen3_5Text", {**_SIZES, **_LINEAR}, _LINEAR_KEYS, _qwen35),
    "qwen35moe": Kind(
        "Qwen3_5MoeText",
        {**_SIZES, **_LINEAR, **_EXPERTS, **_SHARED},
        {**_LINEAR_KEYS, **_EXPERT_KEYS, **_SHARED_KEYS, "feed_forward_length": None},
        _qwen35,
    ),
    "llama": Kind("Llama", _SIZES, {**_KEYS, "rope.dimension_count": HEAD}, _each(_interleaved)),
    "qwen2": Kind("Qwen2", _SIZES, _KEYS),
    "qwen2moe": Kind(
        "Qwen2Moe",
        {**_SIZES, **_EXPERTS, **_SHARED},
        {**_KEYS, **_EXPERT_KEYS, **_SHARED_KEYS},
        _experts,
    ),
    "qwen3": Kind("Qwen3", {**_SIZES, "head_dim": 32}, {**_KEYS, "attention.key_length": 32, "attention.value_length": 32}),
    "qwen3moe": Kind(
        "Qwen3Moe",
        {**_SIZES, **_EXPERTS, "head_dim": 32, "norm_topk_prob": True},
        {**_KEYS, **_EXPERT_KEYS, "attention.key_length": 32, "attention.value_length": 32},
        _experts,
    ),
    "gemma2": Kind("Gemma2", _GEMMA, _GEMMA_KEYS, _each(_plus_one)),
    "gemma3": Kind("Gemma3Text", {**_GEMMA, "num_hidden_layers": 7}, _GEMMA3_KEYS, _each(_plus_one)),
    "phi3": Kind("Phi3", {**_SIZES, "pad_token_id": 0}, {**_KEYS, "rope.dimension_count": HEAD}),
    "falcon": Kind(
        "Falcon",
        {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": CONTEXT},
        {**_KEYS, "attention.head_count_kv": 1, "feed_forward_length": 4 * HIDDEN},
        norm=("layer_norm_epsilon", _LAYERNORM),
    ),
    "bloom": Kind(
        "Bloom",
        {"hidden_size": HIDDEN, "n_layer": LAYERS, "n_head": HEADS},
        {**_KEYS, "attention.head_count_kv": HEADS, "feed_forward_length": 4 * HIDDEN},
        _each(_bloom),
        ("layer_norm_epsilon", _LAYERNORM),
    ),
    "gpt2": Kind(
        "GPT2",
        {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": CONTEXT, "n_inner": INNER},
        {key: value for key, value in _KEYS.items() if key != "attention.head_count_kv"},
        _each(_transposed),
        ("layer_norm_epsilon", _LAYERNORM),
    ),
    "starcoder2": Kind("Starcoder2", _SIZES, _KEYS, norm=("norm_epsilon", _LAYERNORM)),
    "stablelm": Kind("StableLm", _SIZES, {**_KEYS, "rope.dimension_count": 4}, norm=("layer_norm_eps", _LAYERNORM)),
    "nemotron": Kind("Nemotron", _SIZES, {**_KEYS, "rope.dimension_count": 8}, _each(_plus_one), ("norm_eps", _LAYERNORM)),
    "mamba": Kind(
        "Mamba",
        {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "state_size": 8, "time_step_rank": 6},
        {
            "context_length": 1 << 20,
            "embedding_length": HIDDEN,
            "block_count": LAYERS,
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "ssm.conv_kernel": 4,
            "ssm.state_size": 8,
            "ssm.time_step_rank": 6,
            "ssm.inner_size": 2 * HIDDEN,
        },
        _each(_mamba),
        ("layer_norm_epsilon", "attention.layer_norm_rms_epsilon"),
    ),
    "lfm2": Kind(
        "Lfm2",
        {**_SIZES, "block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention"] * 2, "conv_L_cache": 3},
        {**_KEYS, "attention.head_count_kv": [0, KV] * 2, "shortconv.l_cache": 3, "rope.freq_base": 1e6},
        _each(_squeezed),
        ("norm_eps", "attention.layer_norm_rms_epsilon"),
    ),
}


@dataclass
class Case:
    """One file to write: an architecture, with options and metadata besides (None: left out), tensors to add and to drop."""

    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    title: str | None = None
    epsilon: float = 1e-3


def source(case: Case, vocabulary: int) -> Any:
    """The model that a file is written from."""
    kind = KINDS[case.kind]
    torch.manual_seed(7)
    ids = {"vocab_size": vocabulary, "bos_token_id": 0, "eos_token_id": 0}
    options = {**ids, **kind.config, kind.norm[0]: case.epsilon, **case.config}
    config = getattr(transformers, f"{kind.model}Config")(**options)
    model = drawn_wide(transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager"))
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("bias"):
                tensor.copy_(0.3 * torch.randn_like(tensor))
            elif tensor.dim() > 1 and "A_log" not in name:
                tensor.mul_(0.5)
    return model.eval()


def write(case: Case, model: Any, path: Path, raw: Tokenizer | None = None, tokenizer: Mapping[str, Any] | None = None) -> None:
    """Write `model` and the tokenizer `raw` (byte-level) to `path`; `tokenizer` replaces keys of `tokenizer.ggml.*`."""
    kind = KINDS[case.kind]
    raw = raw or byte_level()
    file = gguf.GGUFWriter(str(path), case.kind)
    keys = {**kind.keys, kind.norm[1]: case.epsilon, **case.keys}
    for key, value in {f"{case.kind}.{key}": value for key, value in keys.items()}.items():
        put(file, key, value)
    put(file, "general.name", case.title)
    for key, value in {**byte_tokens(raw), **(tokenizer or {})}.items():
        put(file, f"tokenizer.ggml.{key}", value)
    tensors = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    tied = "lm_head.weight" in tensors and model.get_output_embeddings().weight is model.get_input_embeddings().weight
    if tied:
        del tensors["lm_head.weight"]
    architecture = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == case.kind)
    names = gguf.get_tensor_name_map(architecture, kind.keys["block_count"])
    for name, tensor in kind.rewritten(tensors).items():
        short = name.removeprefix("transformer.")
        written = next(filter(None, (names.get_name(one, try_suffixes=(".weight", ".bias")) for one in (name, short))), None)
        assert written, name
        if written not in case.drop:
            file.add_tensor(written, np.ascontiguousarray(tensor, np.float32))
    for name, tensor in case.tensors.items():
        file.add_tensor(name, np.ascontiguousarray(tensor, np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def put(file: gguf.GGUFWriter, key: str, value: Any) -> None:
    """One entry of the metadata, by its Python type."""
    if isinstance(value, bool):
        file.add_bool(key, value)
    elif isinstance(value, int):
        file.add_uint32(key, value)
    elif isinstance(value, float):
        file.add_float32(key, value)
    elif isinstance(value, str):
        file.add_string(key, value)
    elif value is not None:
        file.add_array(key, value)


def byte_tokens(raw: Tokenizer) -> dict[str, Any]:
    """The keys of a byte-level tokenizer."""
    vocabulary = raw.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = json.loads(raw.to_str())["model"]["merges"]
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [3 if token.startswith("<|") else 1 for token in tokens],
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "add_bos_token": False,
    }
