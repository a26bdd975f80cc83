"""The model families that have a graph: from a transformers masked model to its architecture and tensors.

A new family is one function here and a line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator_kernels.onnx_graph import ACTIVATIONS
from evaluator_serving.errors import InputError
from evaluator_serving.onnx.architecture import Architecture, Convolution, Embeddings, Head, Layer, Norm

Tensors = dict[str, NDArray[Any]]


def refusal(config: Any) -> str | None:
    """Why a masked model with this transformers config has no graph, or None if it has one."""
    if config.model_type not in FAMILIES:
        return f"no ONNX graph for {config.model_type} models (there is one for {', '.join(FAMILIES)})"
    for name, allowed in _SETTINGS.items():
        if (value := getattr(config, name, None)) not in allowed:
            return f"no ONNX graph for {config.model_type} models with {name} = {value}"
    for name in ("hidden_act", "hidden_activation", "activation", "classifier_activation", "conv_act"):
        value = getattr(config, name, None)
        if value is not None and value not in ACTIVATIONS:
            return f"no ONNX graph for {config.model_type} models with {name} = {value}"
    return None


_SETTINGS: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "z_steps": (None, 0),
}
"""Values of settings that would change the computation in ways that the graphs don't know."""


def architecture(model: Any, spec: str) -> tuple[Architecture, Tensors]:
    """Architecture and tensors (views of the model's parameters, plus tables computed from them) of a masked model.

    Raises InputError, naming the family, for one without a graph or a variant of a family that its graph doesn't cover.
    """
    if reason := refusal(model.config):
        raise InputError(f"model {spec}: {reason}; use --engine transformers")
    tensors = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    return FAMILIES[model.config.model_type](model, tensors), tensors


def _bert_layer(at: str, epsilon: float) -> Layer:
    return Layer(
        query=f"{at}.attention.self.query",
        key=f"{at}.attention.self.key",
        value=f"{at}.attention.self.value",
        out=f"{at}.attention.output.dense",
        attention_norm=Norm(f"{at}.attention.output.LayerNorm", epsilon),
        up=f"{at}.intermediate.dense",
        down=f"{at}.output.dense",
        feed_forward_norm=Norm(f"{at}.output.LayerNorm", epsilon),
    )


