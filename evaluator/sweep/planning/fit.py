"""Which placements of a model fit which machines, and how long each would take. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluator.sweep.benches import Speeds
from evaluator.sweep.hardware import GIB, Fleet, Node
from evaluator.sweep.planning.placement import Placement
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError, MachineError
from evaluator_serving.registry import engine_class

OVERHEAD = {"cuda": 3 * GIB, "cpu": GIB // 2}
"""A device's share that isn't weights: CUDA context, allocator slack, a KV cache and activations; on a CPU the libraries."""
ROOM = 0.92
"""Of a device's free memory, what may be planned for."""
SHARES = (0.125, 0.25, 0.5)
"""Parts of a GPU that a small model may take, so that it doesn't hold a whole one while it loads."""
READ_RATE = {"cuda": 1.5e9, "cpu": 1.0e9}
"""Bytes of weights a second from disk to one device."""
HOST_BOUND = 60_000.0
"""Forward tokens a second that no model exceeds on a replica, however small: the host's side of each step."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one model needs, wherever it runs.

    Attributes:
        name, engine, dtype: as in the run.
        parameters: of the checkpoint.
        weights: bytes in the dtype that is computed in.
        buffers: bytes a device for logits and activations of the longest rows.
        heads: attention heads, which tensor parallelism must share out evenly.
        tokens: forward tokens still to compute.
        options: what the user asked of the engine.
        kv_heads: heads of keys and values, where they are fewer (0: as many); they are shared out evenly or copied evenly.
        layers: as many pipeline stages there may be; 0 where the configuration doesn't say.
        folder: where its weights lie on every machine that can run it, empty where they come from a hub.
    """

    name: str
    engine: str
    dtype: str
    parameters: int
    weights: float
    buffers: int
    heads: int
    tokens: int
    options: EngineOptions
    kv_heads: int = 0
    layers: int = 0
    folder: str = ""

    def divided(self, devices: int) -> tuple[int, int]:
        """(tensor parallel, pipeline parallel) on so many devices of one machine.

        Tensor parallel as far as the heads can be shared out, stages for the rest: all devices of a machine compute a row at
        once under the former, which is what hides the time that they talk.
        """
        kv = self.kv_heads or self.heads
        tensor = max(
            n
            for n in range(1, devices + 1)
            if devices % n == 0 and self.heads % n == 0 and (kv % n == 0 or n % kv == 0)  # as vLLM's layers ask
        )
        return tensor, devices // tensor

    def memory(self, kind: str, devices: int) -> int:
        """Bytes on each of `devices` devices."""
        return int(self.weights * 1.05 / devices) + OVERHEAD[kind] + self.buffers


@dataclass(frozen=True, slots=True)
class Allocation:
    """A placement on machines of one family, with seconds to load and to score all on one replica."""

    family: str
    placement: Placement
    load: float
    score: float


def allocations(demand: Demand, fleet: Fleet, speeds: Speeds | None = None) -> tuple[Allocation, ...]:
    """The allocations of a model: on each family of machines that it fits, on the fewest devices, and on parts of one.

    `speeds`: what was measured or given; without it the cards' own.
    Raises InputError, with the number missing, where it fits nowhere, MachineError where none has its folder.
    """
    having = Fleet(tuple(node for node in fleet.nodes if demand.name not in node.lacks))
    if fleet.nodes and not having.nodes:
        addresses = ", ".join(sorted(node.address for node in fleet.nodes))
        raise MachineError(
            f"{demand.name}: no machine has {demand.folder} as it is here ({addresses}): copy it to one of them, "
            "put it on a file system that they share, or give a hub id"
        )
    found = [
        _allocation(demand, family, nodes[0], placement, speeds or Speeds())
        for family, nodes in having.families().items()
        for placement in fitting(demand, nodes)
    ]
    if not found:
        raise _nowhere(demand, having)
    return tuple(found)


def _allocation(demand: Demand, family: str, node: Node, placement: Placement, speeds: Speeds) -> Allocation:
    # Layers that are laid over GPUs compute one after the other; CPU workers are threads of one process.
    parallel = placement.devices if node.kind == "cpu" or placement.spread == 1 else 1
    measured = speeds.rates(node.card).tokens_s(demand.engine, demand.dtype, demand.parameters, speeds.threads)
    if measured is None:
        rate = (speeds.throughput or node.throughput) * parallel * placement.share / max(demand.parameters / 1e9, 1e-3)
        rate = min(rate, HOST_BOUND) if node.kind == "cuda" else rate
    else:
        rate = measured * parallel * placement.share
    load = _starts(demand, node, placement, speeds)[1]
    return Allocation(family, placement, load if demand.tokens else 0.0, demand.tokens / rate)


