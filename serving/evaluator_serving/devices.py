"""What devices this machine has."""

import ctypes
import sys
from importlib.metadata import PackageNotFoundError, version


def has_cuda() -> bool:
    """Whether torch finds a GPU here. It isn't imported where it can't find one: without a driver, or built for CPUs."""
    if sys.modules.get("torch") is None and not _may_have_cuda():
        return False
    import torch

    return torch.cuda.is_available()


def _may_have_cuda() -> bool:
    try:
        built = version("torch")
    except PackageNotFoundError:
        return False
    return not built.endswith("+cpu") and ("rocm" in built or has_driver())


def has_driver() -> bool:
    """Whether a driver of CUDA devices is here, whatever libraries were built for."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
