"""Writing a model as ONNX graphs: four forms over one weight file, with a manifest beside them.

A folder made here of a masked model holds
- `scores.onnx`: the whole model. Inputs (int64) input_ids, attention_mask, token_type_ids (where the model has several
  types) [batch, length], mask_positions [N, 2] (row, position) and candidate_ids [N, K] (-1: no candidate); outputs
  (float32, natural log) log_probs [N, K] and logsumexp [N].
- `hidden.onnx`: the same up to masked_hidden_states [N, H], what the vocabulary matrix multiplies.
- `head.onnx`: the rest, from masked_hidden_states and candidate_ids.
- `plain.onnx`: `scores.onnx` with nothing done for speed; what the engine falls back to.
- `weights.bin` and `manifest.json`.

Graphs of a causal model take, instead of padded rows, a tree of nodes (see `decoder`), and for the head lookup_reads and
lookup_tokens, int64 [C]: after which of the reads, which token. Outputs: log_probs [C] and logsumexp [reads].
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from evaluator_kernels.onnx_graph import (
    INT8_LEVELS,
    OPSET,
    GraphBuilder,
    WeightFile,
    causal_head,
    store_int8,
    vocabulary_head,
)
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx import families
from evaluator_serving.onnx.architecture import Decoder, EncoderModel
from evaluator_serving.onnx.decoder import read_hidden_states
from evaluator_serving.onnx.encoder import masked_hidden_states
from evaluator_serving.onnx.families import Family, family_of
from evaluator_serving.onnx.manifest import HIDDEN, VOCABULARY, Kind, Manifest

DTYPES = ("float32", "float16", "int8")


def refusal(source: ModelSource, head: Kind) -> str | None:
    """Why it can't, or None if it can."""
    if source.code:
        return "its code is in its own repository, which has no ONNX graph"
    return families.refusal(source.config, head)


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
        manifest = write(source, temporary, dtype, _load(source, head))
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


def _load(source: ModelSource, head: Kind) -> Family:
    import torch

    from evaluator_serving.models.loading import load

    return family_of(load(source, head, torch.float32, torch.device("cpu")), source.spec, head)


def write(source: ModelSource, folder: Path, dtype: str, family: Family) -> Manifest:
    """Write weights, graphs and manifest of a loaded model into an existing folder."""
    stored, model = np.dtype(np.float16 if dtype == "float16" else np.float32), family.architecture()
    with (folder / "weights.bin").open("wb") as file:
        weights = WeightFile(file, "weights.bin")
        _store(weights, family, stored, int8=dtype == "int8")
        file.flush()
        os.fsync(file.fileno())
    masked = isinstance(model, EncoderModel)
    vocabulary = {part: weights.tensors.get(f"{VOCABULARY}.{part}") for part in ("weight", "bias")}
    manifest = Manifest(
        model=source.spec,
        revision=source.revision,
        head="masked" if masked else "causal",
        family=model.family,
        dtype=dtype,
        width=weights.tensors[f"{VOCABULARY}.weight"].shape[1],
        heads=model.heads,
        types=isinstance(model, EncoderModel) and model.types > 1,
        padding=(source.config.pad_token_id or 0) if masked else 0,
        repacks=not model.shares_layers,
        vocabulary={part: (tensor.offset, list(tensor.shape)) for part, tensor in vocabulary.items() if tensor},
        versions={"opset": str(OPSET), **{name: version(name) for name in ("onnx", "torch", "transformers")}},
    )
    for form in ("scores", "hidden", "head", "plain"):
        graph = GraphBuilder(weights, stored)
        if isinstance(model, EncoderModel):
            _masked_form(form, graph, model, manifest.width)
        else:
            assert isinstance(model, Decoder)
            _causal_form(form, graph, model)
        graph.save(folder / f"{form}.onnx", manifest.properties())
    manifest.save(folder)
    return manifest


# --- graphs -------------------------------------------------------------------------------------------------------


