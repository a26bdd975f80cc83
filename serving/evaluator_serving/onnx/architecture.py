"""What a masked language model is made of, as values: enough to build its graph, nothing about any framework.

Tensors are named as in the checkpoint's transformers model. A `Dense` has `name.weight` [outputs, inputs] and perhaps
`name.bias`; a `Norm` has `name.weight` and perhaps `name.bias`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Norm:
    """A layer normalization."""

    name: str
    epsilon: float


@dataclass(frozen=True, slots=True)
class Embeddings:
    """From token ids to the first hidden states: word + position + type, normalization, projection.

    Attributes:
        word, position, type: tables [entries, width]; position or type may be absent.
        types: number of token types; with more than one the graph takes token types as an input.
        padding_positions: None where positions count from 0, else the padding id p: positions count from p + 1 over the
            tokens that are not p, which themselves have position p.
        norm: applied to the sum, or None. norm_last: whether the projection comes before the norm.
        projection: a Dense to the encoder's width, or None.
        zero_padding: whether embeddings of padding are set to zero.
    """

    word: str
    position: str | None
    type: str | None
    types: int
    norm: Norm | None
    padding_positions: int | None = None
    projection: str | None = None
    norm_last: bool = False
    zero_padding: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One encoder layer.

    Attributes:
        query, key, value: Dense names; `fused` instead names one Dense for all three, stacked in that order.
        out: the attention's output Dense.
        attention_norm, feed_forward_norm: after the residual sums (post-norm), or before attention and feed-forward
            (pre-norm; None there means identity).
        up, down: the feed-forward's Denses; gated: `up` gives input and gate, stacked, and act(input) · gate goes down.
        window: how far a token attends, or None for everywhere.
        rotary: name of the inverse frequencies [head width / 2], or None. rotary_scale multiplies cosine and sine.
        relative_key, relative_query: tables [2 · span, width] of projected relative positions that queries and keys are
            compared with (disentangled attention), or None.
    """

    query: str
    key: str
    value: str
    out: str
    attention_norm: Norm | None
    up: str
    down: str
    feed_forward_norm: Norm
    fused: str | None = None
    gated: bool = False
    window: int | None = None
    rotary: str | None = None
    rotary_scale: float = 1.0
    relative_key: str | None = None
    relative_query: str | None = None

    @property
    def query_key_value(self) -> str:
        """Name of the one Dense for queries, keys and values."""
        return self.fused or f"{self.query}.key.value"

    @property
    def key_value(self) -> str:
        """Name of the one Dense for keys and values."""
        return f"{self.key}.value"


@dataclass(frozen=True, slots=True)
class Convolution:
    """DeBERTa-v2's convolution beside the first layer: its tensors, activation, groups and normalization."""

    name: str
    activation: str
    groups: int
    kernel: int
    norm: Norm


@dataclass(frozen=True, slots=True)
class Head:
    """The vocabulary head: Dense, activation, normalization, then the vocabulary matrix and its bias."""

    dense: str
    activation: str
    norm: Norm
    weight: str
    bias: str


@dataclass(frozen=True, slots=True)
class Architecture:
    """A whole model. `scale` multiplies the attention scores; `buckets` names the table of relative distances."""

    family: str
    width: int
    heads: int
    scale: float
    activation: str
    pre_norm: bool
    embeddings: Embeddings
    layers: tuple[Layer, ...]
    final_norm: Norm | None
    head: Head
    convolution: Convolution | None = None
    buckets: str | None = None

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    @property
    def shares_layers(self) -> bool:
        """Whether several layers use the same tensors (ALBERT)."""
        return len({layer.out for layer in self.layers}) < len(self.layers)
