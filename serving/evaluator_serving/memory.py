"""Memory: the peak of this process, and what the machine can still give."""

import os
import resource
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
