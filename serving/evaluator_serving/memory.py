"""Memory: the peak of this process, and what the machine can still give."""

import contextlib
import ctypes
import gc
import os
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """Largest resident size so far, in bytes.

    `getrusage` alone would not do on Linux: a process that is started by a larger one inherits that one's figure.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text(encoding="utf8").splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return int(value.split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def available_memory() -> int:
    """Bytes of memory that this machine can give now, its control group's limit included."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        free = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        pass
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        free = min(free, limit - used)
    except (OSError, ValueError):  # no control group, or "max"
        pass
    return free


SLACK = 1 << 30
"""Bytes that a process may keep of an engine that was closed: caches of allocators and libraries."""


class Held:
    """What this process held before an engine was loaded, to see whether it holds no more after that was closed."""

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
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


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
