"""The onnx engine: masked language models in ONNX Runtime, on CPUs or CUDA.

Batches of a few hundred tokens go through the encoder, whose intermediate results then stay in the cache. The vocabulary
matrix is read once for many batches: masked hidden states are pooled until the head is worth running.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.batching import batches, narrow, positions
from evaluator_serving.engine import DeviceKind, EngineInfo, EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx.export import DTYPES, cached_export, read_manifest
from evaluator_serving.onnx.runners import Plain, Pooled, Runner, is_out_of_memory, provider_names
from evaluator_serving.rows import Row

_TOKENS = {"cpu": 256, "cuda": 16_384}
"""Padded tokens of a batch."""

_READS = {"cpu": 64, "cuda": 1_024}
"""Most masked positions of a batch: each keeps its row's keys and values of the last layer apart."""

_EXTRA = ("folder", "graph", "intra_op_threads", "tensorrt")


class OnnxEngine:
    """Scores the rows of masked language models.

    Options in `extra`: `folder` (made by `evaluator export`; default: one in the cache), `graph` (`pruned`, the default,
    or `plain`), `intra_op_threads` (default: OMP_NUM_THREADS, which Ray sets to an actor's share, else the cores that
    this process may use), `tensorrt` (true: TensorRT's execution provider before CUDA's).
    """

    harmless_extra = frozenset({"graph", "intra_op_threads"})

    def __init__(self, source: ModelSource, options: EngineOptions, rows: Sequence[Row]) -> None:
        """Export the model, unless the cache has it, and load the graphs.

        Raises InputError for options it has no use for, rows of other heads and families without a graph.
        """
        self.check(source, options, frozenset(row.head for row in rows))
        self._source, self._options = source, options
        tensorrt = str(options.extra.get("tensorrt", "false")).lower() == "true"
        self._device, self._providers = provider_names(options.device, tensorrt=tensorrt)
        self.device_kind: DeviceKind = "cuda" if self._device == "cuda" else "cpu"
        if options.dtype == "float16" and self._device == "cpu":
            raise InputError("the onnx engine runs float16 on CUDA only: choose float32 or int8 on a CPU")
        self._tokens = options.batch_tokens or _TOKENS[self._device]
        given = options.extra.get("folder")
        self._folder = Path(given) if given else cached_export(source, options.dtype)
        self._manifest = read_manifest(self._folder)
        if (self._manifest.revision, self._manifest.dtype) != (source.revision, options.dtype):
            raise InputError(f"{self._folder}: holds another model or dtype than {source.spec} in {options.dtype}")
        self._threads = _threads(options)
        self._graph = str(options.extra.get("graph", "pruned"))
        self._runner: Runner | None = self._open()

    @staticmethod
    def check(source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError for options that this engine has no use for and for requests of other heads."""
        _check(options)
        _only_masked(heads, source)

    def describe(self) -> EngineInfo:
        """What is loaded, with the versions that the numbers depend on."""
        runtime = "onnxruntime-gpu" if self._device == "cuda" else "onnxruntime"
        try:
            number = version(runtime)
        except PackageNotFoundError:
            number = version("onnxruntime")
        return EngineInfo(
            engine="onnx",
            model=self._source.spec,
            revision=self._source.revision,
            dtype=self._options.dtype,
            versions={"onnxruntime": number, **self._manifest.versions},
            details={
                "device": self._device,
                "providers": self._providers,
                "graph": self._graph,
                "family": self._manifest.family,
                "threads": self._threads,
            },
        )

    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """Log-probabilities (float32) of every row's lookups, in the rows' order.

        Raises EngineError with the row's index where a number isn't finite or one row alone is too much for the memory.
        """
        _only_masked({row.head for row in rows}, self._source)
        assert self._runner is not None, "the engine is closed"
        runner = self._runner
        answers: list[NDArray[np.floating]] = [np.full(len(row.lookups), np.nan, np.float32) for row in rows]
        parts = [(i, part, which) for i, row in enumerate(rows) for part, which in narrow(row, _READS[self._device])]
        pending = batches([part for _, part, _ in parts], tokens=self._tokens, reads=_READS[self._device])[::-1]
        places: list[tuple[int, list[int]]] = []  # of each masked position submitted: row, where its answers go
        while pending:
            batch = pending.pop()
            try:
                runner.submit(self._inputs([parts[b][1] for b in batch]), [w for b in batch for w in _wanted(parts[b][1])])
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    row = parts[batch[0]][0]
                    raise EngineError(f"row {row}: {len(rows[row].ids)} tokens don't fit in memory", row, again=True) from error
                half = len(batch) // 2
                pending += [batch[half:], batch[:half]]
                continue
            places += [place for b in batch for place in _places(*parts[b])]
            if runner.full or not pending:
                _put(runner.collect(), places, answers)
                places = []
        return answers

    def fall_back(self) -> bool:
        """Go over to the plain graph, if it isn't the one in use; says whether anything changed."""
        if self._graph == "plain":
            return False
        self.close()
        self._graph = "plain"
        self._runner = self._open()
        return True

    def close(self) -> None:
        """Free the sessions; the engine isn't used again."""
        self._runner = None

    def _open(self) -> Runner:
        kind = Plain if self._graph == "plain" else Pooled
        return kind(self._folder, self._manifest, self._providers, self._threads)

    def _inputs(self, rows: Sequence[Row]) -> dict[str, NDArray[np.int64]]:
        """The encoder's inputs for a batch: ids padded on the right, and the masked positions in ascending order."""
        longest = max(len(row.ids) for row in rows)
        ids = np.full((len(rows), longest), self._manifest.padding, np.int64)
        mask = np.zeros((len(rows), longest), np.int64)
        types = np.zeros((len(rows), longest), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row.ids)] = row.ids
            mask[i, : len(row.ids)] = 1
            if row.type_ids is not None:
                types[i, : len(row.ids)] = row.type_ids
        where = np.array([(i, at) for i, row in enumerate(rows) for at in positions(row)], np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "mask_positions": where.reshape(-1, 2)}
        return {**inputs, "token_type_ids": types} if self._manifest.types else inputs


