"""Random-weight generative models of every family that has a graph, and of its variants."""

from typing import Any

import torch
import transformers

VOCABULARY = 97

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_SHORT = {"n_head": 4, "vocab_size": VOCABULARY, "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2}


def _rope(kind: str, **others: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, "factor": 4.0, **others}}


_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
_CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
_OPT = {"ffn_dim": 80, "word_embed_proj_dim": 64, "init_std": 0.3}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _GROUPED),
    "llama-biases-tied": ("Llama", {**_SIZES, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama-wide-heads": ("Llama", {**_GROUPED, "head_dim": 32}),
    "llama-llama3": ("Llama", {**_GROUPED, **_rope("llama3", **_LLAMA3)}),
    "llama-linear": ("Llama", {**_GROUPED, **_rope("linear")}),
    "llama-dynamic": ("Llama", {**_GROUPED, **_rope("dynamic")}),
    "llama-yarn": ("Llama", {**_GROUPED, **_rope("yarn", original_max_position_embeddings=16)}),
    "mistral-window": ("Mistral", {**_GROUPED, "sliding_window": 6}),
    "qwen2": ("Qwen2", _GROUPED),
    "qwen2-window": ("Qwen2", {**_GROUPED, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {**_GROUPED, "head_dim": 32}),
    "smollm3": ("SmolLM3", {**_GROUPED, "no_rope_layer_interval": 2}),
    "smollm3-window": (
        "SmolLM3",
        {**_GROUPED, "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    ),
    "phi3-window": ("Phi3", {**_GROUPED, "sliding_window": 7}),
    "phi3-partly-rotated": ("Phi3", {**_GROUPED, "partial_rotary_factor": 0.5}),
    "gemma": ("Gemma", {**_SIZES, "num_key_value_heads": 1, "head_dim": 32}),
    "gemma2": ("Gemma2", {**_GROUPED, **_CAPS, "head_dim": 32, "sliding_window": 6, "query_pre_attn_scalar": 20}),
    "gemma3": ("Gemma3Text", {**_GROUPED, "head_dim": 32, "sliding_window": 6, "sliding_window_pattern": 2}),
    "gpt2": ("GPT2", {**_SHORT, "n_embd": 64, "n_layer": 3, "n_positions": 64}),
    "gpt_neox": ("GPTNeoX", {**_SIZES, "rotary_pct": 0.25}),
    "gpt_neox-one-after-another": ("GPTNeoX", {**_SIZES, "rotary_pct": 1.0, "use_parallel_residual": False}),
    "opt": ("OPT", {**_SIZES, **_OPT}),
    "bloom": ("Bloom", {**_SHORT, "hidden_size": 64, "n_layer": 3}),
    "bloom-six-narrow-heads": ("Bloom", {**_SHORT, "n_head": 6, "hidden_size": 60, "n_layer": 2}),
}
"""Name → (transformers' name of the family, configuration)."""


def random_decoder(name: str) -> Any:
    """A model above in float32; norms and biases are random too, so that leaving one out shows."""
    family, options = DECODERS[name]
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for _, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.data += torch.randn_like(parameter) * 0.2
    return model
