"""The devices of this machine or of a Ray cluster, machine by machine: cards and their number differ."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluator_serving.errors import InputError, NotNowError
from evaluator_serving.memory import available_memory

GIB = 1 << 30

SPEED: tuple[tuple[str, float], ...] = (
    ("B200", 2.0),
    ("GH200", 1.0),
    ("H200", 1.0),
    ("H100", 1.0),
    ("A100", 0.32),
    ("L40", 0.36),
    ("RTX 6000", 0.36),
    ("4090", 0.33),
    ("A6000", 0.16),
    ("A40", 0.15),
    ("A10", 0.12),
    ("L4", 0.12),
    ("3090", 0.14),
    ("V100", 0.12),
    ("T4", 0.06),
)
"""Dense 16-bit arithmetic of data-centre cards relative to an H100 (makers' data sheets); the first name found in a card's
own name counts. A card that isn't here is taken for an A100."""
UNKNOWN_SPEED = 0.32
THROUGHPUT = {"cuda": 100_000.0, "cpu": 60.0}
"""Forward tokens a second of a model of one billion parameters, where nothing was measured or given: an H100's petaflop at
20%; two cores at 120 GFLOP/s."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a fleet; its devices are alike.

    Attributes:
        kind: `cuda` or `cpu`.
        card: the devices' name, for people and for their speed.
        devices: GPUs, or workers on a machine without any.
        memory: bytes free on each device now (of a CPU worker: its part of the available memory).
        id: Ray's id of the node, empty for this machine without a cluster.
        address: for people, where there are several.
        lacks: names of models in local folders that aren't there, sorted: it can't run them.
    """

    kind: str
    card: str
    devices: int
    memory: int
    id: str = ""
    address: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def throughput(self) -> float:
        """Forward tokens a second of a model of one billion parameters on one device."""
        if self.kind == "cpu":
            return THROUGHPUT["cpu"]
        return THROUGHPUT["cuda"] * next((speed for name, speed in SPEED if name in self.card), UNKNOWN_SPEED)

    @property
    def family(self) -> str:
        """Machines that are alike: their card, how many of it they have, and which models can't run there."""
        return f"{self.devices} × {self.card}" + (f" without {', '.join(self.lacks)}" if self.lacks else "")


@dataclass(frozen=True, slots=True)
class Fleet:
    """All machines that a sweep can run on: those with GPUs, or where there is none those with CPU workers."""

    nodes: tuple[Node, ...]

    @property
    def kind(self) -> str:
        """`cuda` or `cpu`."""
        return self.nodes[0].kind if self.nodes else "cpu"

    @property
    def devices(self) -> int:
        """Devices of all machines."""
        return sum(node.devices for node in self.nodes)

    def families(self) -> dict[str, list[Node]]:
        """Machines that are alike, the fastest cards first; their free memory may differ."""
        found: dict[str, list[Node]] = {}
        for node in sorted(self.nodes, key=lambda n: (-n.throughput, -n.memory, -n.devices, n.id)):
            found.setdefault(node.family, []).append(node)
        return found


def fleet_of(nodes: Sequence[Node]) -> Fleet:
    """The machines that count: with GPUs if any has one. Raises NotNowError where there is none at all."""
    useful = [n for n in nodes if n.kind == "cuda" and n.devices] or [n for n in nodes if n.devices]
    if not useful:
        raise NotNowError("no device to run on: the cluster has neither GPUs nor CPU cores; add a node with some")
    return Fleet(tuple(useful))


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG slice of one, as the driver's own tool lists it."""

    index: str
    uuid: str
    name: str
    free: int


def parse_gpus(query: str, listing: str = "") -> list[Gpu]:
    """GPUs from `nvidia-smi --query-gpu=index,uuid,name,memory.free` (MiB) and the MIG slices from `nvidia-smi -L`.

    A slice has no memory of its own in the query: its profile's name says it (`1g.10gb`).
    """
    found = []
    for line in query.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and fields[3].isdigit():
            found.append(Gpu(fields[0], fields[1], fields[2], int(fields[3]) << 20))
    for gpu, slice_, profile_gb, uuid in _slices(listing):
        card = next((g.name for g in found if g.index == gpu), "GPU")
        found.append(Gpu(f"{gpu}:{slice_}", uuid, f"{card} MIG {profile_gb}gb", int(profile_gb) * 10**9))
    return found


def _slices(listing: str) -> list[tuple[str, str, str, str]]:
    """(GPU's index, slice's index, gigabytes, uuid) of every MIG slice."""
    found, gpu = [], ""
    for line in listing.splitlines():
        if card := re.match(r"GPU (\d+):", line):
            gpu = card[1]
        elif slice_ := re.match(r"\s+MIG \S*?\.(\d+)gb\S*\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)", line):
            found.append((gpu, slice_[2], slice_[1], slice_[3]))
    return found


def visible(gpus: Sequence[Gpu], chosen: str | None) -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES (None: not set) leaves: by number, by UUID or its beginning, or MIG slices.

    As CUDA does it, what stands behind a name that isn't there is not visible either. Without a choice, whole GPUs.
    """
    if chosen is None:
        sliced = {gpu.index.partition(":")[0] for gpu in gpus if ":" in gpu.index}
        return [gpu for gpu in gpus if ":" in gpu.index or gpu.index not in sliced]
    found: list[Gpu] = []
    for name in (part.strip() for part in chosen.split(",")):
        numbered = name.isdigit()
        hit = next((g for g in gpus if (g.index == name if numbered else bool(name) and g.uuid.startswith(name))), None)
        if hit is None or hit in found:
            break
        found.append(hit)
    return found


def gpus(environment: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that this process may use, by the driver's own tool, so that no CUDA context is made in this process."""

    def ask(*arguments: str) -> str:
        try:
            return subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=120, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return ""

    query = ask("--query-gpu=index,uuid,name,memory.free", "--format=csv,noheader,nounits")
    if not query:
        return []
    where = os.environ if environment is None else environment
    return visible(parse_gpus(query, ask("-L")), where.get("CUDA_VISIBLE_DEVICES"))


def node_of_gpus(found: Sequence[Gpu], *, id: str = "", address: str = "") -> Node:
    """The machine with these GPUs: the least memory that one of them has free, so that any of them will do."""
    return Node("cuda", found[0].name, len(found), min(gpu.free for gpu in found), id, address)


def local_fleet(workers: int = 1, worker_memory: int | None = None) -> Fleet:
    """This machine: its GPUs, or else `workers` CPU workers with `worker_memory` bytes each (None: what is free, shared)."""
    found = gpus()
    if found:
        return Fleet((node_of_gpus(found),))
    return Fleet((Node("cpu", f"CPU ({os.cpu_count()} cores)", workers, worker_memory or available_memory() // workers),))


def parse_fleet(text: str) -> Fleet:
    """Machines as a person writes them: `1x8xH100-80, 2x4xA100-40, L4-24` is machines × GPUs × card-GiB, comma between kinds.

    Raises InputError for anything else.
    """
    nodes: list[Node] = []
    for part in text.split(","):
        words = re.fullmatch(r"(?:(?:(\d+)x)?(\d+)x)?(.*\S)-(\d+(?:\.\d+)?)", part.strip(), re.IGNORECASE)
        if words is None:
            raise InputError(f"--fleet {part.strip()!r}: write machines x GPUs x card-GiB, for example 1x8xH100-80,2x4xA100-40")
        machines, devices, card, memory = int(words[1] or 1), int(words[2] or 1), words[3], float(words[4])
        if not (machines and devices and memory):
            raise InputError(f"--fleet {part.strip()!r}: machines, GPUs and GiB must be at least 1")
        for _ in range(machines):
            node = Node("cuda", f"{card}-{words[4]}", devices, int(memory * GIB), id=f"planned-{len(nodes)}")
            nodes.append(node)
    return Fleet(tuple(nodes))
