"""Writing a model as ONNX graphs: four forms over one weight file, with a manifest beside them.

A folder made here of a masked model holds (of a causal one: the same with the inputs that `decoder_export` names)
- `scores.onnx`: the whole model. Inputs (int64) input_ids, attention_mask, token_type_ids (where the model has several
  types) [batch, length], mask_positions [N, 2] (row, position) and candidate_ids [N, K] (-1: no candidate); outputs
  (float32, natural log) log_probs [N, K] and logsumexp [N].
- `hidden.onnx`: the same up to masked_hidden_states [N, H], what the vocabulary matrix multiplies.
- `head.onnx`: the rest, from masked_hidden_states and candidate_ids.
- `plain.onnx`: `scores.onnx` with nothing done for speed; what the engine falls back to.
- `weights.bin` and `manifest.json`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from evaluator_kernels.onnx_graph import (
    ACTIVATIONS,
    INT8_LEVELS,
    OPSET,
    GraphBuilder,
    WeightFile,
    layer_norm,
    linear,
    store_int8,
    vocabulary_head,
)
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx import decoder_families, families
from evaluator_serving.onnx.architecture import Architecture, Layer, Norm
from evaluator_serving.onnx.decoder_export import write_decoder
from evaluator_serving.onnx.encoder import masked_hidden_states
from evaluator_serving.onnx.families import Tensors, architecture
from evaluator_serving.onnx.manifest import HIDDEN, VOCABULARY, Kind, Manifest

DTYPES = ("float32", "float16", "int8")


def refusal(source: ModelSource, head: Kind) -> str | None:
    """Why it can't, or None if it can."""
    if source.code:
        return "its code is in its own repository, which has no ONNX graph"
    return decoder_families.refusal(source.config) if head == "causal" else families.refusal(source.config)


def exported_head(source: ModelSource) -> Kind:
    """Which of a model's heads is exported where nobody says. Raises InputError where it has none that can be."""
    heads: tuple[Kind, ...] = ("masked", "causal")
    for head in heads:
        if head in source.heads:
            return head
    raise InputError(f"model {source.spec}: only masked and generative language models can be exported to ONNX")


