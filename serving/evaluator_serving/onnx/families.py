"""The model families that have a graph: from a transformers model to its architecture and tensors.

A new family is one class here and a line in `FAMILIES`. A class says what its config means, and what its tensors are
called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evaluator_kernels.onnx_graph import ACTIVATIONS
from evaluator_serving.errors import InputError
from evaluator_serving.models.config import rotary
from evaluator_serving.onnx.architecture import Convolution, Decoder, EncoderModel, Layer, Transformer
from evaluator_serving.onnx.manifest import Kind

Tensors = Iterator[tuple[str, NDArray[Any]]]
"""Our names (see `architecture`) and values."""

Names = Mapping[str, str | tuple[str, ...]]
"""Our name → the checkpoint's: a module, several to be stacked, or a table (with `.weight`)."""


def refusal(config: Any, head: Kind) -> str | None:
    """Why a model with this transformers config has no graph for a head, or None if it has one."""
    kind, families = getattr(config, "model_type", None), FAMILIES[head]
    family = families.get(kind or "")
    if family is None:
        generative = "generative " if head == "causal" else ""
        return f"no ONNX graph for {generative}{kind} models (there is one for {', '.join(families)})"
    reason = next(family.obstacles(config), None)
    return reason and f"no ONNX graph for {kind} models {reason}"


def family_of(model: Any, spec: str, head: Kind) -> Family:
    """The family of a loaded model. Raises InputError for one without a graph, or a variant that its graph doesn't cover."""
    if reason := refusal(model.config, head):
        raise InputError(f"model {spec}: {reason}; use --engine transformers")
    return FAMILIES[head][model.config.model_type](model)


class Family:
    """A loaded model of a family.

    Attributes:
        settings: values of settings whose others would change the computation in ways that the graphs don't know.
        ends: names of the tensors outside the layers. parts: those of a layer, which follow `at`.
        by_head: whether outputs of the module for queries, keys and values go head by head: q, k, v of the first, then of the
            second, and so on.
    """

    settings: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    ends: ClassVar[Names] = {}
    at: ClassVar[str] = ""
    parts: ClassVar[Names] = {}
    by_head: ClassVar[bool] = False

    def __init__(self, model: Any) -> None:
        self.config = model.config
        self.model = model
        self.tensors = {name: value.detach().numpy() for name, value in model.state_dict().items()}

    @classmethod
    def obstacles(cls, config: Any) -> Iterator[str]:
        """What of a config the family's graph doesn't cover."""
        for name, allowed in cls.settings.items():
            if (value := getattr(config, name, None)) not in allowed:
                yield f"with {name} = {value}"

    def architecture(self) -> Transformer:
        """What the config says."""
        raise NotImplementedError

    def outside(self) -> Tensors:
        """The tensors outside the layers; `embedding` before the vocabulary."""
        for ours, theirs in self.ends.items():
            yield from self.read(ours, *([theirs] if isinstance(theirs, str) else theirs))

    def layer(self, i: int) -> Tensors:
        """Those of stored layer i, without the `i.` in front."""
        at = self.at.format(i)
        for ours, theirs in self.parts.items():
            yield from self.read(ours, *(f"{at}.{name}" for name in ([theirs] if isinstance(theirs, str) else theirs)))

    def read(self, ours: str, *theirs: str) -> Tensors:
        """A table, or weight and bias of a module as far as it has them; several modules are stacked."""
        if theirs[0].endswith(".weight"):
            if theirs[0] in self.tensors:
                yield ours, self.tensors[theirs[0]]
            return
        for part in ("weight", "bias"):
            found = [self.tensors[f"{name}.{part}"] for name in theirs if f"{name}.{part}" in self.tensors]
            if found:
                value = found[0] if len(found) == 1 else np.concatenate(found)
                yield f"{ours}.{part}", self._apart(value) if self.by_head and ours == "qkv" else value

    def _apart(self, value: NDArray[Any]) -> NDArray[Any]:
        """Queries, keys and values of outputs that go head by head."""
        heads = self.config.num_attention_heads
        return np.swapaxes(value.reshape(heads, 3, -1, *value.shape[1:]), 0, 1).reshape(value.shape)


# --- masked models --------------------------------------------------------------------------------------------------


