"""The generative families that have a graph: from a transformers causal model to its architecture and tensors.

A new family is one class here and a line in `FAMILIES`. A class says what its config means, and what its tensors are called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evaluator_kernels.onnx_graph import ACTIVATIONS
from evaluator_serving.errors import InputError
from evaluator_serving.models.config import rotary
from evaluator_serving.onnx.decoder_architecture import Decoder, DecoderLayer

Tensors = dict[str, NDArray[Any]]


def refusal(config: Any) -> str | None:
    """Why a causal model with this transformers config has no graph, or None if it has one."""
    kind = getattr(config, "model_type", None)
    family = FAMILIES.get(kind or "")
    if family is None:
        return f"no ONNX graph for generative {kind} models (there is one for {', '.join(FAMILIES)})"
    activation = _activation(config)
    if activation not in ACTIVATIONS:
        return f"no ONNX graph for {config.model_type} models with activation {activation}"
    if any(entry.get("rope_type") == "longrope" for entry in rotary(config)):
        return f"no ONNX graph for {config.model_type} models whose rotary frequencies depend on the length (longrope)"
    if getattr(config, "word_embed_proj_dim", config.hidden_size) != config.hidden_size:
        return f"no ONNX graph for {config.model_type} models with projected embeddings"
    for name, allowed in family.settings.items():
        if (value := getattr(config, name, None)) not in allowed:
            return f"no ONNX graph for {config.model_type} models with {name} = {value}"
    return None


def decoder(model: Any, spec: str) -> tuple[Decoder, Family]:
    """Architecture of a causal model, and where its tensors come from.

    Raises InputError, naming the family, for one without a graph or a variant of a family that its graph doesn't cover.
    """
    if reason := refusal(model.config):
        raise InputError(f"model {spec}: {reason}; use --engine transformers")
    family = FAMILIES[model.config.model_type](model)
    return family.architecture(), family


def _activation(config: Any) -> str | None:
    names = ("hidden_activation", "hidden_act", "activation_function")
    named = (getattr(config, name, None) for name in names)
    return next((name for name in named if name), "gelu_new" if config.model_type == "bloom" else None)


class Family:
    """What the families share. `settings`: values of settings whose others would change the computation."""

    settings: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def __init__(self, model: Any) -> None:
        self.config = model.config
        self.model = model
        self.tensors = {name: value.detach().numpy() for name, value in model.state_dict().items()}

    def architecture(self) -> Decoder:
        """What the config says."""
        raise NotImplementedError

    def layer_normed(self, heads: int, epsilon: float, layers: int, kind: DecoderLayer | None = None, **more: Any) -> Decoder:
        """An architecture of layer norms whose heads have keys and values of their own, all layers of one kind."""
        width = self.config.hidden_size // heads
        return Decoder(
            family=self.config.model_type,
            width=self.config.hidden_size,
            heads=heads,
            key_value_heads=heads,
            head_width=width,
            norm="layer",
            epsilon=epsilon,
            activation=str(_activation(self.config)),
            scale=width**-0.5,
            layers=(kind or DecoderLayer(),) * layers,
            **more,
        )

    def outside(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Names (see `decoder_architecture`) and values of the tensors outside the layers."""
        raise NotImplementedError

    def layer(self, i: int) -> Iterator[tuple[str, NDArray[Any]]]:
        """The same of layer i, without the `i.` in front."""
        raise NotImplementedError

    def named(self, ours: str, theirs: str, *, transpose: bool = False) -> Iterator[tuple[str, NDArray[Any]]]:
        """Weight and bias of one module, as far as it has them; `transpose` turns matrices that are [inputs, outputs]."""
        for part in ("weight", "bias"):
            if (value := self.tensors.get(f"{theirs}.{part}")) is not None:
                yield f"{ours}.{part}", value.T if transpose and part == "weight" else value

    def stacked(self, ours: str, *theirs: str) -> Iterator[tuple[str, NDArray[Any]]]:
        """Several modules as one, their outputs in this order."""
        for part in ("weight", "bias"):
            if f"{theirs[0]}.{part}" in self.tensors:
                yield f"{ours}.{part}", np.concatenate([self.tensors[f"{name}.{part}"] for name in theirs])

    def by_head(self, ours: str, theirs: str) -> Iterator[tuple[str, NDArray[Any]]]:
        """One module for queries, keys and values whose outputs go head by head: q, k, v of the first, of the second, …"""
        heads = self.config.num_attention_heads if hasattr(self.config, "num_attention_heads") else self.config.n_head
        for name, value in self.named(ours, theirs):
            apart = value.reshape(heads, 3, -1, *value.shape[1:])
            yield name, np.swapaxes(apart, 0, 1).reshape(value.shape)


