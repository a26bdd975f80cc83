"""Building ONNX graphs by hand: weights in one external file, a small builder, and the vocabulary head as a subgraph.

A graph made here holds no weights: they stand in a file beside it, which several graphs share, and a tensor may be a
range of another's rows (a fused projection and its parts, a vocabulary and its blocks) at no cost on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
"""ONNX operator set of every graph: the first that has Gelu."""

MICROSOFT = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""

PAGE = 4096
"""Alignment of tensors in the weight file, so that they can be mapped into memory."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in the weight file."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def rows(self, start: int, stop: int) -> StoredTensor:
        """Rows start..stop of this tensor, in place."""
        width = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        return StoredTensor(self.offset + start * width, (stop - start, *self.shape[1:]), self.dtype)


class WeightFile:
    """Tensors written one after another into a file; remembers where each one is."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name = name
        self.tensors: dict[str, StoredTensor] = {}
        self._file = file

    def add(self, name: str, *parts: NDArray[Any]) -> StoredTensor:
        """Append a tensor given as one array, or as several to be stacked along the first axis."""
        if name in self.tensors:
            raise ValueError(f"tensor {name!r} is stored already")
        self._file.write(b"\0" * (-self._file.tell() % PAGE))
        offset = self._file.tell()
        for part in parts:
            self._file.write(np.ascontiguousarray(part).data)
        shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        self.tensors[name] = StoredTensor(offset, shape, parts[0].dtype)
        return self.tensors[name]

    def alias(self, name: str, tensor: StoredTensor) -> None:
        """Give a stored range a name of its own."""
        self.tensors[name] = tensor

    def has_dense(self, name: str) -> bool:
        """Whether a matrix that `linear` can use is stored under `name`."""
        return f"{name}.weight" in self.tensors or f"{name}.int8" in self.tensors


class GraphBuilder:
    """Collects nodes, constants and stored tensors of one graph.

    Values are referred to by name. `op` names its outputs by itself, so graphs are deterministic.
    """

    def __init__(self, weights: WeightFile, dtype: np.dtype[Any]) -> None:
        self.weights = weights
        self.dtype = dtype
        self.onnx_type = helper.np_dtype_to_tensor_dtype(dtype)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._count = 0

    def input(self, name: str, onnx_type: int, shape: Sequence[int | str]) -> str:
        """Declare a graph input; strings are dynamic dimensions."""
        self._inputs.append(helper.make_tensor_value_info(name, onnx_type, shape))
        return name

    def output(self, name: str, value: str, onnx_type: int, shape: Sequence[int | str]) -> None:
        """Declare `value` to be the graph output called `name`."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, onnx_type, shape))

    def ops(self, kind: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node with several outputs; their names are returned. An empty input name is an absent optional input."""
        names = [f"{kind}_{self._count}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        self._count += 1
        return names

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output."""
        return self.ops(kind, *inputs, outputs=1, domain=domain, **attributes)[0]

    def ints(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.constant(np.array(values, dtype=np.int64))

    def scalar(self, value: float) -> str:
        """A constant of the graph's floating-point type."""
        return self.constant(np.array(value, dtype=self.dtype))

    def constant(self, value: NDArray[Any]) -> str:
        """A small constant, kept in the graph itself; equal ones are shared."""
        name = f"const_{value.dtype}_{'x'.join(map(str, value.shape))}_{value.tobytes().hex()}"
        name = name if len(name) < 80 else f"const_{len(self._initializers)}"
        self._initializers.setdefault(name, numpy_helper.from_array(value, name))
        return name

    def stored(self, name: str, tensor: StoredTensor | None = None) -> str:
        """A tensor of the weight file (by default the one stored as `name`)."""
        if name not in self._initializers:
            tensor = tensor or self.weights.tensors[name]
            proto = TensorProto(name=name, dims=tensor.shape, data_location=TensorProto.EXTERNAL)
            proto.data_type = helper.np_dtype_to_tensor_dtype(tensor.dtype)
            for key, value in (("location", self.weights.name), ("offset", tensor.offset), ("length", tensor.nbytes)):
                proto.external_data.add(key=key, value=str(value))
            self._initializers[name] = proto
        return name

    def save(self, path: Path, metadata: Mapping[str, str]) -> None:
        """Write the graph; `metadata` goes into the model's properties."""
        graph = helper.make_graph(self._nodes, path.stem, self._inputs, self._outputs, list(self._initializers.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="evaluator_kernels", ir_version=9)
        helper.set_model_props(model, dict(metadata))
        path.write_bytes(model.SerializeToString())


def linear(graph: GraphBuilder, x: str, name: str) -> str:
    """x [rows, inputs] times the stored `name.weight` [outputs, inputs] transposed, plus `name.bias` where there is one.

    A weight stored by `store_int8` is multiplied in 8 bits, x being quantized on the fly. Each row of x has a scale of its own,
    so that its numbers don't depend on the rows beside it.
    """
    bias = graph.stored(f"{name}.bias") if f"{name}.bias" in graph.weights.tensors else ""
    if f"{name}.int8" not in graph.weights.tensors:
        return graph.op("Gemm", x, graph.stored(f"{name}.weight"), bias, transB=1)
    largest = graph.op("ReduceMax", graph.op("Abs", x), graph.ints(1), keepdims=1)
    scale = graph.op("Div", graph.op("Max", largest, graph.scalar(float(np.finfo(np.float32).tiny))), graph.scalar(127.0))
    steps = graph.op("Add", graph.op("Round", graph.op("Div", x, scale)), graph.scalar(128.0))
    y = graph.op(
        "MatMulIntegerToFloat",
        graph.op("Cast", steps, to=TensorProto.UINT8),
        graph.stored(f"{name}.int8"),
        graph.constant(np.array(1, np.float32)),
        graph.stored(f"{name}.scale"),
        graph.constant(np.array(128, np.uint8)),
        graph.stored(f"{name}.zero"),
        domain=MICROSOFT,
    )
    y = graph.op("Mul", y, scale)
    return graph.op("Add", y, bias) if bias else y


INT8_LEVELS = 63
"""Weights are quantized to 7 bits: processors without VNNI add pairs of 8-bit products in 16 bits, and would saturate."""


def store_int8(weights: WeightFile, name: str, weight: NDArray[np.float32], levels: int) -> None:
    """Store a weight [outputs, inputs] as int8 in -levels..levels, with one float32 scale an output."""
    scale = np.maximum(np.abs(weight).max(axis=1), np.finfo(np.float32).tiny) / levels
    weights.add(f"{name}.int8", np.rint(weight / scale[:, None]).astype(np.int8).T)
    weights.add(f"{name}.scale", scale.astype(np.float32))
    weights.add(f"{name}.zero", np.zeros(len(scale), np.int8))


def layer_norm(graph: GraphBuilder, x: str, name: str, epsilon: float) -> str:
    """Layer normalization over the last axis with the stored `name.weight` and, where there is one, `name.bias`."""
    bias = [graph.stored(f"{name}.bias")] if f"{name}.bias" in graph.weights.tensors else []
    return graph.op("LayerNormalization", x, graph.stored(f"{name}.weight"), *bias, axis=-1, epsilon=epsilon)


def rms_norm(graph: GraphBuilder, x: str, name: str, epsilon: float, *, plain: bool) -> str:
    """Root-mean-square normalization over the last axis with the stored `name.weight`; `plain`: of standard operators."""
    weight = graph.stored(f"{name}.weight")
    if not plain:
        return graph.op("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=epsilon)
    mean = graph.op("ReduceMean", graph.op("Mul", x, x), graph.ints(-1), keepdims=1)
    size = graph.op("Sqrt", graph.op("Add", mean, graph.scalar(epsilon)))
    return graph.op("Mul", graph.op("Div", x, size), weight)


ACTIVATIONS: dict[str, Callable[[GraphBuilder, str], str]] = {
    "gelu": lambda graph, x: graph.op("Gelu", x),
    "gelu_python": lambda graph, x: graph.op("Gelu", x),
    "gelu_new": lambda graph, x: graph.op("Gelu", x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda graph, x: graph.op("Gelu", x, approximate="tanh"),
    "relu": lambda graph, x: graph.op("Relu", x),
    "tanh": lambda graph, x: graph.op("Tanh", x),
    "silu": lambda graph, x: graph.op("Mul", x, graph.op("Sigmoid", x)),
    "swish": lambda graph, x: graph.op("Mul", x, graph.op("Sigmoid", x)),
}
"""Activation functions by transformers' names."""

VOCABULARY_BLOCK = 16_384
"""Vocabulary entries of one block of logits: 128 rows of it are 8 MB, which stay in a last-level cache."""


def vocabulary_head(graph: GraphBuilder, hidden: str, candidates: str, name: str) -> tuple[str, str]:
    """Log-probabilities of candidates and the log-sum-exp, without [N, V] logits: `masked_log_probs` as a subgraph.

    hidden [N, H]; candidates int64 [N, K], -1 for padding; the vocabulary is the stored `name.weight` [V, H] with
    `name.bias` [V]. Returns float32 values log_probs [N, K] (-inf for padding) and logsumexp [N].

    The blocks are rows of the stored vocabulary, so each costs a mapping, not a copy. Every block gives a row maximum and
    a sum of exp(logit - maximum); the maximum is kept finite, so that a block of -inf sums to 0 instead of NaN.
    """
    logsumexp = _logsumexp(graph, hidden, name)

    padding = graph.op("Less", candidates, graph.ints(0))
    ids = graph.op("Max", candidates, graph.ints(0))
    rows = graph.op("Gather", graph.stored(f"{name}.weight"), ids)
    dots = graph.op("MatMul", rows, graph.op("Unsqueeze", hidden, graph.ints(2)))
    dots = graph.op("Squeeze", dots, graph.ints(2))
    chosen = _float32(graph, graph.op("Add", dots, graph.op("Gather", graph.stored(f"{name}.bias"), ids)))
    log_probs = graph.op("Sub", chosen, logsumexp)
    nothing = graph.constant(np.array(-np.inf, np.float32))
    return graph.op("Where", padding, nothing, log_probs), graph.op("Squeeze", logsumexp, graph.ints(1))


def causal_head(graph: GraphBuilder, hidden: str, lookups: tuple[str, str], name: str, cap: float | None) -> tuple[str, str]:
    """Log-probabilities of single tokens after single states, and the log-sum-exp, without [N, V] logits.

    hidden [N, H]; lookups: int64 values [C], which row of hidden, and which token; the vocabulary is the stored `name.weight`
    [V, H], with `name.bias` [V] where there is one. With `cap` c, logits become c · tanh(logit / c). Returns float32 values
    log_probs [C] and logsumexp [N].
    """
    logsumexp = _logsumexp(graph, hidden, name, cap)
    where, tokens = lookups
    products = graph.op("Mul", graph.op("Gather", hidden, where), graph.op("Gather", graph.stored(f"{name}.weight"), tokens))
    logits = graph.op("ReduceSum", products, graph.ints(1), keepdims=0)
    if f"{name}.bias" in graph.weights.tensors:
        logits = graph.op("Add", logits, graph.op("Gather", graph.stored(f"{name}.bias"), tokens))
    logits = _float32(graph, _capped(graph, logits, cap))
    totals = graph.op("Squeeze", logsumexp, graph.ints(1))
    return graph.op("Sub", logits, graph.op("Gather", totals, where)), totals


def _logsumexp(graph: GraphBuilder, hidden: str, name: str, cap: float | None = None) -> str:
    """Log-sum-exp [N, 1] of hidden [N, H] times the vocabulary `name`, block by block."""
    weight, bias = graph.weights.tensors[f"{name}.weight"], graph.weights.tensors.get(f"{name}.bias")
    parts: list[str] = []
    for start in range(0, weight.shape[0], VOCABULARY_BLOCK):
        stop = min(start + VOCABULARY_BLOCK, weight.shape[0])
        block = graph.stored(f"{name}.weight.{start}", weight.rows(start, stop))
        offsets = [graph.stored(f"{name}.bias.{start}", bias.rows(start, stop))] if bias else []
        logits = _float32(graph, _capped(graph, graph.op("Gemm", hidden, block, *offsets, transB=1), cap))
        top = graph.op("ReduceMax", logits, graph.ints(1), keepdims=1)
        top = graph.op("Max", top, graph.constant(np.array(np.finfo(np.float32).min)))
        total = graph.op("ReduceSum", graph.op("Exp", graph.op("Sub", logits, top)), graph.ints(1), keepdims=1)
        parts.append(graph.op("Add", top, graph.op("Log", total)))
    return graph.op("ReduceLogSumExp", graph.op("Concat", *parts, axis=1), graph.ints(1), keepdims=1)


def _capped(graph: GraphBuilder, logits: str, cap: float | None) -> str:
    """c · tanh(logit / c), or the logits themselves."""
    if not cap:
        return logits
    return graph.op("Mul", graph.op("Tanh", graph.op("Div", logits, graph.scalar(cap))), graph.scalar(cap))


def _float32(graph: GraphBuilder, value: str) -> str:
    return value if graph.onnx_type == TensorProto.FLOAT else graph.op("Cast", value, to=TensorProto.FLOAT)
