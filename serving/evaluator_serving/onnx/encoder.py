"""The encoder's graph: from token ids to the hidden states at the masked positions, and the head's own layers.

Tokens are flattened to [batch · length, width] for the matrix products. In the last layer only the masked positions'
queries, output projection and feed-forward are computed (keys and values of all tokens are still needed), unless the
graph is to be plain.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from onnx import TensorProto

from evaluator_kernels.onnx_graph import ACTIVATIONS, GraphBuilder, layer_norm, linear
from evaluator_serving.onnx.architecture import EncoderModel, Layer


def masked_hidden_states(graph: GraphBuilder, model: EncoderModel, *, plain: bool) -> str:
    """Declare the graph's inputs and build the encoder. Returns the value [N, width] at the N masked positions that the
    vocabulary matrix multiplies.

    Inputs, int64: input_ids, attention_mask [batch, length]; token_type_ids likewise where the model has several types;
    mask_positions [N, 2], each a row and a position in it. `plain` leaves out everything that was done for speed.
    """
    encoder = _Encoder(graph, model)
    x = encoder.embed()
    embedded = x
    last = len(model.layers) - 1
    # The convolution mixes neighbouring tokens' outputs, so the layer that it belongs to is needed at all positions.
    prune = not plain and (model.convolution is None or last > 0)
    for i, (at, layer) in enumerate(zip(model.stored, model.layers, strict=True)):
        x = encoder.layer(x, at, layer, fuse=not plain, only_masked=prune and i == last)
        if i == 0 and model.convolution is not None:
            x = encoder.convolve(embedded, x)
    if not prune:
        x = graph.op("Gather", x, encoder.flat)
    hidden = linear(graph, encoder.known_norm(x, "final_norm"), "dense")
    return encoder.norm(ACTIVATIONS[model.head_activation](graph, hidden), "head_norm")


class _Encoder:
    """The values that all layers share, and the pieces that layers are made of."""

    def __init__(self, graph: GraphBuilder, model: EncoderModel) -> None:
        self.graph, self.model = graph, model
        self.ids = graph.input("input_ids", TensorProto.INT64, ["batch", "length"])
        self.mask = graph.input("attention_mask", TensorProto.INT64, ["batch", "length"])
        self.types = ""
        if model.types > 1:
            self.types = graph.input("token_type_ids", TensorProto.INT64, ["batch", "length"])
        masked = graph.input("mask_positions", TensorProto.INT64, ["masks", 2])
        self.batch = graph.op("Shape", self.ids, start=0, end=1)
        self.length = graph.op("Shape", self.ids, start=1, end=2)
        rows, positions = graph.ops("Split", masked, graph.ints(1, 1), outputs=2, axis=1)
        self.rows = graph.op("Squeeze", rows, graph.ints(1))
        self.positions = graph.op("Squeeze", positions, graph.ints(1))
        self.flat = graph.op("Add", graph.op("Mul", self.rows, self.length), self.positions)
        zero, one = (graph.constant(np.array(i, np.int64)) for i in (0, 1))
        self.range = graph.op("Range", zero, graph.op("Squeeze", self.length), one)  # 0, 1, … [length]
        # Values that several layers need stand in the graph once.
        self.shape = cache(self._shape)
        self.seen_rows = cache(self._seen_rows)
        self.attention_bias = cache(self._attention_bias)
        self.distances = cache(self._distances)
        self.rotation = cache(self._rotation)
        self.relative_rows = cache(self._relative_rows)

    # --- embeddings ---------------------------------------------------------------------------------------------

    def embed(self) -> str:
        """Hidden states [batch · length, width] that go into the first layer."""
        graph, stored, model = self.graph, self.graph.weights.tensors, self.model
        x = graph.op("Gather", graph.stored("embedding"), self.ids)
        if "type" in stored:
            x = graph.op("Add", x, graph.op("Gather", graph.stored("type"), self.types or graph.ints(0)))
        if "position" in stored:
            x = graph.op("Add", x, graph.op("Gather", graph.stored("position"), self._position_ids()))
        x = graph.op("Reshape", x, graph.ints(-1, stored["embedding"].shape[1]))
        if not model.norm_last:
            x = self.known_norm(x, "embedding_norm")
        if "projection.weight" in stored:
            x = linear(graph, x, "projection")
        if model.norm_last:
            x = self.known_norm(x, "embedding_norm")
        return graph.op("Mul", x, self.seen_rows()) if model.zero_padding else x

    def _position_ids(self) -> str:
        """Rows of the position table, [length] or [batch, length]."""
        graph, padding = self.graph, self.model.padding_positions
        if padding is None:
            return self.range
        present = graph.op("Not", graph.op("Equal", self.ids, graph.ints(padding)))
        present = graph.op("Cast", present, to=TensorProto.INT64)
        count = graph.op("CumSum", present, graph.constant(np.array(1, np.int64)))
        return graph.op("Add", graph.op("Mul", count, present), graph.ints(padding))

    # --- layers -------------------------------------------------------------------------------------------------

    def layer(self, x: str, at: int, layer: Layer, *, fuse: bool, only_masked: bool) -> str:
        """One layer, stored as `at`, over x [batch · length, width]; with `only_masked` its output is [N, width]."""
        graph, model = self.graph, self.model
        y = self.known_norm(x, f"{at}.attention_norm") if model.pre_norm else x
        q, k, v = self._project(y, at, fuse=fuse, only_masked=only_masked)
        attended = linear(graph, self._attend(q, k, v, at, layer, only_masked=only_masked), f"{at}.out")
        if only_masked:
            x = graph.op("Gather", x, self.flat)
        x = graph.op("Add", x, attended)
        if model.pre_norm:
            return graph.op("Add", x, self._feed_forward(self.norm(x, f"{at}.feed_forward_norm"), at))
        x = self.norm(x, f"{at}.attention_norm")
        return self.norm(graph.op("Add", x, self._feed_forward(x, at)), f"{at}.feed_forward_norm")

    def norm(self, x: str, name: str) -> str:
        """Layer normalization."""
        return layer_norm(self.graph, x, name, self.model.epsilon)

    def known_norm(self, x: str, name: str) -> str:
        """The same, where the model has it."""
        return self.norm(x, name) if f"{name}.weight" in self.graph.weights.tensors else x

    def _feed_forward(self, x: str, at: int) -> str:
        graph, activation = self.graph, ACTIVATIONS[self.model.activation]
        y = linear(graph, x, f"{at}.up")
        if self.model.gated:
            y, gate = graph.ops("Split", y, outputs=2, axis=-1, num_outputs=2)
            return linear(graph, graph.op("Mul", activation(graph, y), gate), f"{at}.down")
        return linear(graph, activation(graph, y), f"{at}.down")

    # --- attention ----------------------------------------------------------------------------------------------

    def _project(self, x: str, at: int, *, fuse: bool, only_masked: bool) -> tuple[str, str, str]:
        """Queries, keys and values [batch, length, width]; with `only_masked` [N, 1, width] and [N, length, width]."""
        graph, width = self.graph, self.model.width
        if only_masked:
            q = linear(graph, graph.op("Gather", x, self.flat), f"{at}.query")
            both = graph.op("Reshape", linear(graph, x, f"{at}.key_value"), self.shape(2 * width))
            k, v = self._thirds(graph.op("Gather", both, self.rows), 2)
            return graph.op("Unsqueeze", q, graph.ints(1)), k, v
        separate = {f"{at}.query": 1, f"{at}.key": 1, f"{at}.value": 1}
        in_two = {f"{at}.query": 1, f"{at}.key_value": 2}
        in_one = {f"{at}.qkv": 3}
        for names in (in_one, in_two, separate) if fuse else (separate, in_two, in_one):
            if all(graph.weights.has_dense(name) for name in names):
                break
        parts = [part for name, count in names.items() for part in self._thirds(linear(graph, x, name), count)]
        q, k, v = (graph.op("Reshape", part, self.shape(width)) for part in parts)
        return q, k, v

    def _thirds(self, x: str, count: int) -> list[str]:
        """Cut the last axis into `count` parts of the model's width."""
        widths = self.graph.ints(*[self.model.width] * count)
        return [x] if count == 1 else self.graph.ops("Split", x, widths, outputs=count, axis=-1)

    def _attend(self, q: str, k: str, v: str, at: int, layer: Layer, *, only_masked: bool) -> str:
        """Attention's output before its projection, [batch · length, width] or [N, width]."""
        graph, model = self.graph, self.model
        by_head = graph.ints(0, 0, model.heads, model.head_width)
        q, k, v = (graph.op("Reshape", part, by_head) for part in (q, k, v))
        if layer.rotary:
            q = self._rotate(q, layer, only_masked=only_masked)
            k = self._rotate(k, layer, only_masked=False)
        q = graph.op("Transpose", q, perm=[0, 2, 1, 3])
        scores = graph.op("MatMul", q, graph.op("Transpose", k, perm=[0, 2, 3, 1]))
        if (table := f"{at}.relative_key") in graph.weights.tensors:
            position = self._relative_scores(q, table, queries=True, only_masked=only_masked)
            scores = graph.op("Add", scores, position)
        if (table := f"{at}.relative_query") in graph.weights.tensors:
            k = graph.op("Transpose", k, perm=[0, 2, 1, 3])
            position = self._relative_scores(k, table, queries=False, only_masked=only_masked)
            scores = graph.op("Add", scores, position)
        scores = graph.op("Mul", scores, graph.scalar(model.scale))
        scores = graph.op("Add", scores, self.attention_bias(layer.window, only_masked))
        mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), graph.op("Transpose", v, perm=[0, 2, 1, 3]))
        return graph.op("Reshape", graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), graph.ints(-1, model.width))

    def _attention_bias(self, window: int | None, only_masked: bool) -> str:
        """0 where a query may look, the lowest number elsewhere; broadcasts to [batch, heads, queries, keys]."""
        graph = self.graph
        seen = graph.op("Unsqueeze", graph.op("Cast", self.mask, to=TensorProto.BOOL), graph.ints(1, 2))
        if only_masked:
            seen = graph.op("Gather", seen, self.rows)
        if window is not None:
            near = graph.op("LessOrEqual", graph.op("Abs", self.distances(only_masked)), graph.ints(window))
            seen = graph.op("And", seen, near)
        lowest = graph.scalar(float(np.finfo(graph.dtype).min))
        return graph.op("Where", seen, graph.scalar(0.0), lowest)

    def _distances(self, only_masked: bool) -> str:
        """Query position minus key position, [queries, keys], or [N, 1, 1, keys] for the masked queries."""
        graph = self.graph
        if only_masked:
            return graph.op("Sub", graph.op("Unsqueeze", self.positions, graph.ints(1, 2, 3)), self.range)
        return graph.op("Sub", graph.op("Unsqueeze", self.range, graph.ints(1)), self.range)

    # --- rotary positions ---------------------------------------------------------------------------------------

    def _rotate(self, x: str, layer: Layer, *, only_masked: bool) -> str:
        """Rotate x [batch, length, heads, head width] by its positions."""
        graph = self.graph
        cosine, sine = self.rotation(layer.rotary, layer.rotary_scale, only_masked)
        left, right = graph.ops("Split", x, outputs=2, axis=-1, num_outputs=2)
        turned = graph.op("Concat", graph.op("Neg", right), left, axis=-1)
        return graph.op("Add", graph.op("Mul", x, cosine), graph.op("Mul", turned, sine))

    def _rotation(self, frequencies: str, scale: float, only_masked: bool) -> tuple[str, str]:
        """Cosine and sine, [length, 1, head width], or [N, 1, 1, head width] for the masked positions; via float32."""
        graph = self.graph
        positions, axes = (self.positions, (1, 2, 3)) if only_masked else (self.range, (1, 2))
        positions = graph.op("Unsqueeze", graph.op("Cast", positions, to=TensorProto.FLOAT), graph.ints(*axes))
        half = graph.op("Mul", positions, graph.stored(frequencies))
        angle = graph.op("Concat", half, half, axis=-1)
        factor = graph.constant(np.array(scale, np.float32))
        cosine, sine = (graph.op("Mul", graph.op(kind, angle), factor) for kind in ("Cos", "Sin"))
        return graph.op("Cast", cosine, to=graph.onnx_type), graph.op("Cast", sine, to=graph.onnx_type)

    # --- relative positions (disentangled attention) --------------------------------------------------------------

    def _relative_scores(self, x: str, table: str, *, queries: bool, only_masked: bool) -> str:
        """Unscaled scores [batch, heads, queries, keys] of content x [batch, heads, rows, head width] against positions.

        Row r of x (a query, or a key if not `queries`) and the other side's position c meet in row
        bucket(query - key) of the table. Only the 2 · length distances that occur are multiplied: y[r, m] for the
        distance that c - r = m - (length - 1) means; then score[r, c] = y[r, c - r + length - 1].
        """
        graph, model = self.graph, self.model
        rows = graph.op("Gather", graph.stored(table), self.relative_rows(queries))
        rows = graph.op("Reshape", rows, graph.ints(-1, model.heads, model.head_width))
        y = graph.op("MatMul", x, graph.op("Transpose", rows, perm=[1, 2, 0]))
        if only_masked:
            # Of a masked query only one row is there; of the keys all rows, each with one column that is wanted.
            apart = self.distances(True)  # query - key, [N, 1, 1, keys]
            apart = graph.op("Neg", apart) if queries else graph.op("Transpose", apart, perm=[0, 1, 3, 2])
            index = graph.op("Add", apart, graph.op("Sub", self.length, graph.ints(1)))
            every_head = graph.op("Expand", index, graph.ints(1, model.heads, 1, 1))
            picked = graph.op("GatherElements", y, every_head, axis=-1)
        else:
            picked = self._skew(y)
        return picked if queries else graph.op("Transpose", picked, perm=[0, 1, 3, 2])

    def _skew(self, y: str) -> str:
        """score[r, c] = y[r, c - r + length - 1] for y [batch, heads, length, 2 · length].

        In the flattened row-major y that element stands at r · (2 · length - 1) + c + length - 1: rows one shorter.
        """
        graph, length, one = self.graph, self.length, self.graph.ints(1)
        shorter = graph.op("Sub", graph.op("Mul", length, graph.ints(2)), one)
        start = graph.op("Sub", length, one)
        stop = graph.op("Add", start, graph.op("Mul", length, shorter))
        flat = graph.op("Reshape", y, graph.ints(0, 0, -1))
        flat = graph.op("Slice", flat, start, stop, graph.ints(2))
        skewed = graph.op("Reshape", flat, graph.op("Concat", graph.ints(0, 0), length, shorter, axis=0))
        return graph.op("Slice", skewed, graph.ints(0), length, graph.ints(3))

    def _relative_rows(self, queries: bool) -> str:
        """Rows [2 · length] of the relative tables, for m = 0, 1, … (see `_relative_scores`)."""
        graph = self.graph
        zero, one = (graph.constant(np.array(i, np.int64)) for i in (0, 1))
        columns = graph.op("Range", zero, graph.op("Squeeze", graph.op("Mul", self.length, graph.ints(2))), one)
        apart = graph.op("Sub", columns, graph.op("Sub", self.length, graph.ints(1)))
        if queries:  # x's rows are the queries: query - key = r - c
            apart = graph.op("Neg", apart)
        reach = (graph.weights.tensors["buckets"].shape[0] - 1) // 2
        apart = graph.op("Min", graph.op("Max", apart, graph.ints(-reach)), graph.ints(reach))
        return graph.op("Gather", graph.stored("buckets"), graph.op("Add", apart, graph.ints(reach)))

    # --- DeBERTa-v2's convolution -------------------------------------------------------------------------------

    def convolve(self, embedded: str, x: str) -> str:
        """Add the convolution of the embeddings to the first layer's output x, normalize, zero the padding."""
        graph, parts = self.graph, self.model.convolution
        assert parts is not None
        y = graph.op("Transpose", graph.op("Reshape", embedded, self.shape(self.model.width)), perm=[0, 2, 1])
        kernel, bias = graph.stored("convolution.weight"), graph.stored("convolution.bias")
        side = (parts.kernel - 1) // 2
        y = graph.op("Conv", y, kernel, bias, group=parts.groups, pads=[side, side], kernel_shape=[parts.kernel])
        y = graph.op("Reshape", graph.op("Transpose", y, perm=[0, 2, 1]), graph.ints(-1, self.model.width))
        y = ACTIVATIONS[parts.activation](graph, graph.op("Mul", y, self.seen_rows()))
        return graph.op("Mul", self.norm(graph.op("Add", x, y), "convolution_norm"), self.seen_rows())

    # --- shared values ------------------------------------------------------------------------------------------

    def _seen_rows(self) -> str:
        """1 for tokens, 0 for padding, [batch · length, 1]."""
        flat = self.graph.op("Reshape", self.mask, self.graph.ints(-1, 1))
        return self.graph.op("Cast", flat, to=self.graph.onnx_type)

    def _shape(self, width: int) -> str:
        """The shape [batch, length, width]."""
        return self.graph.op("Concat", self.batch, self.length, self.graph.ints(width), axis=0)
