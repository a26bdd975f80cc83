"""What devices this machine has."""

import ctypes
import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from evaluator_serving.errors import InputError

Bfloat16Units = Literal["amx_bf16", "avx512_bf16"]
"""What multiplies bfloat16 numbers in a CPU, as /proc/cpuinfo calls it: matrix units (several times as fast as float32), or
vector units (twice as fast)."""


def has_cuda() -> bool:
    """Whether torch finds a GPU here. It isn't imported where it can't find one: without a driver, or built for CPUs."""
    if sys.modules.get("torch") is None and _no_cuda_build() is not None:
        return False
    import torch

    return torch.cuda.is_available()


def check_cuda(name: str) -> None:
    """Raise InputError where `name` (`cuda`, `cuda:1`) isn't a device that torch can use here: why, and what to do."""
    numbered = re.fullmatch(r"cuda(?::(\d+))?", name)
    if numbered is None:
        raise InputError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:1")
    if not has_cuda():
        reason = _no_cuda_build() or "no CUDA device that PyTorch can use is found (evaluator doctor says more)"
        raise InputError(f"no device {name!r} here: {reason}; remove --device, or use --device cpu")
    import torch

    count = torch.cuda.device_count()
    if int(numbered[1] or 0) >= count:
        found = "cuda:0 is the only CUDA device" if count == 1 else f"{count} CUDA devices, cuda:0 to cuda:{count - 1}, are"
        raise InputError(f"no device {name!r} here: {found} found; use one of them, or remove --device")


def _no_cuda_build() -> str | None:
    """Why torch can't find a GPU here, as far as can be told without importing it: what it was built for, no driver."""
    try:
        built = version("torch")
    except PackageNotFoundError:
        return "PyTorch isn't installed"
    if built.endswith("+cpu"):
        return f"the installed PyTorch ({built}) is built for CPUs alone (pytorch.org has the line for CUDA)"
    return None if "rocm" in built or has_driver() else "no driver of CUDA devices is found"


def has_driver() -> bool:
    """Whether a driver of CUDA devices is here, whatever libraries were built for."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


@cache
def bfloat16_units() -> Bfloat16Units | None:
    """The fastest units for products of bfloat16 in this machine's CPU; None where there are none, or none are known."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf8", errors="replace").split())
    except OSError:
        return None
    if "avx512_bf16" not in flags:
        return None  # oneDNN's kernels want both
    return "amx_bf16" if {"amx_bf16", "amx_tile"} <= flags else "avx512_bf16"
