"""The head on CUDA: the fused masked softmax over hidden states that ONNX Runtime left on the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evaluator_kernels import masked_log_probs
from evaluator_serving.onnx.feeds import Inputs
from evaluator_serving.onnx.manifest import Manifest


class CudaHead:
    """The vocabulary matrix as a torch tensor on the device, and the Triton kernel."""

    def __init__(self, folder: Path, manifest: Manifest, device_id: int) -> None:
        self._device = torch.device("cuda", device_id)
        self._dtype = torch.float16 if manifest.dtype == "float16" else torch.float32
        self._weight, self._bias = (self._read(folder, *manifest.vocabulary[part]) for part in ("weight", "bias"))

    def _read(self, folder: Path, offset: int, shape: list[int]) -> Tensor:
        dtype = np.float16 if self._dtype == torch.float16 else np.float32
        stored = np.memmap(folder / "weights.bin", dtype, "r", offset, tuple(shape))
        return torch.from_numpy(np.array(stored)).to(self._device)

    def allocate(self, rows: int, width: int) -> Tensor:
        """A pool of `rows` hidden states."""
        return torch.empty((rows, width), dtype=self._dtype, device=self._device)

    def grow(self, pool: Tensor, filled: int, rows: int) -> Tensor:
        """A larger pool with the first `filled` hidden states of `pool`."""
        larger = self.allocate(rows, pool.shape[1])
        larger[:filled] = pool[:filled]
        torch.cuda.synchronize(self._device)  # ONNX Runtime writes on a stream of its own
        return larger

    def address(self, pool: Tensor, row: int) -> int:
        """Where a row of the pool begins in device memory."""
        return int(pool[row:].data_ptr())

    def log_probs(self, states: Tensor, asked: Inputs) -> NDArray[np.float32]:
        """Log-probabilities [N, K] of candidates at these N hidden states."""
        ids = torch.from_numpy(asked["candidate_ids"]).to(self._device)
        values = masked_log_probs(states, self._weight, ids, self._bias).log_probs
        return np.asarray(values.cpu().numpy())
