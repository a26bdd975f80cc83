"""Small random-weight models of text and images or audio, of every type that transformers builds by itself."""

import inspect
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_models import drawn_wide, tiny_tokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

CLASSES = {
    **MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    # Listed with the encoder-decoders, though they are none.
    **{kind: MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES[kind] for kind in ("audioflamingo3", "musicflamingo")},
}

_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "projection_dim", "out_hidden_size"), 64),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "depth", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 128),
    **dict.fromkeys(("moe_intermediate_size", "image_size", "index_topk"), 32),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "v_head_dim", "head_dim", "patch_size", "sliding_window"), 16),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "linear_num_key_heads"), 2),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "linear_num_value_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim"), 8),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts"), 1),
    "max_position_embeddings": 512,
}
_THREE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
"""Positions in three dimensions, of heads of 16."""
_THREE_DIMENSIONS = {"text_config": {"rope_parameters": _THREE}}
_GLM = {"text_config": {"rope_parameters": {**_THREE, "partial_rotary_factor": 1.0}}, "vision_config": {"num_heads": 4}}

_OWN: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni_thinker", "paddleocr_vl"), _THREE_DIMENSIONS),
    "qwen3_vl": {"text_config": {"rope_parameters": {**_THREE, "mrope_interleaved": True}}},
    "qwen3_5": {"text_config": {"layer_types": ["linear_attention", "full_attention"]}},
    **dict.fromkeys(("glm4v", "glm4v_moe", "glm_ocr"), _GLM),
    "llama4": {
        "text_config": {"intermediate_size_mlp": 128},
        "vision_config": {"vision_output_dim": 64, "projector_input_dim": 64, "projector_output_dim": 64},
    },
}
"""What of some types' configurations the sizes above don't fit."""


def tiny_multimodal(kind: str, folder: Path, **text: Any) -> Path:
    """Save a small model of a type with GPT-2's kind of tokenizer; returns `folder`. Raises what transformers raises.

    `text` overrides entries of its text part's configuration.
    """
    tokens = tiny_tokenizer("gpt2")
    made: Any = CONFIG_MAPPING[kind]
    ids = {"vocab_size": len(tokens) + 8, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    entries = _small(made, ids, _OWN.get(kind, {}))
    if text:
        entries["text_config"] |= text
    config = made(**entries)
    factory = getattr(transformers, CLASSES[kind])
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in factory(config).parameters())
    if size > 5e6:
        raise ValueError(f"{size} parameters are too many for a test")
    drawn_wide(factory(config)).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


def _small(made: Any, ids: dict[str, int], own: dict[str, Any]) -> dict[str, Any]:
    """A configuration's entries with small sizes, its parts' too."""
    known = set(inspect.signature(made.__init__).parameters)
    entries = {name: value for name, value in {**_SIZES, **ids}.items() if name in known}
    parts = dict(getattr(made, "sub_configs", {}))
    default = made() if any(part is transformers.AutoConfig for part in parts.values()) else None
    for name, part in parts.items():
        kind = type(getattr(default, name)) if part is transformers.AutoConfig else part
        entries[name] = {**_small(kind, ids, own.get(name, {})), "model_type": kind.model_type}
    return entries | {name: value for name, value in own.items() if name not in parts}
