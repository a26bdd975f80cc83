"""The decoder's graph: from a tree of token ids to the hidden states at the positions that are read.

Rows that begin alike share nodes of one flat tree: every matrix product and normalization runs over the tree's nodes
[nodes, width], each once. Only attention sees rows: queries, keys and values are gathered into [rows, length, …], which is
cheap, and there it is plain causal attention, whatever the tree looks like. In the last layer output projection and
feed-forward are computed at the read nodes only, unless the graph is to be plain.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from onnx import TensorProto

from evaluator_kernels.onnx_graph import ACTIVATIONS, MICROSOFT, GraphBuilder, layer_norm, linear, rms_norm
from evaluator_serving.onnx.architecture import Decoder, Layer


def read_hidden_states(graph: GraphBuilder, model: Decoder, *, plain: bool) -> str:
    """Declare the graph's inputs and build the decoder. Returns the value [reads, width] that the head multiplies.

    Inputs, int64: input_ids [nodes]; row_nodes [rows, length], the nodes of each row in order, any node as padding behind them;
    node_places [nodes], an element of the flattened row_nodes that is this node; reads [reads], nodes. `plain` leaves out
    everything that was done for speed, ONNX Runtime's own operators included.
    """
    return _Decoder(graph, model, plain=plain).build()


class _Decoder:
    """The values that all layers share, and the pieces that layers are made of."""

    def __init__(self, graph: GraphBuilder, model: Decoder, *, plain: bool) -> None:
        self.graph, self.model, self.plain = graph, model, plain
        self.ids = graph.input("input_ids", TensorProto.INT64, ["nodes"])
        self.rows = graph.input("row_nodes", TensorProto.INT64, ["rows", "length"])
        self.places = graph.input("node_places", TensorProto.INT64, ["nodes"])
        self.reads = graph.input("reads", TensorProto.INT64, ["reads"])
        self.length = graph.op("Shape", self.rows, start=1, end=2)
        # Values that several layers need stand in the graph once.
        self.positions = cache(self._positions)
        self.row_range = cache(self._row_range)
        self.last_key = cache(self._last_key)
        self.rotation = cache(self._rotation)
        self.bias = cache(self._bias)
        self.read_places = cache(lambda: graph.op("Gather", self.places, self.reads))

    def build(self) -> str:
        """The whole decoder."""
        x, pending = self.embed(), ""
        last = len(self.model.layers) - 1
        for i, layer in enumerate(self.model.layers):
            x, pending = self.layer(x, pending, i, layer, only_read=i == last and not self.plain)
        y, _ = self.add_and_norm(x, pending, "final_norm")
        return self.graph.op("Gather", y, self.reads) if self.plain else y

    def embed(self) -> str:
        """Hidden states [nodes, width] that go into the first layer."""
        graph, model = self.graph, self.model
        x = graph.op("Gather", graph.stored("embedding"), self.ids)
        if model.embedding_scale != 1.0:
            x = graph.op("Mul", x, graph.scalar(model.embedding_scale))
        if "position" in graph.weights.tensors:
            entries = graph.op("Add", self.positions(), graph.ints(model.position_offset))
            x = graph.op("Add", x, graph.op("Gather", graph.stored("position"), entries))
        return self.norm(x, "embedding_norm") if self.has("embedding_norm") else x

    def layer(self, x: str, pending: str, i: int, layer: Layer, *, only_read: bool) -> tuple[str, str]:
        """One layer over x + pending [nodes, width]; returns its output as two values that are yet to be added.

        With `only_read` they are [reads, width].
        """
        graph = self.graph
        y, x = self.add_and_norm(x, pending, f"{i}.attention_norm")
        attended = self.attend(y, i, layer)
        if only_read:
            x = graph.op("Gather", x, self.reads)
        attended = graph.op("Gather", attended, self.read_places() if only_read else self.places)
        attended = self.post_norm(linear(graph, attended, f"{i}.out"), f"{i}.attention_post_norm")
        if self.model.parallel:
            y = self.norm(x, f"{i}.feed_forward_norm")
            return x, graph.op("Add", attended, self.feed_forward(y, i))
        y, x = self.add_and_norm(x, attended, f"{i}.feed_forward_norm")
        return x, self.post_norm(self.feed_forward(y, i), f"{i}.feed_forward_post_norm")

    def feed_forward(self, x: str, i: int) -> str:
        """Activation between two matrices, with or without a gate."""
        graph = self.graph
        up = linear(graph, x, f"{i}.up")
        if not graph.weights.has_dense(f"{i}.gate"):
            return linear(graph, self.activate(up), f"{i}.down")
        gate = self.activate(linear(graph, x, f"{i}.gate"))
        return linear(graph, graph.op("Mul", gate, up), f"{i}.down")

    def activate(self, x: str) -> str:
        """The activation function; x · sigmoid(x) in one pass where ONNX Runtime's own operators may be used."""
        if self.model.activation in ("silu", "swish") and not self.plain:
            return self.graph.op("QuickGelu", x, domain=MICROSOFT, alpha=1.0)
        return ACTIVATIONS[self.model.activation](self.graph, x)

    # --- normalization ------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether this model has a normalization of that name."""
        return f"{name}.weight" in self.graph.weights.tensors

    def norm(self, x: str, name: str) -> str:
        """The stored normalization `name` over the last axis."""
        if self.model.norm == "layer":
            return layer_norm(self.graph, x, name, self.model.epsilon)
        return rms_norm(self.graph, x, name, self.model.epsilon, plain=self.plain)

    def post_norm(self, x: str, name: str) -> str:
        """The same, where the model has it."""
        return self.norm(x, name) if self.has(name) else x

    def add_and_norm(self, x: str, y: str, name: str) -> tuple[str, str]:
        """x + y normalized, and x + y; y may be nothing ("")."""
        graph = self.graph
        if not y:
            return self.norm(x, name), x
        if self.plain:
            total = graph.op("Add", x, y)
            return self.norm(total, name), total
        simplified = self.model.norm == "rms"
        kind = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
        bias = [graph.stored(f"{name}.bias")] if f"{name}.bias" in graph.weights.tensors and not simplified else []
        parameters = (graph.stored(f"{name}.weight"), *bias)
        normed, _, _, total = graph.ops(kind, y, x, *parameters, outputs=4, domain=MICROSOFT, epsilon=self.model.epsilon)
        return normed, total

    # --- attention ----------------------------------------------------------------------------------------------

    def attend(self, x: str, i: int, layer: Layer) -> str:
        """Attention's output before its projection, [rows · length, query width], from x [nodes, width]."""
        graph, model = self.graph, self.model
        packed = linear(graph, x, f"{i}.qkv")
        fused = not self.plain and model.head_width % 8 == 0  # what the operator demands
        inside = fused and layer.rotary is not None and self._rotates_inside(layer.rotary)
        if fused and not self.has(f"{i}.query_norm") and (inside or layer.rotary is None):
            return self._fused([graph.op("Gather", packed, self.rows), "", ""], layer, inside=inside)
        q, k, v = graph.ops("Split", packed, graph.ints(model.query_width, model.key_width, model.key_width), outputs=3, axis=1)
        if self.has(f"{i}.query_norm"):
            q, k = self._norm_heads(q, f"{i}.query_norm"), self._norm_heads(k, f"{i}.key_norm")
        if layer.rotary is not None and not inside:
            q, k = (self._rotate(part, layer) for part in (q, k))
        q, k, v = (graph.op("Gather", part, self.rows) for part in (q, k, v))
        return self._fused([q, k, v], layer, inside=inside) if fused else self._unfused(q, k, v, layer)

    def _norm_heads(self, x: str, name: str) -> str:
        """Normalize each head's part of x [nodes, heads · head width]."""
        graph = self.graph
        heads = self.norm(graph.op("Reshape", x, graph.ints(-1, self.model.head_width)), name)
        return graph.op("Reshape", heads, graph.op("Shape", x))

    def _fused(self, rows: list[str], layer: Layer, *, inside: bool) -> str:
        """ONNX Runtime's attention operator over queries, keys and values [rows, length, …], or over all three in one.

        Causal, so that what stands in the padding behind a row isn't seen.
        """
        graph, model = self.graph, self.model
        cosine, sine = self.rotation(layer.rotary, layer.rotary_scale, True) if inside else ("", "")
        last, total = self.last_key()
        inputs = [*rows, "", "", last, total, cosine, sine, "", self.bias(layer.window)]
        while not inputs[-1]:
            inputs.pop()
        mixed = graph.ops(
            "GroupQueryAttention",
            *inputs,
            outputs=3,
            domain=MICROSOFT,
            num_heads=model.heads,
            kv_num_heads=model.key_value_heads,
            scale=model.scale,
            softcap=model.score_cap or 0.0,
            do_rotary=int(inside),
        )[0]
        return graph.op("Reshape", mixed, graph.ints(-1, model.query_width))

    def _unfused(self, q: str, k: str, v: str, layer: Layer) -> str:
        """The same of standard operators."""
        graph, model = self.graph, self.model
        groups = model.heads // model.key_value_heads
        q = graph.op("Reshape", q, graph.ints(0, 0, model.key_value_heads, groups, model.head_width))
        k, v = (graph.op("Reshape", part, graph.ints(0, 0, model.key_value_heads, 1, model.head_width)) for part in (k, v))
        q, v = (graph.op("Transpose", part, perm=[0, 2, 3, 1, 4]) for part in (q, v))
        scores = graph.op("MatMul", q, graph.op("Transpose", k, perm=[0, 2, 3, 4, 1]))
        scores = graph.op("Mul", scores, graph.scalar(model.scale))
        if model.score_cap:
            cap = graph.scalar(model.score_cap)
            scores = graph.op("Mul", graph.op("Tanh", graph.op("Div", scores, cap)), cap)
        if model.alibi:
            slopes = np.array(model.alibi, graph.dtype).reshape(1, model.key_value_heads, groups, 1, 1)
            apart = graph.op("Cast", self._apart(), to=graph.onnx_type)
            scores = graph.op("Sub", scores, graph.op("Mul", apart, graph.constant(slopes)))
        seen = graph.op("GreaterOrEqual", self._apart(), graph.ints(0))
        if layer.window is not None:
            seen = graph.op("And", seen, graph.op("Less", self._apart(), graph.ints(layer.window)))
        scores = graph.op("Where", seen, scores, graph.scalar(float(np.finfo(graph.dtype).min)))
        mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), v)
        return graph.op("Reshape", graph.op("Transpose", mixed, perm=[0, 3, 1, 2, 4]), graph.ints(-1, model.query_width))

    def _bias(self, window: int | None) -> str:
        """What is added to the scores of a fused attention, [1, heads or 1, length, length], or "" for nothing."""
        graph = self.graph
        bias = ""
        if window is not None:
            # The operator has a window of its own, whose edge differs between versions of ONNX Runtime.
            near = graph.op("Less", self._apart(), graph.ints(window))
            bias = graph.op("Where", near, graph.scalar(0.0), graph.scalar(float(np.finfo(graph.dtype).min)))
            bias = graph.op("Unsqueeze", bias, graph.ints(0, 1))
        if self.model.alibi:
            slopes = graph.constant(np.array(self.model.alibi, graph.dtype).reshape(1, -1, 1, 1))
            slope = graph.op("Neg", graph.op("Mul", graph.op("Cast", self._apart(), to=graph.onnx_type), slopes))
            bias = graph.op("Add", bias, slope) if bias else slope
        return bias

    def _apart(self) -> str:
        """Query's place minus key's place, [length, length]."""
        return self.graph.op("Sub", self.graph.op("Unsqueeze", self.row_range(), self.graph.ints(1)), self.row_range())

    # --- positions ----------------------------------------------------------------------------------------------

    def _row_range(self) -> str:
        """0, 1, … [length]."""
        zero, one = (self.graph.constant(np.array(i, np.int64)) for i in (0, 1))
        return self.graph.op("Range", zero, self.graph.op("Squeeze", self.length), one)

    def _positions(self) -> str:
        """Each node's place in its row, [nodes]."""
        return self.graph.op("Mod", self.places, self.length)

    def _last_key(self) -> tuple[str, str]:
        """What the attention operator wants to know of the lengths: last key of each row [rows], keys; all rows are full."""
        graph = self.graph
        total = graph.op("Cast", graph.op("Squeeze", self.length), to=TensorProto.INT32)
        one = graph.constant(np.array(1, np.int32))
        rows = graph.op("Shape", self.rows, start=0, end=1)
        return graph.op("Expand", graph.op("Sub", total, one), rows), total

    def _rotates_inside(self, frequencies: str) -> bool:
        """Whether the attention operator can rotate vectors of this shape by itself."""
        half = self.graph.weights.tensors[frequencies].shape[0]
        return half % 8 == 0 and half <= self.model.head_width // 16 * 8

    def _rotation(self, frequencies: str | None, scale: float, by_row: bool) -> tuple[str, str]:
        """Cosine and sine, [length, rotary width / 2] of the places in a row, or [nodes, 1, the same] of the nodes' places."""
        graph = self.graph
        assert frequencies is not None
        places = self.row_range() if by_row else self.positions()
        places = graph.op(
            "Unsqueeze", graph.op("Cast", places, to=TensorProto.FLOAT), graph.ints(*((1,) if by_row else (1, 2)))
        )
        angle = graph.op("Mul", places, graph.stored(frequencies))
        factor = graph.constant(np.array(scale, np.float32))
        cosine, sine = (graph.op("Mul", graph.op(kind, angle), factor) for kind in ("Cos", "Sin"))
        return cosine, sine

    def _rotate(self, x: str, layer: Layer) -> str:
        """Rotate each head's part of x [nodes, heads · head width] by its node's place."""
        graph, width = self.graph, self.model.head_width
        assert layer.rotary is not None
        half = graph.weights.tensors[layer.rotary].shape[0]
        cosine, sine = self.rotation(layer.rotary, layer.rotary_scale, False)
        heads = graph.op("Reshape", x, graph.ints(0, -1, width))
        rest = width - 2 * half
        left, right, *others = graph.ops(
            "Split", heads, graph.ints(half, half, *([rest] if rest else [])), outputs=3 if rest else 2, axis=2
        )
        turned = (
            graph.op("Sub", graph.op("Mul", left, cosine), graph.op("Mul", right, sine)),
            graph.op("Add", graph.op("Mul", right, cosine), graph.op("Mul", left, sine)),
        )
        return graph.op("Reshape", graph.op("Concat", *turned, *others, axis=2), graph.op("Shape", x))
