"""Memory and processors: the peak of this process, what the machine can still give, and how many cores may be used."""

import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """Largest resident size so far, in bytes; where the system doesn't say, the present one.

    `getrusage` alone would not do on Linux: a process that is started by a larger one inherits that one's figure.
    """
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text(encoding="utf8").splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return int(value.split()[0]) * 1024
    present = psutil.Process().memory_info()
    if hasattr(present, "peak_wset"):  # Windows
        return int(present.peak_wset)
    with contextlib.suppress(ImportError):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(present.rss)


def available_memory() -> int:
    """Bytes of memory that this machine can give now, its control group's limit included."""
    free = int(psutil.virtual_memory().available)
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        free = min(free, limit - used)
    except (OSError, ValueError):  # no control group, or "max"
        pass
    return free


def usable_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


SLACK = 1 << 30
"""Bytes that a process may keep of an engine that was closed: caches of allocators and libraries."""


class Held:
    """What this process held before an engine was loaded, to see whether it holds no more after that was closed.

    Of a device all that is in use counts, a neighbour's on a shared card too. What belongs to one process only the driver's
    library tells, by process ids that mean nothing in a container; torch knows of its own allocator alone, neither of ONNX
    Runtime's nor of the processes that vLLM starts. The error costs time, never numbers: where a neighbour holds more than
    SLACK the answer is no, and the next model gets a new process (the start that reuse would have saved); where one has let go
    of as much as this process keeps, the answer is yes, and the next model finds that much less room: at worst its start fails
    and is tried again in a new process.
    """

    def __init__(self) -> None:
        self._resident = 0
        self._on_device = 0

    def remember(self) -> None:
        """The present is the measure: called before an engine is loaded, the first time only."""
        if not self._resident:
            self._resident, self._on_device = _resident(), _on_device()

    def is_back(self) -> bool:
        """Whether host and device hold about as little again as then, garbage collected and allocators' caches emptied."""
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        with contextlib.suppress(OSError, AttributeError):  # glibc keeps freed memory; other libraries have no such call
            ctypes.CDLL(None).malloc_trim(0)
        # Libraries that were imported meanwhile stay, and are what the next model wants.
        return _resident() <= self._resident + 2 * SLACK and _on_device() <= self._on_device + SLACK


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _on_device() -> int:
    """Bytes that are in use on this process's devices, by whomever."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    used = 0
    for device in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(device)
        used += total - free
    return used