def _masked_form(form: str, graph: GraphBuilder, model: EncoderModel, width: int) -> None:
    name = HIDDEN["masked"]
    if form == "head":
        hidden = graph.input(name, graph.onnx_type, ["masks", width])
    else:
        hidden = masked_hidden_states(graph, model, plain=form == "plain")
    if form == "hidden":
        graph.output(name, hidden, graph.onnx_type, ["masks", width])
        return
    candidates = graph.input("candidate_ids", TensorProto.INT64, ["masks", "candidates"])
    log_probs, logsumexp = vocabulary_head(graph, hidden, candidates, VOCABULARY)
    graph.output("log_probs", log_probs, TensorProto.FLOAT, ["masks", "candidates"])
    graph.output("logsumexp", logsumexp, TensorProto.FLOAT, ["masks"])


def _causal_form(form: str, graph: GraphBuilder, model: Decoder) -> None:
    name = HIDDEN["causal"]
    if form == "head":
        hidden = graph.input(name, graph.onnx_type, ["reads", model.width])
    else:
        hidden = read_hidden_states(graph, model, plain=form == "plain")
    if form == "hidden":
        graph.output(name, hidden, graph.onnx_type, ["reads", model.width])
        return
    where, tokens = (graph.input(f"lookup_{part}", TensorProto.INT64, ["lookups"]) for part in ("reads", "tokens"))
    log_probs, logsumexp = causal_head(graph, hidden, (where, tokens), VOCABULARY, model.logit_cap)
    graph.output("log_probs", log_probs, TensorProto.FLOAT, ["lookups"])
    graph.output("logsumexp", logsumexp, TensorProto.FLOAT, ["reads"])


# --- weights ------------------------------------------------------------------------------------------------------

_MATRICES = ("qkv", "out", "gate", "up", "down")
"""What is multiplied in 8 bits in int8."""


def _store(weights: WeightFile, family: Family, dtype: np.dtype[Any], *, int8: bool) -> None:
    """Write all tensors that the graphs use, each once; `dtype` is that of floating-point tensors, but for frequencies."""
    model, table = family.architecture(), None
    for name, value in family.outside():
        if name == "embedding":
            table = value
        elif name == f"{VOCABULARY}.weight" and table is not None and value.ctypes.data == table.ctypes.data:
            weights.alias(name, weights.tensors["embedding"])
            continue
        exact = name == "buckets" or name.endswith("inv_freq")
        weights.add(name, value if exact else value.astype(dtype, copy=False))
    for i in sorted(set(model.stored)):
        for name, value in family.layer(i):
            part, _, kind = name.partition(".")
            if part == "qkv" and isinstance(model, EncoderModel):
                _store_projections(weights, i, kind, value.astype(dtype, copy=False), int8=int8, last=i == model.stored[-1])
            elif int8 and part in _MATRICES and kind == "weight":
                store_int8(weights, f"{i}.{part}", value, INT8_LEVELS)
            else:
                weights.add(f"{i}.{name}", value.astype(dtype, copy=False))


def _store_projections(weights: WeightFile, i: int, kind: str, stacked: NDArray[Any], *, int8: bool, last: bool) -> None:
    """Store queries', keys' and values' projections in one piece, whose parts are named as well.

    8-bit matrices are stored transposed, so that parts of them aren't contiguous; the last layer, which needs queries
    apart, has them stored in two pieces.
    """
    width = len(stacked) // 3
    pieces = {"query": (0, 1), "key_value": (1, 3), "key": (1, 2), "value": (2, 3)}
    if int8 and kind == "weight":
        for name, (start, stop) in ({"query": (0, 1), "key_value": (1, 3)} if last else {"qkv": (0, 3)}).items():
            store_int8(weights, f"{i}.{name}", stacked[start * width : stop * width], INT8_LEVELS)
        return
    whole = weights.add(f"{i}.qkv.{kind}", stacked)
    for name, (start, stop) in pieces.items():
        weights.alias(f"{i}.{name}.{kind}", whole.rows(start * width, stop * width))