class MaskedFamily(Family):
    """What masked families share."""

    settings: ClassVar = {
        "position_embedding_type": (None, "absolute"),
        "is_decoder": (None, False),
        "add_cross_attention": (None, False),
        "z_steps": (None, 0),
    }

    @classmethod
    def obstacles(cls, config: Any) -> Iterator[str]:
        yield from super().obstacles(config)
        for name in ("hidden_act", "hidden_activation", "activation", "classifier_activation", "conv_act"):
            value = getattr(config, name, None)
            if value is not None and value not in ACTIVATIONS:
                yield f"with {name} = {value}"

    def architecture(self) -> EncoderModel:
        config = self.config
        return self.encoder(config.layer_norm_eps, config.hidden_act, config.hidden_act, types=config.type_vocab_size)

    def encoder(self, epsilon: float, activation: str, head_activation: str, **more: Any) -> EncoderModel:
        """An architecture of layers of one kind."""
        config = self.config
        return EncoderModel(
            family=config.model_type,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            scale=(config.hidden_size // config.num_attention_heads) ** -0.5,
            epsilon=epsilon,
            activation=activation,
            layers=(Layer(),) * config.num_hidden_layers,
            head_activation=head_activation,
            **more,
        )

    def outside(self) -> Tensors:
        found: dict[str, NDArray[Any]] = {}
        for name, value in super().outside():
            found[name] = value
            yield name, value
        if "vocabulary.bias" not in found:  # the graphs always add one
            yield "vocabulary.bias", np.zeros(len(found["vocabulary.weight"]), np.float32)


def _embeddings(base: str) -> dict[str, str]:
    """BERT's names of the embeddings, below the encoder's name."""
    tables = {"embedding": "word_embeddings", "position": "position_embeddings", "type": "token_type_embeddings"}
    names = {ours: f"{base}.embeddings.{theirs}.weight" for ours, theirs in tables.items()}
    return {**names, "embedding_norm": f"{base}.embeddings.LayerNorm"}


_BERT_HEAD = {
    "dense": "cls.predictions.transform.dense",
    "head_norm": "cls.predictions.transform.LayerNorm",
    "vocabulary": "cls.predictions.decoder",
}


class Bert(MaskedFamily):
    """BERT."""

    ends: ClassVar = {**_embeddings("bert"), **_BERT_HEAD}
    at: ClassVar = "bert.encoder.layer.{}"
    parts: ClassVar = {
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward_norm": "output.LayerNorm",
        "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
        "out": "attention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
    }


class Roberta(Bert):
    """RoBERTa, XLM-R, XLM-V (XLM-R with a larger vocabulary), CamemBERT."""

    ends: ClassVar = {
        **_embeddings("roberta"),
        "dense": "lm_head.dense",
        "head_norm": "lm_head.layer_norm",
        "vocabulary": "lm_head.decoder",
    }
    at: ClassVar = "roberta.encoder.layer.{}"

    def architecture(self) -> EncoderModel:
        return replace(super().architecture(), head_activation="gelu", padding_positions=self.config.pad_token_id)


class XlmRobertaXl(Roberta):
    """XLM-R XL: RoBERTa with the norms in front and none after the embeddings."""

    ends: ClassVar = {**Roberta.ends, "final_norm": "roberta.encoder.LayerNorm"}
    parts: ClassVar = {
        **Bert.parts,
        "attention_norm": "attention.self_attn_layer_norm",
        "feed_forward_norm": "LayerNorm",
    }

    def architecture(self) -> EncoderModel:
        return replace(super().architecture(), pre_norm=True)


class Electra(Bert):
    """ELECTRA's generator."""

    ends: ClassVar = {
        **_embeddings("electra"),
        "projection": "electra.embeddings_project",
        "dense": "generator_predictions.dense",
        "head_norm": "generator_predictions.LayerNorm",
        "vocabulary": "generator_lm_head",
    }
    at: ClassVar = "electra.encoder.layer.{}"

    def architecture(self) -> EncoderModel:
        return replace(super().architecture(), head_activation="gelu")


class DistilBert(MaskedFamily):
    """DistilBERT: BERT without token types."""

    ends: ClassVar = {
        "embedding": "distilbert.embeddings.word_embeddings.weight",
        "position": "distilbert.embeddings.position_embeddings.weight",
        "embedding_norm": "distilbert.embeddings.LayerNorm",
        "dense": "vocab_transform",
        "head_norm": "vocab_layer_norm",
        "vocabulary": "vocab_projector",
    }
    at: ClassVar = "distilbert.transformer.layer.{}"
    parts: ClassVar = {
        "attention_norm": "sa_layer_norm",
        "feed_forward_norm": "output_layer_norm",
        "qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "out": "attention.out_lin",
        "up": "ffn.lin1",
        "down": "ffn.lin2",
    }

    def architecture(self) -> EncoderModel:
        return self.encoder(1e-12, self.config.activation, self.config.activation)


class Albert(MaskedFamily):
    """ALBERT: layers that are used several times."""

    ends: ClassVar = {
        **_embeddings("albert"),
        "projection": "albert.encoder.embedding_hidden_mapping_in",
        "dense": "predictions.dense",
        "head_norm": "predictions.LayerNorm",
        "vocabulary": "predictions.decoder",
    }
    at: ClassVar = "albert.encoder.albert_layer_groups.{0[0]}.albert_layers.{0[1]}"
    parts: ClassVar = {
        "attention_norm": "attention.LayerNorm",
        "feed_forward_norm": "full_layer_layer_norm",
        "qkv": ("attention.query", "attention.key", "attention.value"),
        "out": "attention.dense",
        "up": "ffn",
        "down": "ffn_output",
    }

    def architecture(self) -> EncoderModel:
        config, inner = self.config, self.config.inner_group_num
        groups = [int(i / (config.num_hidden_layers / config.num_hidden_groups)) for i in range(config.num_hidden_layers)]
        order = tuple(group * inner + i for group in groups for i in range(inner))
        return replace(super().architecture(), layers=(Layer(),) * len(order), order=order)

    def layer(self, i: Any) -> Tensors:
        return super().layer(divmod(i, self.config.inner_group_num))


class ModernBert(MaskedFamily):
    """ModernBERT: norms in front, a gated feed-forward, rotary positions, windows."""

    ends: ClassVar = {
        "embedding": "model.embeddings.tok_embeddings.weight",
        "embedding_norm": "model.embeddings.norm",
        "final_norm": "model.final_norm",
        "dense": "head.dense",
        "head_norm": "head.norm",
        "vocabulary": "decoder",
    }
    at: ClassVar = "model.layers.{}"
    parts: ClassVar = {
        "attention_norm": "attn_norm",
        "feed_forward_norm": "mlp_norm",
        "qkv": "attn.Wqkv",
        "out": "attn.Wo",
        "up": "mlp.Wi",
        "down": "mlp.Wo",
    }

    def architecture(self) -> EncoderModel:
        config, rotary = self.config, self.model.model.rotary_emb
        layers = tuple(
            Layer(
                config.sliding_window if kind == "sliding_attention" else None,
                f"{kind}_inv_freq",
                float(getattr(rotary, f"{kind}_attention_scaling")),
            )
            for kind in config.layer_types
        )
        plain = self.encoder(config.norm_eps, config.hidden_activation, config.classifier_activation)
        return replace(plain, layers=layers, pre_norm=True, gated=True)

    def outside(self) -> Tensors:
        yield from super().outside()
        for name in {f"{kind}_inv_freq" for kind in self.config.layer_types}:
            yield name, getattr(self.model.model.rotary_emb, name).float().numpy()


class DebertaV2(Bert):
    """DeBERTa-v2 and v3: disentangled attention over words and relative positions."""

    ends: ClassVar = {
        **_embeddings("deberta"),
        "projection": "deberta.embeddings.embed_proj",
        **_BERT_HEAD,
        "convolution": "deberta.encoder.conv.conv",
        "convolution_norm": "deberta.encoder.conv.LayerNorm",
    }
    at: ClassVar = "deberta.encoder.layer.{}"
    parts: ClassVar = {
        **Bert.parts,
        "qkv": tuple(f"attention.self.{name}_proj" for name in ("query", "key", "value")),
    }

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.kinds = set(self.config.pos_att_type or ()) & {"c2p", "p2c"}
        self.relative = _relative_tables(model, self.kinds) if self.config.relative_attention and self.kinds else {}
        if not self.config.legacy:  # another head, whose matrix is the embeddings'
            tensors, ours = self.tensors, "cls.predictions"
            for part in ("dense", "LayerNorm"):
                for kind in ("weight", "bias"):
                    tensors[f"{ours}.transform.{part}.{kind}"] = tensors[f"lm_predictions.lm_head.{part}.{kind}"]
            tensors[f"{ours}.decoder.weight"] = tensors["deberta.embeddings.word_embeddings.weight"]
            tensors[f"{ours}.decoder.bias"] = tensors["lm_predictions.lm_head.bias"]

    def architecture(self) -> EncoderModel:
        config = self.config
        convolution = None
        if (kernel := getattr(config, "conv_kernel_size", 0)) > 0:
            convolution = Convolution(getattr(config, "conv_act", "tanh"), getattr(config, "conv_groups", 1), kernel)
        return replace(
            super().architecture(),
            # The kinds of relative attention that are named count here, whether they are used or not.
            scale=(config.hidden_size // config.num_attention_heads * (1 + len(self.kinds))) ** -0.5,
            norm_last=True,
            zero_padding=True,
            convolution=convolution,
        )

    def outside(self) -> Tensors:
        yield from super().outside()
        if "buckets" in self.relative:
            yield "buckets", self.relative["buckets"]

    def layer(self, i: int) -> Tensors:
        yield from super().layer(i)
        for name in ("relative_key", "relative_query"):
            if f"{i}.{name}" in self.relative:
                yield name, self.relative[f"{i}.{name}"]


def _relative_tables(model: Any, kinds: set[str]) -> dict[str, NDArray[Any]]:
    """What disentangled attention needs of relative positions, all of it known before any input.

    `I.relative_key` and `I.relative_query` [2 · span, width]: the position embeddings through layer I's projections.
    `buckets` [2 · reach + 1]: rows of these tables for distances query - key of -reach..reach; larger distances fall into the
    outermost rows.
    """
    import torch
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    encoder, tables = model.deberta.encoder, {}
    span = encoder.position_buckets if encoder.position_buckets > 0 else encoder.max_relative_positions
    with torch.inference_mode():
        embeddings = encoder.get_rel_embedding()[: 2 * span]
        for i, layer in enumerate(encoder.layer):
            attention = layer.attention.self
            shared = attention.share_att_key
            if "c2p" in kinds:
                project = attention.key_proj if shared else attention.pos_key_proj
                tables[f"{i}.relative_key"] = project(embeddings).numpy()
            if "p2c" in kinds:
                project = attention.query_proj if shared else attention.pos_query_proj
                tables[f"{i}.relative_query"] = project(embeddings).numpy()
        reach = 4 * encoder.max_relative_positions
        distance = torch.arange(-reach, reach + 1)
        if encoder.position_buckets > 0 and encoder.max_relative_positions > 0:
            # transformers' own function: a ceiling of logarithms, where another library's rounding would tell.
            distance = make_log_bucket_position(distance, encoder.position_buckets, encoder.max_relative_positions)
        buckets = distance.long().numpy() + span
    return {**tables, "buckets": np.clip(buckets, 0, 2 * span - 1)}


# --- causal models --------------------------------------------------------------------------------------------------


def _activation(config: Any) -> str | None:
    names = ("hidden_activation", "hidden_act", "activation_function")
    named = (getattr(config, name, None) for name in names)
    return next((name for name in named if name), "gelu_new" if config.model_type == "bloom" else None)


class CausalFamily(Family):
    """What causal families share: those that don't say otherwise have layer norms, and keys and values for each head."""

    epsilon: ClassVar[str | float] = "layer_norm_epsilon"
    """The norms' epsilon, or its name in the config."""

    @classmethod
    def obstacles(cls, config: Any) -> Iterator[str]:
        if (activation := _activation(config)) not in ACTIVATIONS:
            yield f"with activation {activation}"
        if any(entry.get("rope_type") == "longrope" for entry in rotary(config)):
            yield "whose rotary frequencies depend on the length (longrope)"
        if getattr(config, "word_embed_proj_dim", config.hidden_size) != config.hidden_size:
            yield "with projected embeddings"
        yield from super().obstacles(config)

    def architecture(self) -> Decoder:
        config, heads = self.config, self.config.num_attention_heads
        width = config.hidden_size // heads
        return Decoder(
            family=config.model_type,
            width=config.hidden_size,
            heads=heads,
            key_value_heads=heads,
            head_width=width,
            norm="layer",
            epsilon=self.epsilon if isinstance(self.epsilon, float) else getattr(config, self.epsilon),
            activation=str(_activation(config)),
            scale=width**-0.5,
            layers=(Layer(),) * config.num_hidden_layers,
        )


_SLIDING = ("mistral", "phi3")
"""Families whose layers all slide where the config has a window."""


class Llama(CausalFamily):
    """Llama's kind: RMS norms, rotary positions, a gated feed-forward; Mistral, Qwen, SmolLM, Phi-3 and Gemma are variants."""

    settings: ClassVar = {"use_bidirectional_attention": (None, False), "pretraining_tp": (None, 1)}
    epsilon: ClassVar = "rms_norm_eps"
    ends: ClassVar = {"embedding": "model.embed_tokens.weight", "final_norm": "model.norm", "vocabulary": "lm_head"}
    at: ClassVar = "model.layers.{}"
    parts: ClassVar = {
        "attention_norm": "input_layernorm",
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "query_norm": "self_attn.q_norm",
        "key_norm": "self_attn.k_norm",
        "out": "self_attn.o_proj",
        "feed_forward_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    }

    def architecture(self) -> Decoder:
        config = self.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return replace(
            super().architecture(),
            key_value_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
            head_width=width,
            norm="rms",
            scale=(getattr(config, "query_pre_attn_scalar", None) or width) ** -0.5,
            layers=tuple(self._layers()),
            score_cap=getattr(config, "attn_logit_softcapping", None),
            logit_cap=getattr(config, "final_logit_softcapping", None),
        )

    def _layers(self) -> Iterator[Layer]:
        """Window and rotary positions of each layer."""
        config, rotary = self.config, self.model.base_model.rotary_emb
        kinds = getattr(config, "layer_types", None)
        without = getattr(config, "no_rope_layers", None)  # 1 where a layer has rotary positions
        for i in range(config.num_hidden_layers):
            slides = kinds[i] == "sliding_attention" if kinds else config.model_type in _SLIDING
            kind = f"{kinds[i]}_" if kinds and hasattr(rotary, f"{kinds[i]}_inv_freq") else ""
            yield Layer(
                config.sliding_window if slides else None,
                None if without and not without[i] else f"{kind}inv_freq",
                float(getattr(rotary, f"{kind}attention_scaling", 1.0)),
            )

    def outside(self) -> Tensors:
        yield from super().outside()
        for name in {layer.rotary for layer in self._layers() if layer.rotary}:
            yield name, getattr(self.model.base_model.rotary_emb, name).numpy()


class Phi3(Llama):
    """Phi-3: Llama with two projections that are fused in the checkpoint."""

    parts: ClassVar = {**Llama.parts, "qkv": "self_attn.qkv_proj"}

    def layer(self, i: int) -> Tensors:
        yield from super().layer(i)
        both = self.tensors[f"model.layers.{i}.mlp.gate_up_proj.weight"]
        yield "gate.weight", both[: len(both) // 2]
        yield "up.weight", both[len(both) // 2 :]


class Gemma(Llama):
    """Gemma 1: Llama with scaled embeddings and norms that multiply by 1 + weight."""

    def architecture(self) -> Decoder:
        return replace(super().architecture(), embedding_scale=float(self.model.base_model.embed_tokens.embed_scale))

    def read(self, ours: str, *theirs: str) -> Tensors:
        for name, value in super().read(ours, *theirs):
            yield name, 1.0 + value if ours.endswith("norm") else value


class Gemma2(Gemma):
    """Gemma 2: norms behind attention and feed-forward as well, soft caps."""

    parts: ClassVar = {
        **Llama.parts,
        "attention_post_norm": "post_attention_layernorm",
        "feed_forward_norm": "pre_feedforward_layernorm",
        "feed_forward_post_norm": "post_feedforward_layernorm",
    }


class Gemma3(Gemma2):
    """Gemma 3: norms of queries and keys; it has Gemma 2's setting of a cap of the scores, and no use for it."""

    settings: ClassVar = {**Gemma2.settings, "attn_logit_softcapping": (None,)}


class Gpt2(CausalFamily):
    """GPT-2: layer norms and a table of positions; its matrices are [inputs, outputs]."""

    settings: ClassVar = {
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    }
    ends: ClassVar = {
        "embedding": "transformer.wte.weight",
        "position": "transformer.wpe.weight",
        "final_norm": "transformer.ln_f",
        "vocabulary": "lm_head",
    }
    at: ClassVar = "transformer.h.{}"
    parts: ClassVar = {
        "attention_norm": "ln_1",
        "feed_forward_norm": "ln_2",
        "qkv": "attn.c_attn",
        "out": "attn.c_proj",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    }

    def layer(self, i: int) -> Tensors:
        for name, value in super().layer(i):
            yield name, value.T


_GPT_NEOX_PARTS = {
    "attention_norm": "input_layernorm",
    "qkv": "attention.query_key_value",
    "out": "attention.dense",
    "feed_forward_norm": "post_attention_layernorm",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}


class GptNeoX(CausalFamily):
    """GPT-NeoX and Pythia: part of each head is rotated; attention and feed-forward side by side."""

    epsilon: ClassVar = "layer_norm_eps"
    ends: ClassVar = {"embedding": "gpt_neox.embed_in.weight", "final_norm": "gpt_neox.final_layer_norm"}
    at: ClassVar = "gpt_neox.layers.{}"
    parts: ClassVar = _GPT_NEOX_PARTS
    by_head: ClassVar = True

    def architecture(self) -> Decoder:
        scale = float(getattr(self.model.base_model.rotary_emb, "attention_scaling", 1.0))
        plain, layer = super().architecture(), Layer(rotary="inv_freq", rotary_scale=scale)
        return replace(plain, layers=(layer,) * len(plain.layers), parallel=self.config.use_parallel_residual)

    def outside(self) -> Tensors:
        yield from super().outside()
        yield "inv_freq", self.model.base_model.rotary_emb.inv_freq.numpy()
        yield from self.read("vocabulary", "lm_head" if "lm_head.weight" in self.tensors else "embed_out")


class Opt(CausalFamily):
    """OPT, but for the one with norms behind (350m)."""

    settings: ClassVar = {
        "do_layer_norm_before": (True,),
        "_remove_final_layer_norm": (False,),
        "layer_norm_elementwise_affine": (True,),
    }
    epsilon: ClassVar = 1e-5
    ends: ClassVar = {
        "embedding": "model.decoder.embed_tokens.weight",
        "position": "model.decoder.embed_positions.weight",
        "final_norm": "model.decoder.final_layer_norm",
        "vocabulary": "lm_head",
    }
    at: ClassVar = "model.decoder.layers.{}"
    parts: ClassVar = {
        "attention_norm": "self_attn_layer_norm",
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": "self_attn.out_proj",
        "feed_forward_norm": "final_layer_norm",
        "up": "fc1",
        "down": "fc2",
    }

    def architecture(self) -> Decoder:
        return replace(super().architecture(), position_offset=2)


class Bloom(CausalFamily):
    """Bloom: no positions but a bias of the scores that grows with distance (ALiBi)."""

    settings: ClassVar = {"apply_residual_connection_post_layernorm": (False,)}
    ends: ClassVar = {
        "embedding": "transformer.word_embeddings.weight",
        "embedding_norm": "transformer.word_embeddings_layernorm",
        "final_norm": "transformer.ln_f",
        "vocabulary": "lm_head",
    }
    at: ClassVar = "transformer.h.{}"
    parts: ClassVar = {
        **_GPT_NEOX_PARTS,
        "qkv": "self_attention.query_key_value",
        "out": "self_attention.dense",
    }
    by_head: ClassVar = True

    def architecture(self) -> Decoder:
        return replace(super().architecture(), alibi=alibi_slopes(self.config.num_attention_heads))


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's slope for each head: 2^(-8/n), 2^(-16/n), … for n heads, a power of two; else completed by every second of 2n."""
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
    return (*slopes, *(2.0 ** (-4 * (2 * i + 1) / whole) for i in range(heads - whole)))


FAMILIES: dict[Kind, dict[str, type[MaskedFamily] | type[CausalFamily]]] = {
    "masked": {
        "bert": Bert,
        "distilbert": DistilBert,
        "roberta": Roberta,
        "camembert": Roberta,
        "xlm-roberta": Roberta,
        "xlm-roberta-xl": XlmRobertaXl,
        "albert": Albert,
        "electra": Electra,
        "modernbert": ModernBert,
        "deberta-v2": DebertaV2,
    },
    "causal": {
        "llama": Llama,
        "mistral": Llama,
        "qwen2": Llama,
        "qwen3": Llama,
        "smollm3": Llama,
        "phi3": Phi3,
        "gemma": Gemma,
        "gemma2": Gemma2,
        "gemma3_text": Gemma3,
        "gpt2": Gpt2,
        "gpt_neox": GptNeoX,
        "opt": Opt,
        "bloom": Bloom,
    },
}
"""Head → transformers' model type → its family."""