_SLIDING = ("mistral", "phi3")
"""Families whose layers all slide where the config has a window."""


class Llama(Family):
    """Llama's kind: RMS norms, rotary positions, a gated feed-forward; Mistral, Qwen, SmolLM, Phi-3 and Gemma are variants."""

    settings: ClassVar = {"use_bidirectional_attention": (None, False), "pretraining_tp": (None, 1)}

    def architecture(self) -> Decoder:
        config = self.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return Decoder(
            family=config.model_type,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            key_value_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
            head_width=width,
            norm="rms",
            epsilon=config.rms_norm_eps,
            activation=str(_activation(config)),
            scale=(getattr(config, "query_pre_attn_scalar", None) or width) ** -0.5,
            layers=tuple(self._layers()),
            score_cap=getattr(config, "attn_logit_softcapping", None),
            logit_cap=getattr(config, "final_logit_softcapping", None),
        )

    def _layers(self) -> Iterator[DecoderLayer]:
        """Window and rotary positions of each layer."""
        config, rotary = self.config, self.model.base_model.rotary_emb
        kinds = getattr(config, "layer_types", None)
        without = getattr(config, "no_rope_layers", None)  # 1 where a layer has rotary positions
        for i in range(config.num_hidden_layers):
            slides = kinds[i] == "sliding_attention" if kinds else config.model_type in _SLIDING
            kind = f"{kinds[i]}_" if kinds and hasattr(rotary, f"{kinds[i]}_inv_freq") else ""
            yield DecoderLayer(
                window=config.sliding_window if slides else None,
                rotary=None if without and not without[i] else f"{kind}inv_freq",
                rotary_scale=float(getattr(rotary, f"{kind}attention_scaling", 1.0)),
            )

    def outside(self) -> Iterator[tuple[str, NDArray[Any]]]:
        yield "embedding", self.tensors["model.embed_tokens.weight"]
        rotary = self.model.base_model.rotary_emb
        for name in {layer.rotary for layer in self._layers() if layer.rotary}:
            yield name, getattr(rotary, name).numpy()
        yield from self.norm("final_norm", "model.norm")
        yield from self.named("vocabulary", "lm_head")

    def layer(self, i: int) -> Iterator[tuple[str, NDArray[Any]]]:
        at = f"model.layers.{i}"
        yield from self.norm("attention_norm", f"{at}.input_layernorm")
        yield from self.stacked("qkv", *(f"{at}.self_attn.{name}_proj" for name in "qkv"))
        for name in ("query", "key"):
            yield from self.norm(f"{name}_norm", f"{at}.self_attn.{name[0]}_norm")
        yield from self.named("out", f"{at}.self_attn.o_proj")
        yield from self.norm("feed_forward_norm", f"{at}.post_attention_layernorm")
        for name in ("gate", "up", "down"):
            yield from self.named(name, f"{at}.mlp.{name}_proj")

    def norm(self, ours: str, theirs: str) -> Iterator[tuple[str, NDArray[Any]]]:
        """One normalization's weight."""
        return self.named(ours, theirs)