def export(source: ModelSource, folder: Path, dtype: str, head: Kind | None = None) -> Manifest:
    """Write `source` as ONNX into the new folder `folder`. Raises InputError for what can't be exported.

    The folder appears whole, by a rename; one that another process made meanwhile is left as it is.
    """
    if dtype not in DTYPES:
        raise InputError(f"the onnx engine has no dtype {dtype}: choose one of {', '.join(DTYPES)}")
    head = head or exported_head(source)
    if head == "causal" and dtype == "float16":
        raise InputError("the onnx engine scores generative models on CPUs: choose float32 or int8")
    if reason := refusal(source, head):  # before minutes are spent on loading
        raise InputError(f"model {source.spec}: {reason}; use --engine transformers")
    if (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: already contains an exported model; choose another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        if head == "causal":
            manifest = write_decoder(source, temporary, dtype)
        else:
            manifest = write(source, temporary, dtype, *_load(source))
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        try:
            temporary.rename(folder)
        except OSError:
            if not (folder / "manifest.json").is_file():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def _load(source: ModelSource) -> tuple[Architecture, Tensors]:
    import torch

    from evaluator_serving.models.loading import load

    return architecture(load(source, "masked", torch.float32, torch.device("cpu")), source.spec)


def write(source: ModelSource, folder: Path, dtype: str, model: Architecture, tensors: Tensors) -> Manifest:
    """Write weights, graphs and manifest of an architecture into an existing folder."""
    stored = np.dtype(np.float16 if dtype == "float16" else np.float32)
    with (folder / "weights.bin").open("wb") as file:
        weights = WeightFile(file, "weights.bin")
        _store(weights, model, tensors, stored, int8=dtype == "int8")
        file.flush()
        os.fsync(file.fileno())
    vocabulary = {part: weights.tensors[f"{VOCABULARY}.{part}"] for part in ("weight", "bias")}
    manifest = Manifest(
        model=source.spec,
        revision=source.revision,
        head="masked",
        family=model.family,
        dtype=dtype,
        width=vocabulary["weight"].shape[1],
        heads=model.heads,
        types=model.embeddings.types > 1,
        padding=source.config.pad_token_id or 0,
        repacks=not model.shares_layers,
        vocabulary={part: (tensor.offset, list(tensor.shape)) for part, tensor in vocabulary.items()},
        versions={"opset": str(OPSET), **{name: version(name) for name in ("onnx", "torch", "transformers")}},
    )
    for form in ("scores", "hidden", "head", "plain"):
        _save_form(form, GraphBuilder(weights, stored), model, folder, manifest.properties())
    manifest.save(folder)
    return manifest


# --- graphs -------------------------------------------------------------------------------------------------------


def _save_form(form: str, graph: GraphBuilder, model: Architecture, folder: Path, properties: Mapping[str, str]) -> None:
    """Build one of the four graphs and write it."""
    width = graph.weights.tensors[f"{VOCABULARY}.weight"].shape[1]
    if form == "head":
        hidden = graph.input(HIDDEN["masked"], graph.onnx_type, ["masks", width])
    else:
        hidden = _transform(graph, masked_hidden_states(graph, model, plain=form == "plain"), model)
    if form == "hidden":
        graph.output(HIDDEN["masked"], hidden, graph.onnx_type, ["masks", width])
    else:
        candidates = graph.input("candidate_ids", TensorProto.INT64, ["masks", "candidates"])
        log_probs, logsumexp = vocabulary_head(graph, hidden, candidates, VOCABULARY)
        graph.output("log_probs", log_probs, TensorProto.FLOAT, ["masks", "candidates"])
        graph.output("logsumexp", logsumexp, TensorProto.FLOAT, ["masks"])
    graph.save(folder / f"{form}.onnx", properties)


def _transform(graph: GraphBuilder, hidden: str, model: Architecture) -> str:
    """The head's own layers in front of the vocabulary matrix."""
    head = model.head
    activated = ACTIVATIONS[head.activation](graph, linear(graph, hidden, head.dense))
    return layer_norm(graph, activated, head.norm.name, head.norm.epsilon)


# --- weights ------------------------------------------------------------------------------------------------------


def _store(weights: WeightFile, model: Architecture, tensors: Tensors, dtype: np.dtype[Any], *, int8: bool) -> None:
    """Write all tensors that the graphs use, each once; `dtype` is that of floating-point tensors."""

    def cast(name: str) -> np.ndarray[Any, Any]:
        return tensors[name].astype(dtype, copy=False)

    def add(*names: str | None) -> None:
        for name in names:
            if name in tensors and name not in weights.tensors:
                weights.add(name, cast(name))

    def add_named(*parts: str | Norm | None) -> None:
        for part in parts:
            name = part.name if isinstance(part, Norm) else part
            add(f"{name}.weight", f"{name}.bias")

    embeddings, head = model.embeddings, model.head
    add(embeddings.word, embeddings.position, embeddings.type)
    add_named(embeddings.projection, embeddings.norm)
    for layer in model.layers:
        if weights.has_dense(layer.out):
            continue  # a shared layer
        add_named(layer.attention_norm, layer.feed_forward_norm)
        add(layer.relative_key, layer.relative_query)
        _store_projections(weights, layer, tensors, dtype, int8=int8, in_two=layer.out == model.layers[-1].out)
        for name in (layer.out, layer.up, layer.down):
            if int8:
                store_int8(weights, name, tensors[f"{name}.weight"], INT8_LEVELS)
                add(f"{name}.bias")
            else:
                add_named(name)
        if layer.rotary and layer.rotary not in weights.tensors:
            weights.add(layer.rotary, tensors[layer.rotary])
    add_named(model.final_norm, head.dense, head.norm)
    if model.convolution:
        add_named(model.convolution.name, model.convolution.norm)
    if model.buckets:
        weights.add(model.buckets, tensors[model.buckets])
    _store_vocabulary(weights, model, tensors, dtype)


def _store_projections(
    weights: WeightFile, layer: Layer, tensors: Tensors, dtype: np.dtype[Any], *, int8: bool, in_two: bool
) -> None:
    """Store queries', keys' and values' projections in one piece, whose parts are named as well.

    8-bit matrices are stored transposed, so that parts of them aren't contiguous; the last layer, which needs queries
    apart, has them stored in two pieces.
    """
    parts = (layer.query, layer.key, layer.value)
    for kind in ("weight", "bias"):
        if layer.fused:
            stacked = tensors.get(f"{layer.fused}.{kind}")
        elif f"{layer.query}.{kind}" in tensors:
            stacked = np.concatenate([tensors[f"{name}.{kind}"] for name in parts])
        else:
            stacked = None
        if stacked is None:
            continue
        width = stacked.shape[0] // 3
        pieces = {layer.query: slice(0, width), layer.key_value: slice(width, 3 * width)}
        if int8 and kind == "weight":
            for name, rows in (pieces if in_two else {layer.query_key_value: slice(None)}).items():
                store_int8(weights, name, stacked[rows], INT8_LEVELS)
            continue
        whole = weights.add(f"{layer.query_key_value}.{kind}", stacked.astype(dtype, copy=False))
        for name, rows in pieces.items():
            weights.alias(f"{name}.{kind}", whole.rows(rows.start, rows.stop))
        for i, name in enumerate(parts[1:], start=1):
            weights.alias(f"{name}.{kind}", whole.rows(i * width, (i + 1) * width))


def _store_vocabulary(weights: WeightFile, model: Architecture, tensors: Tensors, dtype: np.dtype[Any]) -> None:
    """Store the vocabulary matrix, once where it is the embedding table too, and its bias (zeros if it has none)."""
    matrix, embedding = tensors[model.head.weight], tensors[model.embeddings.word]
    if matrix.ctypes.data == embedding.ctypes.data:
        weights.alias(f"{VOCABULARY}.weight", weights.tensors[model.embeddings.word])
    else:
        weights.add(f"{VOCABULARY}.weight", matrix.astype(dtype, copy=False))
    bias = tensors.get(model.head.bias, np.zeros(len(matrix), np.float32))
    weights.add(f"{VOCABULARY}.bias", bias.astype(dtype, copy=False))
