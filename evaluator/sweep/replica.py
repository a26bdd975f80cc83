"""A model replica: the Ray actor that holds one loaded engine, and after it the next one."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from evaluator.run.score import Scored, score_chunk, start_record
from evaluator.sweep.fit import Way
from evaluator_serving.checks.verify import needs_weights, verify_engine
from evaluator_serving.engine import DeviceKind, Engine, EngineOptions
from evaluator_serving.errors import EngineError, InputError, in_words
from evaluator_serving.memory import Held
from evaluator_serving.models import resolving
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine
from evaluator_serving.rows import Chunk, Row, Workload
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.weights.hub import HubModel


@dataclass(frozen=True, slots=True)
class Load:
    """What a replica is to load: the engine's arguments (`rows` are some of the run's own), and whether to verify it."""

    engine: str
    source: ModelSource
    options: EngineOptions
    rows: tuple[Row, ...]
    workload: Workload | None
    verify: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded replica.

    Attributes:
        device_kind, details: the engine's own, the latter for the run's record.
        verified: how it was verified, False where it wasn't and should be, None where it is the oracle.
        seconds: what the start took, by part.
        process: the process's id; node: Ray's id of its machine; reused: whether it had held another model before.
        moment: `time.monotonic()` of the driver when it heard of it.
    """

    device_kind: DeviceKind
    details: dict[str, Any]
    verified: str | bool | None
    seconds: dict[str, float] = field(default_factory=dict)
    process: int = 0
    node: str = ""
    reused: bool = False
    moment: float = 0.0

    def here(self) -> Self:
        """With the driver's moment of now."""
        return replace(self, moment=time.monotonic())

    def record(self, way: Way, number: int, first_answer: float) -> dict[str, Any]:
        """What run.json says of this start; `first_answer`: seconds from asking to the first stored chunk."""
        seconds = {**self.seconds, "first_answer": first_answer}
        return start_record(number, way.family, way.placement.record(), seconds, reused=self.reused)


class Replica:
    """One loaded model. Made into a Ray actor by `pool`; its methods run one after the other."""

    def __init__(self, access: HubAccess | None = None) -> None:
        self._access = access or HubAccess()
        self._access.use()
        self._engine: Engine | None = None
        self._held = Held()
        self._weights = contextlib.ExitStack()
        self._keepers: list[Any] = []
        self._source: ModelSource | None = None
        self._fetched = 0.0
        self._reused = False

    def fetch(self, load: Load) -> bool:
        """Bring the weights of what is to be loaded to this machine, the engine before it closed first.

        Returns False, with nothing fetched, where the memory that the one before held has not come back.
        Raises InputError or EngineError, as all methods do: what else is thrown may not survive the way to the driver.
        """
        with told():
            self._reused = self._engine is not None
            if self._engine is not None:
                self._engine.close()
                self._engine = None
                self._weights.close()  # they may be evicted now
                self._keepers.clear()
                if not self._held.is_back():
                    return False
            self._held.remember()
            begun = time.perf_counter()
            self._source = load.source
            if needs_weights(load.engine, load.source, load.options, verify=load.verify):
                self._source = self._weights.enter_context(resolving.weights_here(load.source, _machine()))
                if load.options.nodes > 1:
                    self._keep_elsewhere(self._source)
            self._fetched = time.perf_counter() - begun
            return True

    def _keep_elsewhere(self, source: ModelSource) -> None:
        """Have the weights on this replica's other machines too: the engine's own processes there read the same path."""
        import ray
        from ray.exceptions import RayTaskError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        bundles = ray.util.placement_group_table(ray.util.get_current_placement_group())["bundles_to_node_id"]
        for node in sorted(set(bundles.values()) - {ray.get_runtime_context().get_node_id()}):
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=there)
            self._keepers.append(keeper.remote(self._access))  # it ends with this process
        try:
            for path, machine in ray.get([keeper.keep.remote(source) for keeper in self._keepers]):
                if path != str(source.path):
                    what = f"its weights are at {source.path} on {_machine()} and at {path} on {machine}"
                    raise InputError(f"model {source.spec}: {what}: set the same HF_HOME on both")
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None

    def load(self, load: Load) -> Loaded:
        """Load what was fetched into an engine, and verify it on some of the run's rows."""
        with told():
            return replace(self._load(load), reused=self._reused)

    def _load(self, load: Load) -> Loaded:
        source = self._source
        assert source is not None, "fetch comes first"
        begun = time.perf_counter()
        self._engine = open_engine(load.engine, source, load.options, load.rows, load.workload)
        details = self._engine.describe().details
        opened = time.perf_counter()
        verified: str | bool | None = None
        if load.engine != "transformers":
            verified = False
            if load.verify:
                verified = str(verify_engine(self._engine, source, load.options, load.rows))
        seconds = {"fetch": self._fetched, "engine": opened - begun, "verify": time.perf_counter() - opened}
        return Loaded(self._engine.device_kind, details, verified, seconds, os.getpid(), _node())

    def score(self, chunk: Chunk) -> Scored:
        """Score one chunk."""
        assert self._engine is not None, "load comes first"
        with told():
            return score_chunk(self._engine, chunk)


class Keeper:
    """Weights on another machine of a replica that lies over several: they are there, and not evicted while this lives."""

    def __init__(self, access: HubAccess) -> None:
        access.use()
        self._weights = contextlib.ExitStack()

    def keep(self, source: ModelSource) -> tuple[str, str]:
        """Fetch or find the weights. Returns their path and this machine's name."""
        with told():
            return str(self._weights.enter_context(resolving.weights_here(source, _machine())).path), _machine()


def _node() -> str:
    """Ray's id of this machine, empty outside of a cluster."""
    import ray

    return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else ""


def _machine() -> str:
    """This machine's name in messages: Ray's address of it, empty outside of a cluster."""
    import ray

    if not ray.is_initialized():
        return ""
    address = next((node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == _node()), "")
    return f"node {address}"


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turn any error, and a library's attempt to end the process, into one that says it in a line."""
    try:
        yield
    except (InputError, EngineError):
        raise
    except (Exception, SystemExit) as error:
        raise EngineError(in_words(error)) from error


def ahead(origin: HubModel | Path | None, access: HubAccess, keep: frozenset[str]) -> int:
    """`resolving.ahead` in a process of Ray's own, which knows nothing of the hub yet."""
    access.use()
    return resolving.ahead(origin, keep)
