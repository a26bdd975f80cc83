"""What a generative (causal) model is made of, as values: enough to build its graph, nothing about any framework.

Its tensors go by names of our own, whatever the family calls them. Outside the layers: `embedding` [V, width], `position`
[entries, width], `embedding_norm`, `final_norm`, `vocabulary` (the head's matrix [V, width]) and the rotary frequencies that
layers name. In layer i: `i.attention_norm`, `i.qkv` (queries, keys and values stacked), `i.query_norm`, `i.key_norm`, `i.out`,
`i.attention_post_norm`, `i.feed_forward_norm`, `i.gate`, `i.up`, `i.down`, `i.feed_forward_post_norm`. Each of these has
`.weight` ([outputs, inputs] for a matrix) and perhaps `.bias`; what a family doesn't have isn't stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """What differs between the layers of one model.

    Attributes:
        window: how many tokens a token sees, itself included; None for all before it.
        rotary: name of the inverse frequencies [rotary width / 2], or None; rotary_scale multiplies cosine and sine.
    """

    window: int | None = None
    rotary: str | None = None
    rotary_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Decoder:
    """A whole model.

    Attributes:
        family: transformers' model type.
        width, heads, key_value_heads, head_width: sizes; heads · head_width may differ from width.
        norm: `rms` or `layer`, with `epsilon`; all of them, those of queries and keys included.
        activation: of the feed-forward, by transformers' name; with a `gate`, act(gate) · up goes down.
        scale: multiplies attention's scores; with `score_cap` c they become c · tanh(score / c).
        layers: one entry each.
        position_offset: what is added to a token's place in its row to find its row of `position`.
        embedding_scale: multiplies the embeddings.
        alibi: slopes by head of a bias slope · (key's place - query's place), or None.
        parallel: attention and feed-forward both read the layer's input, and their outputs are added to it together.
        logit_cap: with c, logits become c · tanh(logit / c).
    """

    family: str
    width: int
    heads: int
    key_value_heads: int
    head_width: int
    norm: Literal["rms", "layer"]
    epsilon: float
    activation: str
    scale: float
    layers: tuple[DecoderLayer, ...]
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
