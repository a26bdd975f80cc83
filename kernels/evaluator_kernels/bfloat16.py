"""Float32 activations times bfloat16 weights on CPUs, accumulated in float32: one, two or three bfloat16 products.

A float32 number is the sum of two bfloat16 numbers, high and low, to 16 bits. With weights that are exact in bfloat16,
x · W = high · W + low · W to 2^-16 of the largest term; weights that aren't exact are split as well, and high · (rest of W) is
added. oneMKL calls this arithmetic bf16x2. PyTorch rounds such products to bfloat16; `bfloat16.cpp` keeps their float32 sums,
and is compiled at first use.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

_SOURCE = Path(__file__).with_name("bfloat16.cpp")
_FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-fopenmp", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
_SECONDS = 120
"""Most that the compiler may take; it takes about 2."""

_ROWS, _DEPTH, _COLUMNS = 16, 32, 64
"""Rows are padded to a multiple of the first, their width to one of the second. The third: outputs of a block of weights."""

_PRODUCTS = {(1, 1): ((0, 0),), (2, 1): ((0, 0), (1, 0)), (3, 2): ((0, 0), (1, 0), (2, 1))}
"""By the parts of activations and weights: which part of the one is multiplied with which of the other."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A weight [outputs, width] as one or two bfloat16 numbers each: [parts, blocks of 64 outputs, width / 2, 64, 2]."""

    blocks: Tensor
    outputs: int
    width: int

    @classmethod
    def of(cls, weight: Tensor, parts: int) -> LaidOut:
        """Of a float32 or bfloat16 weight; with one part it is rounded, with two it keeps 16 bits."""
        outputs, width = weight.shape
        deep, across = -(-width // _DEPTH) * _DEPTH, -(-outputs // _COLUMNS)
        blocks = torch.zeros(parts, across * _COLUMNS, deep, dtype=torch.bfloat16)
        blocks[0, :outputs, :width] = weight
        if parts == 2:
            blocks[1, :outputs, :width] = weight.float() - blocks[0, :outputs, :width].float()
        shaped = blocks.view(parts, across, _COLUMNS, deep // 2, 2).transpose(2, 3)
        return cls(shaped.contiguous(), outputs, width)

    def weight(self) -> Tensor:
        """The weight [outputs, width] again, in float32."""
        parts, across, half = self.blocks.shape[:3]
        whole = self.blocks.transpose(2, 3).reshape(parts, across * _COLUMNS, 2 * half)
        return whole.float().sum(dim=0)[: self.outputs, : self.width].contiguous()


def is_exact(weight: Tensor) -> bool:
    """Whether rounding a weight to bfloat16 changes nothing."""
    return weight.dtype == torch.bfloat16 or bool(torch.equal(weight, weight.bfloat16().to(weight.dtype)))


class Products:
    """The compiled products."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.product.restype = ctypes.c_bool

    @classmethod
    def load(cls, folder: Path) -> Products | None:
        """The products, compiled into `folder` unless they are there already.

        None where there is no compiler, or where this build of PyTorch or this processor has no such kernel.
        """
        try:
            made = cls(ctypes.CDLL(str(_compiled(folder))))
        except (OSError, AttributeError, subprocess.SubprocessError):  # AttributeError: not a library of this source
            return None
        return made if made._works() else None

    def __call__(self, x: Tensor, weight: LaidOut, bias: Tensor | None = None) -> Tensor:
        """x [..., width] · weightᵀ [+ bias], float32 [..., outputs]. x is bfloat16, or float32 and split; bias is float32.

        Raises RuntimeError where PyTorch has no such kernel for this processor, or oneDNN is switched off.
        """
        flat = x.reshape(-1, weight.width).contiguous()
        rows, parts = len(flat), weight.blocks.shape[0]
        height, depth = -(-rows // _ROWS) * _ROWS, 2 * weight.blocks.shape[2]
        if x.dtype == torch.bfloat16:
            halves = torch.zeros(1, height, depth, dtype=torch.bfloat16)
            halves[0, :rows, : weight.width] = flat
        else:
            halves = torch.empty(1 + parts, height, depth, dtype=torch.bfloat16)
            finite = halves[2] if parts == 2 else None
            self._library.split(
                _pointer(flat),
                *map(ctypes.c_int64, (rows, weight.width)),
                *map(_pointer, (halves[0], halves[1], finite)),
                *map(ctypes.c_int64, (height, depth)),
            )
        pairs = _PRODUCTS[len(halves), parts]
        indices = [(ctypes.c_int64 * len(pairs))(*side) for side in zip(*pairs, strict=True)]
        y = torch.empty(rows, weight.outputs)
        done = self._library.product(
            *map(_pointer, (halves, weight.blocks)),
            *indices,
            ctypes.c_int64(len(pairs)),
            *map(_pointer, (bias, y)),
            *map(ctypes.c_int64, (rows, height, depth, weight.outputs)),
        )
        if not done:
            raise RuntimeError("this PyTorch multiplies no bfloat16 here with float32 sums")
        return y.view(*x.shape[:-1], weight.outputs)

    def _works(self) -> bool:
        """Whether it gives the right numbers here."""
        x, weight = (torch.linspace(-1, 1, rows * 70).view(rows, 70).sin() for rows in (19, 130))
        expected = x.double() @ weight.double().T
        try:
            return bool((self(x, LaidOut.of(weight, 2)) - expected).abs().max() < 1e-3)
        except RuntimeError:
            return False


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _compiled(folder: Path) -> Path:
    """The library in `folder`, made for this source and PyTorch. Raises OSError or SubprocessError if it can't be made."""
    libraries = Path(torch.__file__).parent / "lib"
    known = hashlib.blake2b(f"{torch.__version__} {libraries} {_FLAGS}".encode() + _SOURCE.read_bytes(), digest_size=8)
    path = folder / f"bfloat16-{known.hexdigest()}.so"
    if path.is_file():
        return path
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if compiler is None:
        raise OSError("no C++ compiler is installed")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / path.name
        command = [*compiler.split(), *_FLAGS, str(_SOURCE), "-o", str(made), f"-L{libraries}", "-ltorch_cpu"]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        made.replace(path)
    return path
