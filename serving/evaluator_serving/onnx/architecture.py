"""What a language model is made of, as values: enough to build its graph, nothing about any framework.

Its tensors go by names of our own, whatever the family calls them. Outside the layers: `embedding` [V, width], `position` and
`type` [entries, width], `embedding_norm`, `projection` (from the embeddings' width to the model's), `final_norm`, `dense` and
`head_norm` (of a masked model, in front of its vocabulary), `vocabulary` (the head's matrix [V, width]), `convolution` and
`convolution_norm` (DeBERTa-v2's, beside the first layer), `buckets` (rows of the relative tables by distance) and the rotary
frequencies that layers name. In layer i: `i.attention_norm`, `i.qkv` (queries, keys and values stacked), `i.query_norm`,
`i.key_norm`, `i.out`, `i.attention_post_norm`, `i.feed_forward_norm`, `i.gate`, `i.up`, `i.down`, `i.feed_forward_post_norm`,
`i.relative_key`, `i.relative_query` (tables [2 · span, width] of projected relative positions). All but the tables have
`.weight` ([outputs, inputs] for a matrix) and perhaps `.bias`; what a family doesn't have isn't stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Layer:
    """What differs between the layers of one model.

    Attributes:
        window: how far a token of a masked model looks to either side; how many tokens one of a causal model sees, itself
            included. None for no limit.
        rotary: name of the inverse frequencies [rotary width / 2], or None; rotary_scale multiplies cosine and sine.
    """

    window: int | None = None
    rotary: str | None = None
    rotary_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """What masked and causal models have in common.

    Attributes:
        family: transformers' model type.
        width, heads: of the hidden states, and attention heads of a layer.
        scale: multiplies attention's scores.
        epsilon: of all normalizations.
        activation: of the feed-forward, by transformers' name.
        layers: one entry each.
        order: which stored layer each of them is, where some are the same (ALBERT).
    """

    family: str
    width: int
    heads: int
    scale: float
    epsilon: float
    activation: str
    layers: tuple[Layer, ...]
    order: tuple[int, ...] = ()

    @property
    def stored(self) -> tuple[int, ...]:
        """Number of the stored layer that each layer is."""
        return self.order or tuple(range(len(self.layers)))

    @property
    def shares_layers(self) -> bool:
        """Whether several layers use the same tensors."""
        return len(set(self.stored)) < len(self.layers)


@dataclass(frozen=True, slots=True)
class Convolution:
    """DeBERTa-v2's convolution: its activation, groups and kernel size."""

    activation: str
    groups: int
    kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderModel(Transformer):
    """A masked model.

    Attributes:
        head_activation: between `dense` and `head_norm`.
        pre_norm: whether norms come before attention and feed-forward instead of after the residual sums.
        gated: whether `up` gives input and gate, stacked, and act(input) · gate goes down.
        types: number of token types; with more than one the graph takes token types as an input.
        padding_positions: None where positions count from 0, else the padding id p: positions count from p + 1 over the
            tokens that are not p, which themselves have position p.
        norm_last: whether the embeddings' projection comes before their norm.
        zero_padding: whether embeddings of padding are set to zero.
    """

    head_activation: str
    pre_norm: bool = False
    gated: bool = False
    types: int = 0
    padding_positions: int | None = None
    norm_last: bool = False
    zero_padding: bool = False
    convolution: Convolution | None = None

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder(Transformer):
    """A causal model. With a `gate`, act(gate) · up goes down.

    Attributes:
        key_value_heads, head_width: sizes; heads · head_width may differ from width.
        norm: `rms` or `layer`: all of them, those of queries and keys included.
        score_cap: with c, scores become c · tanh(score / c).
        position_offset: what is added to a token's place in its row to find its row of `position`.
        embedding_scale: multiplies the embeddings.
        alibi: slopes by head of a bias slope · (key's place - query's place), or None.
        parallel: attention and feed-forward both read the layer's input, and their outputs are added to it together.
        logit_cap: with c, logits become c · tanh(logit / c).
    """

    key_value_heads: int
    head_width: int
    norm: Literal["rms", "layer"]
    score_cap: float | None = None
    position_offset: int = 0
    embedding_scale: float = 1.0
    alibi: tuple[float, ...] | None = None
    parallel: bool = False
    logit_cap: float | None = None

    @property
    def query_width(self) -> int:
        """Width of all queries together."""
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        """Width of all keys together, and of all values."""
        return self.key_value_heads * self.head_width
