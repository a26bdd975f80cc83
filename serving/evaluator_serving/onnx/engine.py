"""The onnx engine: masked language models in ONNX Runtime, on CPUs or CUDA, and generative ones on CPUs.

Batches of a few hundred tokens go through the layers, whose intermediate results then stay in the cache. The vocabulary
matrix is read once for many batches: hidden states are pooled until the head is worth running.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from evaluator_serving.devices import has_cuda
from evaluator_serving.engine import Engine, EngineOptions, Extra
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.memory import usable_cores
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx.export import DTYPES, exported_head, refusal
from evaluator_serving.onnx.export_cache import cached_export, is_exported, unkept
from evaluator_serving.onnx.feeds import CausalFeeds, Feeds, MaskedFeeds, Place, RowPart
from evaluator_serving.onnx.manifest import Kind, read_manifest
from evaluator_serving.onnx.runners import Plain, Pooled, Runner, is_out_of_memory, provider_names
from evaluator_serving.rows import Head, Row, Workload

_TOKENS = {"cpu": 256, "cuda": 16_384}
"""Padded tokens of a batch."""

_NODES = 256
"""Distinct tokens of a causal batch: fewer leave matrix products below their peak, more leave the cache. SmolLM2 takes as
long with 512, and 50 MB more."""

_SCORE_BYTES = 64 << 20
"""Most memory of one layer's attention scores in a causal batch, unless one row takes more."""

_READS = {"cpu": 64, "cuda": 1_024}
"""Most masked positions of a batch: each keeps its row's keys and values of the last layer apart."""


