"""The Ray actor of a replica, and what else a sweep runs on its machines."""

import contextlib
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from evaluator.scoring.worker import Load, Worker, wrap_errors
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.memory import Held
from evaluator_serving.models import resolving
from evaluator_serving.models.source import ModelSource
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.weights.hub import HubModel


class RayWorker(Worker):
    """The Ray actor behind a `RayReplica`: holds one loaded model. Its methods run one after the other."""

    def __init__(self, access: HubAccess | None = None) -> None:
        super().__init__()
        self._access = access or HubAccess()
        self._access.use()
        self._held = Held()
        self._keepers: list[Any] = []
        self.node, self.machine = _here()

    def fetch(self, load: Load) -> None:
        """As a worker does."""
        self._held.remember()
        super().fetch(load)

    def close(self) -> bool:
        """As a worker does; what the engine held must have come back before this process may take another model.

        False also where a model's own code has run: what it changed in libraries would change the next model's numbers.
        """
        own_code = self._source is not None and self._source.code is not None
        try:
            super().close()
        finally:
            self._keepers.clear()
        return self._held.is_back() and not own_code

    def spread(self, source: ModelSource, options: EngineOptions) -> None:
        """Have the weights on this replica's other machines too: the engine's own processes there read the same path."""
        if options.nodes == 1:
            return
        bundles = ray.util.placement_group_table(ray.util.get_current_placement_group())["bundles_to_node_id"]
        for node in sorted(set(bundles.values()) - {self.node}):
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=there)
            self._keepers.append(keeper.remote(self._access))  # it ends with this process
        try:
            for path, machine in ray.get([keeper.keep.remote(source) for keeper in self._keepers]):
                if path != str(source.path):
                    what = f"its weights are at {source.path} on {self.machine} and at {path} on {machine}"
                    raise InputError(f"model {source.spec}: {what}: set the same HF_HOME on both")
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None


class Keeper:
    """Weights on another machine of a replica that lies over several: they are there, and not evicted while this lives."""

    def __init__(self, access: HubAccess) -> None:
        access.use()
        self._weights = contextlib.ExitStack()

    def keep(self, source: ModelSource) -> tuple[str, str]:
        """Fetch or find the weights. Returns their path and this machine's name."""
        with wrap_errors():
            return str(self._weights.enter_context(resolving.weights_here(source, _here()[1])).path), _here()[1]


def _here() -> tuple[str, str]:
    """Ray's id of this machine, and its name in messages (Ray's address of it); both empty outside of a cluster."""
    if not ray.is_initialized():
        return "", ""
    own = str(ray.get_runtime_context().get_node_id())
    address = next((node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == own), "")
    return own, f"node {address}"


def ahead(origin: HubModel | Path | None, access: HubAccess, keep: frozenset[str]) -> int:
    """`resolving.ahead` in a process of Ray's own, which knows nothing of the hub yet."""
    access.use()
    return resolving.ahead(origin, keep)
