"""How an exported model's graphs are run: pooled (fast) or plain (right by being simple)."""

from __future__ import annotations

import contextlib
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from evaluator_serving.devices import has_cuda
from evaluator_serving.errors import InputError
from evaluator_serving.onnx.feeds import Inputs
from evaluator_serving.onnx.manifest import HIDDEN, Manifest

POOL = {"cpu": 192, "cuda": 4_096}
"""Hidden states that are collected before the head runs over them: reading a large vocabulary matrix for a batch's
few reads takes longer than multiplying by it. The head takes about as many at once."""

Wanted = Sequence[tuple[int, ...]]
"""Token ids that are asked at each position read."""


def provider_names(device: str, *, tensorrt: bool) -> tuple[str, list[Any]]:
    """(`cpu` or `cuda`, ONNX Runtime's execution providers) for a device name. Raises InputError if it isn't there."""
    available = onnxruntime.get_available_providers()
    if device == "auto":
        device = "cuda" if "CUDAExecutionProvider" in available and has_cuda() else "cpu"
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or not (index or "0").isdecimal():
        raise InputError(f"the onnx engine doesn't run on {device!r}: use auto, cpu, cuda or cuda:1")
    place: dict[str, Any] = {"device_id": int(index or 0)}
    # TF32, which is on by default there, would take float32 products to 10 bits.
    wanted: dict[str, dict[str, Any]] = {"CUDAExecutionProvider": {**place, "use_tf32": "0"}} if kind == "cuda" else {}
    if tensorrt:
        wanted = {"TensorrtExecutionProvider": place, **wanted}
    missing = [name for name in wanted if name not in available]
    if missing:
        raise InputError(f"this ONNX Runtime has no {missing[0]}: install onnxruntime-gpu, or use --device cpu")
    return kind, [*wanted.items(), "CPUExecutionProvider"]


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of ONNX Runtime or PyTorch means that a batch was too large."""
    text = str(error).lower()
    signs = ("out of memory", "failed to allocate memory", "bad allocation", "bad_alloc", "can't allocate memory")
    return isinstance(error, MemoryError) or any(sign in text for sign in signs)


@functools.cache
def _share_arena() -> None:
    """One arena for the intermediate results of all sessions of this process on a CPU: layers and head, which take turns.

    With one each SmolLM2 takes 6% more memory. When an engine is closed a batch's stays; the weights aren't in it.
    """
    kind, use = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
    place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, use)
    with contextlib.suppress(Exception):  # the library has no types of its own: somebody in this process was first
        onnxruntime.create_and_register_allocator(place, onnxruntime.OrtArenaCfg({"arena_extend_strategy": 0}))


class Runner(ABC):
    """Takes batches, gives back the log-probabilities of the tokens wanted at every position read, in order."""

    def __init__(self, folder: Path, manifest: Manifest, providers: Sequence[Any], threads: int) -> None:
        self._folder, self._manifest = folder, manifest
        self._providers, self._threads = list(providers), threads

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether it is time to collect."""

    @abstractmethod
    def submit(self, inputs: Inputs, wanted: Wanted) -> None:
        """Take a batch and the token ids wanted at each position read."""

    @abstractmethod
    def collect(self) -> list[NDArray[np.float32]]:
        """Log-probabilities for every position submitted since the last time."""

    def _session(self, form: str, *, optimize: bool = True) -> onnxruntime.InferenceSession:
        """Load one of the graphs."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # The level above, which only adds memory layouts for convolutions, crashes on float16 DeBERTa (1.32).
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED if optimize else levels.ORT_DISABLE_ALL
        # Plans for memory are made per input shape: with shapes as varied as sentences they are made, not reused.
        options.enable_mem_pattern = False
        if len(self._providers) == 1:
            _share_arena()
            options.add_session_config_entry("session.use_env_allocators", "1")
        if not self._manifest.repacks:
            options.add_session_config_entry("session.disable_prepacking", "1")
        return onnxruntime.InferenceSession(self._folder / f"{form}.onnx", options, providers=self._providers)

    def _head_inputs(self, wanted: Wanted) -> Inputs:
        """The head's inputs for what is wanted: a matrix of ids padded with -1, or for causal models (read, token) pairs."""
        if self._manifest.head == "causal":
            tokens = np.array([token for ids in wanted for token in ids], np.int64)
            return {"lookup_reads": np.repeat(np.arange(len(wanted)), [len(ids) for ids in wanted]), "lookup_tokens": tokens}
        matrix = np.full((len(wanted), max(1, *map(len, wanted), 1)), -1, np.int64)
        for row, ids in zip(matrix, wanted, strict=True):
            row[: len(ids)] = ids
        return {"candidate_ids": matrix}

    def _cut(self, log_probs: NDArray[np.float32], wanted: Wanted) -> list[NDArray[np.float32]]:
        """What the head answered, by position."""
        if self._manifest.head == "causal":
            return np.split(log_probs, np.cumsum([len(ids) for ids in wanted])[:-1])
        return [row[: len(ids)] for row, ids in zip(log_probs, wanted, strict=True)]