class OnnxEngine(Engine):
    """Scores the rows of masked or of causal language models.

    `intra_op_threads` is OMP_NUM_THREADS, which Ray sets to an actor's share, else the cores that this process may use.
    """

    name = "onnx"
    summary = "masked models, and generative ones on CPUs, of the exported families with ONNX Runtime"
    heads = frozenset[Head]({"masked", "causal"})
    dtypes = DTYPES
    extra = (
        Extra("folder", "folder written by evaluator export; default: one in the cache"),
        Extra("graph", "pruned [the default] or plain", harmless=True, choices=("pruned", "plain")),
        Extra("intra_op_threads", "threads per operator", harmless=True),
        Extra("tensorrt", "true: prefer TensorRT's execution provider to CUDA's", choices=("true", "false")),
    )
    requires = ("onnxruntime", "onnx")
    packages = ("onnxruntime", "onnxruntime-gpu", "transformers", "tokenizers")
    start_seconds: ClassVar[Mapping[str, float]] = {"cuda": 10.0, "cpu": 4.0}

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        """Export the model, unless the cache has it, and load the graphs.

        Raises InputError for options it has no use for, rows of other heads and families without a graph.
        """
        heads = frozenset(row.head for row in rows)
        self.check(source, options, heads)
        self._head = _kind(heads) if heads else exported_head(source)
        self.check_here(options, frozenset({self._head}))
        self._source, self._options = source, options
        self._device, self._providers = _place(options)
        self.device_kind = "cuda" if self._device == "cuda" else "cpu"
        given = options.extra.get("folder")
        self._users = contextlib.ExitStack()
        self._folder = Path(given) if given else cached_export(source, options.dtype, self._head, self._users)
        self._manifest = read_manifest(self._folder)
        held = (self._manifest.revision, self._manifest.dtype, self._manifest.head)
        if held != (source.revision, options.dtype, self._head):
            raise InputError(f"{self._folder}: contains another model, head or dtype than {source.spec} in {options.dtype}")
        self._feeds = self._feeding(options.batch_tokens)
        self._threads = _threads(options)
        self._graph = str(options.extra.get("graph", "pruned"))
        self._runner: Runner | None = self._open()

    @classmethod
    def preference(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> int:
        """Models whose family it exports, in a dtype that its device has, on the device that torch would use.

        Generative ones on a CPU only. vLLM's CPU build is no faster there: it computes more tokens, and starts later.
        """
        return 2 if _suits(options, heads) and cls.misses(source, options, heads) is None else 0

    @classmethod
    def is_ready(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> bool:
        """Whether the model's graphs are in the cache."""
        return len(heads) == 1 and is_exported(source, options.dtype, _kind(heads))

    @classmethod
    def misses(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> str | None:
        """That the family has no graph, or that the graph can't be kept."""
        if not _suits(options, heads):
            return None
        return refusal(source, _kind(heads)) or unkept(source, options.dtype, _kind(heads))

    @classmethod
    def check(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError as any engine does, for requests of two heads, and for a family without a graph."""
        super().check(source, options, heads)
        if len(heads) > 1:
            raise InputError(
                f"model {source.spec}: the onnx engine loads one head, masked or causal; use --engine transformers"
            )
        if heads and (reason := refusal(source, _kind(heads))):
            raise InputError(f"model {source.spec}: {reason}; use --engine transformers")

    @classmethod
    def check_here(cls, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError as any engine does, and for what ONNX Runtime or this engine hasn't on the device."""
        super().check_here(options, heads)
        device, _ = _place(options)
        if options.dtype == "float16" and device == "cpu":
            raise InputError("the onnx engine runs float16 on CUDA only: choose float32 or int8 on a CPU")
        if "causal" in heads and device == "cuda":
            raise InputError("the onnx engine scores generative models on CPUs only: use --device cpu, or vllm or transformers")

    def details(self) -> dict[str, Any]:
        """The device, ONNX Runtime's providers, the graph and its family, and threads."""
        return {
            "device": self._device,
            "providers": self._providers,
            "graph": self._graph,
            "family": self._manifest.family,
            "threads": self._threads,
        }

    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """Log-probabilities (float32) of every row's lookups, in the rows' order.

        Raises EngineError with the row's index where a number isn't finite or one row alone is too much for the memory.
        """
        if other := {row.head for row in rows} - {self._head}:
            raise InputError(f"model {self._source.spec}: loaded for {self._head} requests, not for {min(other)} ones")
        parts = self._feeds.parts(rows)
        answers: list[NDArray[np.floating]] = [np.full(len(row.lookups), np.nan, np.float32) for row in rows]
        self._answer(parts, answers)
        # A NaN spreads to rows that share a tree with it: alone, only the row at fault has it.
        for index in [i for i, numbers in enumerate(answers) if not np.isfinite(numbers).all()]:
            self._answer([part for part in parts if part.index == index], answers)
            if not np.isfinite(answers[index]).all():
                raise EngineError(f"row {index}: the model's logits are NaN or infinite", index)
        return answers

    def fall_back(self) -> bool:
        """Go over to the plain graph, if it isn't the one in use; says whether anything changed."""
        if self._graph == "plain":
            return False
        self._runner = None
        self._graph = "plain"
        self._runner = self._open()
        return True

    def close(self) -> None:
        """Free the sessions; the engine isn't used again."""
        self._runner = None
        self._users.close()

    def _open(self) -> Runner:
        kind = Plain if self._graph == "plain" else Pooled
        return kind(self._folder, self._manifest, self._providers, self._threads)

    def _answer(self, parts: Sequence[RowPart], answers: list[NDArray[np.floating]]) -> None:
        """Compute parts of rows and write the numbers to the rows' answers."""
        assert self._runner is not None, "the engine is closed"
        runner = self._runner
        pending = self._feeds.batches(parts)[::-1]
        places: list[list[list[Place]]] = []  # of each position and token submitted
        while pending:
            batch = pending.pop()
            feed = self._feeds.feed([parts[b] for b in batch])
            try:
                runner.submit(feed.inputs, feed.wanted)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    part = parts[batch[0]]
                    message = f"row {part.index}: {len(part.row.ids)} tokens don't fit in memory"
                    raise EngineError(message, part.index, again=True) from error
                half = len(batch) // 2
                pending += [batch[half:], batch[:half]]
                continue
            places += feed.places
            if runner.full or not pending:
                _put(runner.collect(), places, answers)
                places = []

    def _feeding(self, tokens: int | None) -> Feeds:
        if self._head == "causal":
            return CausalFeeds(self._manifest, tokens=tokens or _NODES, score_bytes=_SCORE_BYTES)
        return MaskedFeeds(self._manifest, tokens=tokens or _TOKENS[self._device], reads=_READS[self._device])


def _put(values: list[NDArray[np.float32]], places: list[list[list[Place]]], answers: list[NDArray[np.floating]]) -> None:
    """Write the numbers read at each position to their places."""
    for numbers, spots in zip(values, places, strict=True):
        for number, some in zip(numbers, spots, strict=True):
            for row, lookup in some:
                answers[row][lookup] = number


def _kind(heads: frozenset[str]) -> Kind:
    return "causal" if "causal" in heads else "masked"


def _suits(options: EngineOptions, heads: frozenset[str]) -> bool:
    """Whether `auto` may mean this engine for such requests of a model whose family has a graph."""
    if heads not in ({"masked"}, {"causal"}):
        return False
    if options.device == "cpu" or not has_cuda():
        return options.dtype in ("float32", "int8")
    return heads == {"masked"} and options.dtype in DTYPES and "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def _place(options: EngineOptions) -> tuple[str, list[Any]]:
    """(`cpu` or `cuda`, ONNX Runtime's execution providers). Raises InputError where it hasn't what is asked."""
    return provider_names(options.device, tensorrt=str(options.extra.get("tensorrt", "false")).lower() == "true")


def _threads(options: EngineOptions) -> int:
    """Threads of one operator."""
    wanted = options.extra.get("intra_op_threads") or os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    try:
        return max(1, int(wanted)) if wanted else usable_cores()
    except ValueError as error:
        raise InputError(f"intra_op_threads must be a number: {wanted!r}") from error