def _bert_like(config: Any, base: str, head: Head) -> Architecture:
    """The skeleton that BERT, RoBERTa, ELECTRA and DeBERTa share; `base` is the encoder's name in the checkpoint."""
    epsilon = config.layer_norm_eps
    return Architecture(
        family=config.model_type,
        width=config.hidden_size,
        heads=config.num_attention_heads,
        scale=(config.hidden_size // config.num_attention_heads) ** -0.5,
        activation=config.hidden_act,
        pre_norm=False,
        embeddings=Embeddings(
            word=f"{base}.embeddings.word_embeddings.weight",
            position=f"{base}.embeddings.position_embeddings.weight",
            type=f"{base}.embeddings.token_type_embeddings.weight",
            types=config.type_vocab_size,
            norm=Norm(f"{base}.embeddings.LayerNorm", epsilon),
        ),
        layers=tuple(_bert_layer(f"{base}.encoder.layer.{i}", epsilon) for i in range(config.num_hidden_layers)),
        final_norm=None,
        head=head,
    )


def _bert_head(config: Any) -> Head:
    return Head(
        dense="cls.predictions.transform.dense",
        activation=config.hidden_act,
        norm=Norm("cls.predictions.transform.LayerNorm", config.layer_norm_eps),
        weight="cls.predictions.decoder.weight",
        bias="cls.predictions.decoder.bias",
    )


def _bert(model: Any, _tensors: Tensors) -> Architecture:
    return _bert_like(model.config, "bert", _bert_head(model.config))


def _roberta(model: Any, _tensors: Tensors) -> Architecture:
    """RoBERTa, XLM-R, XLM-V (XLM-R with a larger vocabulary), CamemBERT."""
    config = model.config
    head = Head("lm_head.dense", "gelu", Norm("lm_head.layer_norm", config.layer_norm_eps), *_decoder("lm_head.decoder"))
    plain = _bert_like(config, "roberta", head)
    return replace(plain, embeddings=replace(plain.embeddings, padding_positions=config.pad_token_id))


def _decoder(name: str) -> tuple[str, str]:
    return f"{name}.weight", f"{name}.bias"


def _xlm_roberta_xl(model: Any, tensors: Tensors) -> Architecture:
    """XLM-R XL: RoBERTa with the norms in front and none after the embeddings."""
    plain = _roberta(model, tensors)
    epsilon = model.config.layer_norm_eps
    layers = tuple(
        replace(
            layer,
            attention_norm=Norm(f"roberta.encoder.layer.{i}.attention.self_attn_layer_norm", epsilon),
            feed_forward_norm=Norm(f"roberta.encoder.layer.{i}.LayerNorm", epsilon),
        )
        for i, layer in enumerate(plain.layers)
    )
    return replace(
        plain,
        pre_norm=True,
        embeddings=replace(plain.embeddings, norm=None),
        layers=layers,
        final_norm=Norm("roberta.encoder.LayerNorm", epsilon),
    )


def _electra(model: Any, _tensors: Tensors) -> Architecture:
    """ELECTRA's generator."""
    config = model.config
    head = Head(
        dense="generator_predictions.dense",
        activation="gelu",
        norm=Norm("generator_predictions.LayerNorm", config.layer_norm_eps),
        weight="generator_lm_head.weight",
        bias="generator_lm_head.bias",
    )
    plain = _bert_like(config, "electra", head)
    if config.embedding_size == config.hidden_size:
        return plain
    return replace(plain, embeddings=replace(plain.embeddings, projection="electra.embeddings_project"))


def _distilbert(model: Any, _tensors: Tensors) -> Architecture:
    config = model.config
    epsilon = 1e-12

    def layer(at: str) -> Layer:
        return Layer(
            query=f"{at}.attention.q_lin",
            key=f"{at}.attention.k_lin",
            value=f"{at}.attention.v_lin",
            out=f"{at}.attention.out_lin",
            attention_norm=Norm(f"{at}.sa_layer_norm", epsilon),
            up=f"{at}.ffn.lin1",
            down=f"{at}.ffn.lin2",
            feed_forward_norm=Norm(f"{at}.output_layer_norm", epsilon),
        )

    return Architecture(
        family=config.model_type,
        width=config.dim,
        heads=config.n_heads,
        scale=(config.dim // config.n_heads) ** -0.5,
        activation=config.activation,
        pre_norm=False,
        embeddings=Embeddings(
            word="distilbert.embeddings.word_embeddings.weight",
            position="distilbert.embeddings.position_embeddings.weight",
            type=None,
            types=0,
            norm=Norm("distilbert.embeddings.LayerNorm", epsilon),
        ),
        layers=tuple(layer(f"distilbert.transformer.layer.{i}") for i in range(config.n_layers)),
        final_norm=None,
        head=Head(
            dense="vocab_transform",
            activation=config.activation,
            norm=Norm("vocab_layer_norm", epsilon),
            weight="vocab_projector.weight",
            bias="vocab_projector.bias",
        ),
    )


def _albert(model: Any, _tensors: Tensors) -> Architecture:
    config = model.config
    epsilon = config.layer_norm_eps

    def layer(at: str) -> Layer:
        return Layer(
            query=f"{at}.attention.query",
            key=f"{at}.attention.key",
            value=f"{at}.attention.value",
            out=f"{at}.attention.dense",
            attention_norm=Norm(f"{at}.attention.LayerNorm", epsilon),
            up=f"{at}.ffn",
            down=f"{at}.ffn_output",
            feed_forward_norm=Norm(f"{at}.full_layer_layer_norm", epsilon),
        )

    groups = [int(i / (config.num_hidden_layers / config.num_hidden_groups)) for i in range(config.num_hidden_layers)]
    head = Head(
        "predictions.dense", config.hidden_act, Norm("predictions.LayerNorm", epsilon), *_decoder("predictions.decoder")
    )
    plain = _bert_like(config, "albert", head)
    return replace(
        plain,
        embeddings=replace(plain.embeddings, projection="albert.encoder.embedding_hidden_mapping_in"),
        layers=tuple(
            layer(f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}")
            for group in groups
            for inner in range(config.inner_group_num)
        ),
    )


def _modernbert(model: Any, tensors: Tensors) -> Architecture:
    config = model.config
    rotary = model.model.rotary_emb
    for kind in set(config.layer_types):
        tensors[f"rotary.{kind}"] = getattr(rotary, f"{kind}_inv_freq").float().numpy()

    def layer(i: int, kind: str) -> Layer:
        at = f"model.layers.{i}"
        return Layer(
            query=f"{at}.attn.query",
            key=f"{at}.attn.key",
            value=f"{at}.attn.value",
            fused=f"{at}.attn.Wqkv",
            out=f"{at}.attn.Wo",
            attention_norm=Norm(f"{at}.attn_norm", config.norm_eps) if i else None,
            up=f"{at}.mlp.Wi",
            down=f"{at}.mlp.Wo",
            gated=True,
            feed_forward_norm=Norm(f"{at}.mlp_norm", config.norm_eps),
            window=config.sliding_window if kind == "sliding_attention" else None,
            rotary=f"rotary.{kind}",
            rotary_scale=float(getattr(rotary, f"{kind}_attention_scaling")),
        )

    return Architecture(
        family=config.model_type,
        width=config.hidden_size,
        heads=config.num_attention_heads,
        scale=(config.hidden_size // config.num_attention_heads) ** -0.5,
        activation=config.hidden_activation,
        pre_norm=True,
        embeddings=Embeddings(
            word="model.embeddings.tok_embeddings.weight",
            position=None,
            type=None,
            types=0,
            norm=Norm("model.embeddings.norm", config.norm_eps),
        ),
        layers=tuple(layer(i, kind) for i, kind in enumerate(config.layer_types)),
        final_norm=Norm("model.final_norm", config.norm_eps),
        head=Head(
            dense="head.dense",
            activation=config.classifier_activation,
            norm=Norm("head.norm", config.norm_eps),
            weight="decoder.weight",
            bias="decoder.bias",
        ),
    )


def _deberta_v2(model: Any, tensors: Tensors) -> Architecture:
    """DeBERTa-v2 and v3: disentangled attention over words and relative positions."""
    config = model.config
    base = "deberta"
    epsilon = config.layer_norm_eps
    if config.legacy:
        head = _bert_head(config)
    else:
        head = Head(
            dense="lm_predictions.lm_head.dense",
            activation=config.hidden_act,
            norm=Norm("lm_predictions.lm_head.LayerNorm", epsilon),
            weight=f"{base}.embeddings.word_embeddings.weight",
            bias="lm_predictions.lm_head.bias",
        )
    plain = _bert_like(config, base, head)
    named = set(config.pos_att_type or ()) & {"c2p", "p2c"}
    kinds = named if config.relative_attention else set()
    layers = tuple(
        replace(
            layer,
            query=f"{base}.encoder.layer.{i}.attention.self.query_proj",
            key=f"{base}.encoder.layer.{i}.attention.self.key_proj",
            value=f"{base}.encoder.layer.{i}.attention.self.value_proj",
            relative_key=f"relative.{i}.key" if "c2p" in kinds else None,
            relative_query=f"relative.{i}.query" if "p2c" in kinds else None,
        )
        for i, layer in enumerate(plain.layers)
    )
    if kinds:
        _relative_tables(model, tensors)
    convolution = None
    if getattr(config, "conv_kernel_size", 0) > 0:
        convolution = Convolution(
            name=f"{base}.encoder.conv.conv",
            activation=getattr(config, "conv_act", "tanh"),
            groups=getattr(config, "conv_groups", 1),
            kernel=config.conv_kernel_size,
            norm=Norm(f"{base}.encoder.conv.LayerNorm", epsilon),
        )
    width = getattr(config, "embedding_size", config.hidden_size)
    return replace(
        plain,
        # The kinds of relative attention that are named count here, whether they are used or not.
        scale=(config.hidden_size // config.num_attention_heads * (1 + len(named))) ** -0.5,
        embeddings=replace(
            plain.embeddings,
            position=plain.embeddings.position if config.position_biased_input else None,
            type=plain.embeddings.type if config.type_vocab_size else None,
            projection=f"{base}.embeddings.embed_proj" if width != config.hidden_size else None,
            norm_last=True,
            zero_padding=True,
        ),
        layers=layers,
        convolution=convolution,
        buckets="relative.buckets" if kinds else None,
    )


def _relative_tables(model: Any, tensors: Tensors) -> None:
    """Add what disentangled attention needs of relative positions, all of it known before any input.

    `relative.I.key` and `.query` [2 · span, width]: the position embeddings through layer I's projections.
    `relative.buckets` [2 · reach + 1]: rows of these tables for distances query - key of -reach..reach; larger distances
    fall into the outermost rows.
    """
    import torch
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    encoder, config = model.deberta.encoder, model.config
    span = encoder.position_buckets if encoder.position_buckets > 0 else encoder.max_relative_positions
    with torch.inference_mode():
        embeddings = encoder.get_rel_embedding()[: 2 * span]
        for i, layer in enumerate(encoder.layer):
            attention = layer.attention.self
            shared = attention.share_att_key
            if "c2p" in config.pos_att_type:
                project = attention.key_proj if shared else attention.pos_key_proj
                tensors[f"relative.{i}.key"] = project(embeddings).numpy()
            if "p2c" in config.pos_att_type:
                project = attention.query_proj if shared else attention.pos_query_proj
                tensors[f"relative.{i}.query"] = project(embeddings).numpy()
        reach = 4 * encoder.max_relative_positions
        distance = torch.arange(-reach, reach + 1)
        if encoder.position_buckets > 0 and encoder.max_relative_positions > 0:
            # transformers' own function: a ceiling of logarithms, where another library's rounding would tell.
            distance = make_log_bucket_position(distance, encoder.position_buckets, encoder.max_relative_positions)
        buckets = distance.long().numpy() + span
    tensors["relative.buckets"] = np.clip(buckets, 0, 2 * span - 1)


FAMILIES: dict[str, Callable[[Any, Tensors], Architecture]] = {
    "bert": _bert,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "camembert": _roberta,
    "xlm-roberta": _roberta,
    "xlm-roberta-xl": _xlm_roberta_xl,
    "albert": _albert,
    "electra": _electra,
    "modernbert": _modernbert,
    "deberta-v2": _deberta_v2,
}
"""transformers' model type to the function that describes it."""