class Phi3(Llama):
    """Phi-3: Llama with two projections that are fused in the checkpoint."""

    def layer(self, i: int) -> Iterator[tuple[str, NDArray[Any]]]:
        at = f"model.layers.{i}"
        yield from self.norm("attention_norm", f"{at}.input_layernorm")
        yield from self.named("qkv", f"{at}.self_attn.qkv_proj")
        yield from self.named("out", f"{at}.self_attn.o_proj")
        yield from self.norm("feed_forward_norm", f"{at}.post_attention_layernorm")
        both = self.tensors[f"{at}.mlp.gate_up_proj.weight"]
        yield "gate.weight", both[: len(both) // 2]
        yield "up.weight", both[len(both) // 2 :]
        yield from self.named("down", f"{at}.mlp.down_proj")


class Gemma(Llama):
    """Gemma 1: Llama with scaled embeddings and norms that multiply by 1 + weight."""

    def architecture(self) -> Decoder:
        return replace(super().architecture(), embedding_scale=float(self.model.base_model.embed_tokens.embed_scale))

    def norm(self, ours: str, theirs: str) -> Iterator[tuple[str, NDArray[Any]]]:
        for name, value in self.named(ours, theirs):
            yield name, 1.0 + value


class Gemma2(Gemma):
    """Gemma 2: norms behind attention and feed-forward as well, soft caps."""

    def layer(self, i: int) -> Iterator[tuple[str, NDArray[Any]]]:
        at = f"model.layers.{i}"
        for name, value in super().layer(i):
            if not name.startswith("feed_forward_norm."):
                yield name, value
        yield from self.norm("attention_post_norm", f"{at}.post_attention_layernorm")
        yield from self.norm("feed_forward_norm", f"{at}.pre_feedforward_layernorm")
        yield from self.norm("feed_forward_post_norm", f"{at}.post_feedforward_layernorm")


class Gemma3(Gemma2):
    """Gemma 3: norms of queries and keys; it has Gemma 2's setting of a cap of the scores, and no use for it."""

    settings: ClassVar = {**Gemma2.settings, "attn_logit_softcapping": (None,)}


class Gpt2(Family):
    """GPT-2: layer norms and a table of positions; its matrices are [inputs, outputs]."""

    settings: ClassVar = {
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    }

    def architecture(self) -> Decoder:
        config = self.config
        return self.layer_normed(config.num_attention_heads, config.layer_norm_epsilon, config.num_hidden_layers)

    def outside(self) -> Iterator[tuple[str, NDArray[Any]]]:
        yield "embedding", self.tensors["transformer.wte.weight"]
        yield "position", self.tensors["transformer.wpe.weight"]
        yield from self.named("final_norm", "transformer.ln_f")
        yield from self.named("vocabulary", "lm_head")

    def layer(self, i: int) -> Iterator[tuple[str, NDArray[Any]]]:
        at = f"transformer.h.{i}"
        yield from self.named("attention_norm", f"{at}.ln_1")
        yield from self.named("feed_forward_norm", f"{at}.ln_2")
        parts = {"qkv": "attn.c_attn", "out": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}
        for ours, theirs in parts.items():
            yield from self.named(ours, f"{at}.{theirs}", transpose=True)


class GptNeoX(Family):
    """GPT-NeoX and Pythia: part of each head is rotated; attention and feed-forward side by side."""

    def architecture(self) -> Decoder:
        config = self.config
        scale = float(getattr(self.model.base_model.rotary_emb, "attention_scaling", 1.0))
        kind = DecoderLayer(rotary="inv_freq", rotary_scale=scale)
        return self.layer_normed(
            config.num_attention_heads,
            config.layer_norm_eps,
            config.num_hidden_layers,
            kind,
            parallel=config.use_parallel_residual,
        )

    def outside(self) -> Iterator[tuple[str, NDArray[Any]]]:
        yield "embedding", self.tensors["gpt_neox.embed_in.weight"]
        yield "inv_freq", self.model.base_model.rotary_emb.inv_freq.numpy()
        yield from self.named("final_norm", "gpt_neox.final_layer_norm")
        yield from self.named("vocabulary", "lm_head" if "lm_head.weight" in self.tensors else "embed_out")

    def layer(self, i: int) -> Iterator[tuple[str, NDArray[Any]]]:
        at = f"gpt_neox.layers.{i}"
        yield from self.named("attention_norm", f"{at}.input_layernorm")
        yield from self.by_head("qkv", f"{at}.attention.query_key_value")
        yield from self.named("out", f"{at}.attention.dense")
        yield from self.named("feed_forward_norm", f"{at}.post_attention_layernorm")
        yield from self.named("up", f"{at}.mlp.dense_h_to_4h")
        yield from self.named("down", f"{at}.mlp.dense_4h_to_h")


class Opt(Family):
    """OPT, but for the one with norms behind (350m)."""

    settings: ClassVar = {
        "do_layer_norm_before": (True,),
        "_remove_final_layer_norm": (False,),
        "layer_norm_elementwise_affine": (True,),
    }

    def architecture(self) -> Decoder:
        return self.layer_normed(self.config.num_attention_heads, 1e-5, self.config.num_hidden_layers, position_offset=2)

    def outside(self) -> Iterator[tuple[str, NDArray[Any]]]:
        yield "embedding", self.tensors["model.decoder.embed_tokens.weight"]
        yield "position", self.tensors["model.decoder.embed_positions.weight"]
        yield from self.named("final_norm", "model.decoder.final_layer_norm")
        yield from self.named("vocabulary", "lm_head")

    def layer(self, i: int) -> Iterator[tuple[str, NDArray[Any]]]:
        at = f"model.decoder.layers.{i}"
        yield from self.named("attention_norm", f"{at}.self_attn_layer_norm")
        yield from self.stacked("qkv", *(f"{at}.self_attn.{name}_proj" for name in "qkv"))
        yield from self.named("out", f"{at}.self_attn.out_proj")
        yield from self.named("feed_forward_norm", f"{at}.final_layer_norm")
        yield from self.named("up", f"{at}.fc1")
        yield from self.named("down", f"{at}.fc2")


class Bloom(Family):
    """Bloom: no positions but a bias of the scores that grows with distance (ALiBi)."""

    settings: ClassVar = {"apply_residual_connection_post_layernorm": (False,)}

    def architecture(self) -> Decoder:
        config = self.config
        slopes = alibi_slopes(config.n_head)
        return self.layer_normed(config.n_head, config.layer_norm_epsilon, config.n_layer, alibi=slopes)

    def outside(self) -> Iterator[tuple[str, NDArray[Any]]]:
        yield "embedding", self.tensors["transformer.word_embeddings.weight"]
        yield from self.named("embedding_norm", "transformer.word_embeddings_layernorm")
        yield from self.named("final_norm", "transformer.ln_f")
        yield from self.named("vocabulary", "lm_head")

    def layer(self, i: int) -> Iterator[tuple[str, NDArray[Any]]]:
        at = f"transformer.h.{i}"
        yield from self.named("attention_norm", f"{at}.input_layernorm")
        yield from self.by_head("qkv", f"{at}.self_attention.query_key_value")
        yield from self.named("out", f"{at}.self_attention.dense")
        yield from self.named("feed_forward_norm", f"{at}.post_attention_layernorm")
        yield from self.named("up", f"{at}.mlp.dense_h_to_4h")
        yield from self.named("down", f"{at}.mlp.dense_4h_to_h")


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's slope for each head: 2^(-8/n), 2^(-16/n), … for n heads, a power of two; else completed by every second of 2n."""
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
    return (*slopes, *(2.0 ** (-4 * (2 * i + 1) / whole) for i in range(heads - whole)))


FAMILIES: dict[str, type[Family]] = {
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
}