class Plain(Runner):
    """The plain graph, one run a batch, without ONNX Runtime's optimizations."""

    def __init__(self, folder: Path, manifest: Manifest, providers: Sequence[Any], threads: int) -> None:
        super().__init__(folder, manifest, providers, threads)
        self._scores = self._session("plain", optimize=False)
        self._done: list[NDArray[np.float32]] = []

    @property
    def full(self) -> bool:
        """Always: nothing is gained by waiting."""
        return True

    def submit(self, inputs: Inputs, wanted: Wanted) -> None:
        """Score a batch."""
        (log_probs,) = self._scores.run(["log_probs"], {**inputs, **self._head_inputs(wanted)})
        self._done += self._cut(log_probs, wanted)

    def collect(self) -> list[NDArray[np.float32]]:
        """What has been scored."""
        done, self._done = self._done, []
        return done


class Pooled(Runner):
    """The encoder graph a batch at a time, its outputs written into a pool; the head over the pool.

    On CUDA the pool is a torch tensor on the device, and the head is the Triton kernel over the same memory: no hidden
    state is copied to the host.
    """

    def __init__(self, folder: Path, manifest: Manifest, providers: Sequence[Any], threads: int) -> None:
        super().__init__(folder, manifest, providers, threads)
        self._encoder = self._session("hidden")
        self._on_cuda = len(providers) > 1
        self._device_id = providers[0][1]["device_id"] if self._on_cuda else 0
        self._size = POOL["cuda" if self._on_cuda else "cpu"]
        self._type = np.float16 if manifest.dtype == "float16" else np.float32
        if self._on_cuda:
            from evaluator_serving.onnx.cuda_head import CudaHead

            self._head: Any = CudaHead(folder, manifest, self._device_id)
        else:
            self._head = CpuHead(self._session("head"), HIDDEN[manifest.head])
        self._pool = self._head.allocate(self._size, manifest.width)
        self._filled = 0
        self._wanted: list[tuple[int, ...]] = []

    @property
    def full(self) -> bool:
        """Whether the pool has reached its size."""
        return self._filled >= self._size

    def submit(self, inputs: Inputs, wanted: Wanted) -> None:
        """Run the encoder on a batch; the hidden states that are read go into the pool."""
        needed = self._filled + len(wanted)
        if needed > len(self._pool):
            self._pool = self._head.grow(self._pool, self._filled, needed)
        binding = self._encoder.io_binding()
        for name, value in inputs.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output(
            HIDDEN[self._manifest.head],
            "cuda" if self._on_cuda else "cpu",
            self._device_id,
            self._type,
            (len(wanted), self._manifest.width),
            self._head.address(self._pool, self._filled),
        )
        self._encoder.run_with_iobinding(binding)
        binding.synchronize_outputs()
        self._filled = needed
        self._wanted += wanted

    def collect(self) -> list[NDArray[np.float32]]:
        """Run the head over the pool and empty it."""
        values: list[NDArray[np.float32]] = []
        count = max(1, round(self._filled / self._size))
        bounds = [self._filled * i // count for i in range(count + 1)]
        for start, stop in itertools.pairwise(bounds):
            wanted = self._wanted[start:stop]
            if wanted:
                values += self._cut(self._head.log_probs(self._pool[start:stop], self._head_inputs(wanted)), wanted)
        self._filled, self._wanted = 0, []
        return values


class CpuHead:
    """The head graph over a pool in host memory."""

    def __init__(self, session: onnxruntime.InferenceSession, hidden: str) -> None:
        self._session, self._hidden = session, hidden

    def allocate(self, rows: int, width: int) -> NDArray[np.float32]:
        """A pool of `rows` hidden states."""
        return np.empty((rows, width), np.float32)

    def grow(self, pool: NDArray[np.float32], filled: int, rows: int) -> NDArray[np.float32]:
        """A larger pool with the first `filled` hidden states of `pool`."""
        larger = np.empty((rows, pool.shape[1]), np.float32)
        larger[:filled] = pool[:filled]
        return larger

    def address(self, pool: NDArray[np.float32], row: int) -> int:
        """Where a row of the pool begins in memory."""
        return int(pool.ctypes.data + row * pool.strides[0])

    def log_probs(self, states: NDArray[np.float32], asked: Inputs) -> NDArray[np.float32]:
        """Log-probabilities of what is asked after these hidden states."""
        (values,) = self._session.run(["log_probs"], {self._hidden: states, **asked})
        return np.asarray(values)
