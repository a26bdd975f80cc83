"""The devices of this machine or of a Ray cluster."""

import os
import subprocess
from dataclasses import dataclass

from evaluator_serving.memory import available_memory

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a sweep can run on.

    Attributes:
        kind: `cuda` or `cpu`.
        devices: GPUs, or workers on a CPU machine.
        memory: bytes free on each device now (on a CPU machine: available memory divided by the workers).
        node: devices a node.
        name: for people.
    """

    kind: str
    devices: int
    memory: int
    node: int
    name: str


def gpus() -> list[tuple[str, int]]:
    """(name, free bytes) of every GPU, by the driver's own tool, so that no CUDA context is made in this process."""
    query = ["nvidia-smi", "--query-gpu=name,memory.free", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    return [(name.strip(), int(free) << 20) for name, _, free in (line.rpartition(",") for line in lines if line.strip())]


def local_hardware(workers: int = 1) -> Hardware:
    """This machine: its GPUs, or `workers` CPU workers where there is none."""
    found = gpus()
    if found:
        # Visible devices may be fewer than the machine has.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        count = len([d for d in visible.split(",") if d]) if visible is not None else len(found)
        count = min(count, len(found))
        if count:
            return Hardware("cuda", count, min(free for _, free in found[:count]), count, found[0][0])
    return Hardware("cpu", workers, available_memory() // workers, workers, f"CPU, {os.cpu_count()} cores")
