"""Peak memory of this process."""

import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """Largest resident size so far, in bytes.

    `getrusage` alone would not do on Linux: a process that is started by a larger one inherits that one's figure.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return int(value.split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
