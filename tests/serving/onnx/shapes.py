"""Random models with the real layer shapes of every family that has a graph, at reduced depth and vocabulary."""

from typing import Any

import torch
import transformers

_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 2}
_ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
_DEBERTA = {
    "type_vocab_size": 0,
    "position_biased_input": False,
    "relative_attention": True,
    "position_buckets": 256,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
}

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("Bert", {**_BASE, "vocab_size": 3000}),
    "bert-base-multilingual": ("Bert", {**_BASE, "vocab_size": 20_000}),  # more than one vocabulary block
    "distilbert-base": ("DistilBert", {"vocab_size": 3000, "n_layers": 2}),
    "roberta-base": ("Roberta", {**_BASE, **_ROBERTA, "vocab_size": 3000}),
    "camembert-base": ("Camembert", {**_BASE, **_ROBERTA, "vocab_size": 3000}),
    "xlm-roberta-base": ("XLMRoberta", {**_BASE, **_ROBERTA, "vocab_size": 3000}),
    "xlm-roberta-large": (
        "XLMRoberta",
        {
            **_ROBERTA,
            "vocab_size": 3000,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "num_hidden_layers": 2,
        },
    ),
    "xlm-roberta-xl": (
        "XLMRobertaXL",
        {**_ROBERTA, "vocab_size": 3000, "num_hidden_layers": 1},  # its defaults are XL's: 2560 wide, 32 heads, 10240
    ),
    "xlm-roberta-xl-narrow": (
        "XLMRobertaXL",
        {**_BASE, **_ROBERTA, "vocab_size": 3000},
    ),
    "albert-base-v2": ("Albert", {**_BASE, "vocab_size": 3000, "embedding_size": 128, "hidden_act": "gelu_new"}),
    "electra-base-generator": (
        "Electra",
        {
            "vocab_size": 3000,
            "embedding_size": 768,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
            "num_hidden_layers": 2,
        },
    ),
    "modernbert-base": (
        "ModernBert",
        {
            "vocab_size": 3000,
            "num_hidden_layers": 4,
            "local_attention": 16,  # narrower than the sentences, or the windows would not show
            **dict.fromkeys(["bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"], 2),
            "pad_token_id": 0,
        },
    ),
    "deberta-v2-xlarge": (
        "DebertaV2",
        {
            **_DEBERTA,
            "vocab_size": 3000,
            "hidden_size": 1536,
            "num_attention_heads": 24,
            "intermediate_size": 6144,
            "num_hidden_layers": 2,
            "conv_kernel_size": 3,
            "conv_act": "gelu",
        },
    ),
    "deberta-v2-convolution": (
        "DebertaV2",
        {**_BASE, **_DEBERTA, "vocab_size": 3000, "conv_kernel_size": 3, "conv_act": "gelu"},
    ),
    "deberta-v3-base": ("DebertaV2", {**_BASE, **_DEBERTA, "vocab_size": 3000, "legacy": False}),
    "deberta-unshared": ("DebertaV2", {**_BASE, **_DEBERTA, "vocab_size": 3000, "share_att_key": False}),
}
"""name → (class prefix in transformers, configuration)."""

LARGE = ("xlm-roberta-large", "xlm-roberta-xl", "deberta-v2-xlarge")
"""Those that take more than a few seconds."""


def random_model(name: str, **changes: Any) -> Any:
    """A float32 masked model whose weights are drawn wide enough that probabilities differ clearly."""
    prefix, settings = SHAPES[name]
    config = getattr(transformers, f"{prefix}Config")(**{**settings, **changes})
    torch.manual_seed(1)
    model = getattr(transformers, f"{prefix}ForMaskedLM")(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 1.5 * parameter.shape[1] ** -0.5)
            elif "norm" in key.lower() and key.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.3)
    return model