def _wanted(row: Row) -> list[tuple[int, ...]]:
    """The token ids to read at each of the row's masked positions."""
    return [tuple(token for at, token in row.lookups if at == position) for position in positions(row)]


def _places(index: int, row: Row, which: tuple[int, ...]) -> list[tuple[int, list[int]]]:
    """For each masked position of a part of row `index`: (index, lookups of the row that it answers)."""
    pairs = list(zip(row.lookups, which, strict=True))
    return [(index, [place for (at, _), place in pairs if at == position]) for position in positions(row)]


def _put(values: list[NDArray[np.float32]], places: list[tuple[int, list[int]]], answers: list[NDArray[np.floating]]) -> None:
    """Write the numbers read at each masked position to their places. Raises EngineError where one isn't finite."""
    for numbers, (row, lookups) in zip(values, places, strict=True):
        if not np.isfinite(numbers).all():
            raise EngineError(f"row {row}: the model's logits are NaN or infinite", row)
        answers[row][lookups] = numbers


def _check(options: EngineOptions) -> None:
    options.refuse_unused("onnx", dtypes=DTYPES, extra=_EXTRA)
    choices = {"graph": ("pruned", "plain"), "tensorrt": ("true", "false")}
    for name, allowed in choices.items():
        if (value := str(options.extra.get(name, allowed[0])).lower()) not in allowed:
            raise InputError(f"the onnx engine has no {name} {value!r}: choose {' or '.join(allowed)}")


def _only_masked(heads: Collection[str], source: ModelSource) -> None:
    if other := set(heads) - {"masked"}:
        raise InputError(
            f"model {source.spec}: the onnx engine scores masked language models only, and these requests need a "
            f"{min(other)} head; use --engine transformers"
        )


def _threads(options: EngineOptions) -> int:
    """Threads of one operator."""
    wanted = options.extra.get("intra_op_threads") or os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    try:
        return max(1, int(wanted)) if wanted else len(os.sched_getaffinity(0))
    except ValueError as error:
        raise InputError(f"intra_op_threads must be a number: {wanted!r}") from error
