"""Writing a causal model's weights and graphs; the folder's layout is that of `export`.

Its graphs take, instead of padded rows, a tree of nodes (see `decoder`), and for the head lookup_reads and lookup_tokens, int64
[C]: after which of the reads, which token. Outputs (float32, natural log): log_probs [C] and logsumexp [reads].
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from evaluator_kernels.onnx_graph import INT8_LEVELS, OPSET, GraphBuilder, WeightFile, causal_head, store_int8
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx.decoder import read_hidden_states
from evaluator_serving.onnx.decoder_architecture import Decoder
from evaluator_serving.onnx.decoder_families import Family, decoder
from evaluator_serving.onnx.manifest import HIDDEN, VOCABULARY, Manifest

_MATRICES = ("qkv", "out", "gate", "up", "down")
"""What is multiplied in 8 bits in int8."""


def write_decoder(source: ModelSource, folder: Path, dtype: str) -> Manifest:
    """Load `source` and write weights, graphs and manifest into an existing folder. Raises InputError as `decoder` does."""
    import torch

    from evaluator_serving.models.loading import load

    model, family = decoder(load(source, "causal", torch.float32, torch.device("cpu")), source.spec)
    stored = np.dtype(np.float32)
    with (folder / "weights.bin").open("wb") as file:
        weights = WeightFile(file, "weights.bin")
        _store(weights, model, family, int8=dtype == "int8")
        file.flush()
        os.fsync(file.fileno())
    vocabulary = {part: weights.tensors.get(f"{VOCABULARY}.{part}") for part in ("weight", "bias")}
    manifest = Manifest(
        model=source.spec,
        revision=source.revision,
        head="causal",
        family=model.family,
        dtype=dtype,
        width=model.width,
        heads=model.heads,
        types=False,
        padding=0,
        repacks=True,
        vocabulary={part: (tensor.offset, list(tensor.shape)) for part, tensor in vocabulary.items() if tensor},
        versions={"opset": str(OPSET), **{name: version(name) for name in ("onnx", "torch", "transformers")}},
    )
    for form in ("scores", "hidden", "head", "plain"):
        _save_form(form, GraphBuilder(weights, stored), model, folder, manifest)
    manifest.save(folder)
    return manifest


def _save_form(form: str, graph: GraphBuilder, model: Decoder, folder: Path, manifest: Manifest) -> None:
    """Build one of the four graphs and write it."""
    name = HIDDEN["causal"]
    if form == "head":
        hidden = graph.input(name, graph.onnx_type, ["reads", model.width])
    else:
        hidden = read_hidden_states(graph, model, plain=form == "plain")
    if form == "hidden":
        graph.output(name, hidden, graph.onnx_type, ["reads", model.width])
    else:
        where, tokens = (graph.input(f"lookup_{part}", TensorProto.INT64, ["lookups"]) for part in ("reads", "tokens"))
        log_probs, logsumexp = causal_head(graph, hidden, (where, tokens), VOCABULARY, model.logit_cap)
        graph.output("log_probs", log_probs, TensorProto.FLOAT, ["lookups"])
        graph.output("logsumexp", logsumexp, TensorProto.FLOAT, ["reads"])
    graph.save(folder / f"{form}.onnx", manifest.properties())


def _store(weights: WeightFile, model: Decoder, family: Family, *, int8: bool) -> None:
    """Write all tensors that the graphs use, each once and one at a time."""
    table: NDArray[Any] | None = None
    for name, value in family.outside():
        if name == "embedding":
            table = value
        elif name == f"{VOCABULARY}.weight" and table is not None and value.ctypes.data == table.ctypes.data:
            weights.alias(name, weights.tensors["embedding"])
            continue
        weights.add(name, value)
    for i in range(len(model.layers)):
        for name, value in family.layer(i):
            part, _, kind = name.partition(".")
            if int8 and part in _MATRICES and kind == "weight":
                store_int8(weights, f"{i}.{part}", value, INT8_LEVELS)
            else:
                weights.add(f"{i}.{name}", value)
