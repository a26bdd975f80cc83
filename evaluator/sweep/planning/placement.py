"""The devices of one replica: what the plan chose, and what the engine is told of it. Pure."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from evaluator_serving.engine import EngineOptions


@dataclass(frozen=True, slots=True)
class Placement:
    """How one replica of a model lies on devices.

    Attributes:
        tensor_parallel, pipeline_parallel: vLLM's sizes.
        spread: devices that the layers are laid over by an engine without those sizes (transformers).
        nodes: machines; with several, each holds whole pipeline stages, so that only they talk over the network.
        share: the part of its device that a replica on one device takes, at most 1.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    spread: int = 1
    nodes: int = 1
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.pipeline_parallel % self.nodes:
            raise ValueError(f"{self.pipeline_parallel} pipeline stages can't be divided evenly among {self.nodes} nodes")
        if self.share != 1.0 and self.devices != 1:
            raise ValueError("only a replica on a single device can use a share of it")

    @property
    def devices(self) -> int:
        """Devices of one replica over all its machines."""
        return self.tensor_parallel * self.pipeline_parallel * self.spread

    @property
    def per_node(self) -> int:
        """Devices of one replica on each of its machines."""
        return self.devices // self.nodes

    def __str__(self) -> str:
        """For people: `tp 8 × pp 2`, `1/8` of a device, `spread 4`."""
        if self.share != 1.0:
            return f"1/{round(1 / self.share)}"
        if self.spread > 1:
            return f"spread {self.spread}"
        sizes = [f"{word} {n}" for word, n in (("tp", self.tensor_parallel), ("pp", self.pipeline_parallel)) if n > 1]
        return " × ".join(sizes) or "1"

    def options(self, asked: EngineOptions) -> EngineOptions:
        """The engine's options with these sizes."""
        sizes = {name: value for name, value in asdict(self).items() if name != "share"}
        return replace(asked, **sizes)

    def record(self) -> dict[str, Any]:
        """What the run's record says of it."""
        return {**self.options(EngineOptions()).sizes(), "share": self.share}

    def bundles(self, *, cuda: bool) -> list[dict[str, float]]:
        """Ray's bundles.

        On one machine a single bundle holds all devices, and the engine starts its own processes on them. Over several
        machines vLLM's Ray executor wants one bundle per device; the first bundle is the replica's own process, which has none.
        """
        if not cuda:
            return [{"CPU": float(self.devices)}]
        if self.nodes == 1:
            return [{"CPU": 1.0, "GPU": self.devices * self.share}]
        return [{"CPU": 1.0}, *({"GPU": 1.0} for _ in range(self.devices))]

    def bundle_nodes(self) -> list[int]:
        """For each of the GPU bundles, which of the replica's machines it belongs on (0 to nodes - 1)."""
        if self.nodes == 1:
            return [0]
        return [0, *(device // self.per_node for device in range(self.devices))]