def _starts(demand: Demand, node: Node, placement: Placement, speeds: Speeds) -> tuple[float, float]:
    """Seconds until a new process has loaded the model, and until a process has that held another one before."""
    weights = demand.weights / placement.devices
    known = speeds.rates(node.card).start(demand.engine, demand.dtype, weights, READ_RATE[node.kind], speeds.threads)
    if known is not None:
        return known
    later = engine_class(demand.engine).start_seconds.get(node.kind, 1.0) + weights / READ_RATE[node.kind]
    return later, later


def first_start(demand: Demand, fleet: Fleet, speeds: Speeds) -> float:
    """Seconds by which the first start in a process exceeds a later one, where measured; no `Allocation` includes them."""
    if not demand.tokens:
        return 0.0
    return max(first - later for first, later in (_starts(demand, node, Placement(), speeds) for node in fleet.nodes))


def fitting(demand: Demand, nodes: Sequence[Node]) -> list[Placement]:
    """Placements that fit on machines which are alike: on the fewest whole devices, and on parts of one."""
    found = []
    for placement in candidates(demand, nodes):
        large = [n for n in nodes if placement.share * n.memory * ROOM >= demand.memory(n.kind, placement.devices)]
        if len(large) >= placement.nodes and placement.per_node <= nodes[0].devices:
            found.append(placement)
            if placement.share == 1.0:
                break
    return found


def candidates(demand: Demand, nodes: Sequence[Node]) -> list[Placement]:
    """Placements that the engine can run on machines which are alike, the ones with the fewest devices first."""
    options, node = demand.options, nodes[0]
    tensor, pipeline = options.tensor_parallel, options.pipeline_parallel
    if tensor * pipeline > 1:
        spans = [n for n in range(1, len(nodes) + 1) if pipeline % n == 0]
        return [Placement(tensor, pipeline, nodes=n) for n in spans]
    sizes = sorted({*(n for n in (1, 2, 4, 8, 16) if n <= node.devices), node.devices})
    shared = [Placement(share=share) for share in SHARES] if node.kind == "cuda" else []
    spread = engine_class(demand.engine).spread
    if spread != "tensors":
        spreads = sizes if spread == "layers" or node.kind == "cpu" else [1]
        return [*shared, *(Placement(spread=n) for n in spreads)]
    within = [Placement(*demand.divided(n)) for n in sizes]
    over = []
    if node.kind == "cuda":  # vLLM's CPU build has no executor over several machines
        tensor, stages = demand.divided(sizes[-1])
        over = [Placement(tensor, stages * n, nodes=n) for n in range(2, len(nodes) + 1)]
    return [*shared, *(p for p in (*within, *over) if p.pipeline_parallel <= (demand.layers or p.pipeline_parallel))]


def _nowhere(demand: Demand, fleet: Fleet) -> InputError:
    """The message for a model that fits no machine: the closest miss, in GiB a device."""
    needed = demand.options.tensor_parallel * demand.options.pipeline_parallel
    misses = []
    for nodes in fleet.families().values():
        for placement in candidates(demand, nodes):
            if placement.per_node <= nodes[0].devices and placement.nodes <= len(nodes):
                node = max(nodes, key=lambda n: n.memory)
                room = int(placement.share * node.memory * ROOM)
                misses.append((demand.memory(node.kind, placement.devices) - room, placement, node, room))
    if not misses:
        return InputError(
            f"{demand.name} asks for {needed} devices, there are {fleet.devices} ({', '.join(fleet.families())}): "
            "lower tensor_parallel or pipeline_parallel"
        )
    missing, placement, node, room = min(misses, key=lambda m: m[0])
    total = demand.memory(node.kind, placement.devices) * placement.devices
    return InputError(
        f"{demand.name} needs {total / GIB:.1f} GiB on {placement.devices} device(s) in {demand.dtype}, {room / GIB:.1f} GiB "
        f"are free on each ({node.card}): {missing / GIB:.1f} GiB a device are missing; use a smaller dtype, quantization, "
        "or more devices"
    )
