"""The plan of a sweep: what each model needs, how it is placed and how long it takes, before anything is loaded."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaluator.scoring.driver import Prepared
from evaluator.scoring.failures import Failures
from evaluator.scoring.model_setup import ModelSetup
from evaluator.scoring.summary import TokenCounts
from evaluator.sweep.benches import Speeds
from evaluator.sweep.hardware import Fleet, Node
from evaluator.sweep.planning.driver_time import PROGRAM_TIME
from evaluator.sweep.planning.fit import ROOM, Allocation, Demand, allocations, first_start
from evaluator.sweep.planning.job import Job
from evaluator.sweep.planning.placement import Placement
from evaluator.sweep.planning.schedule import Schedule, schedule
from evaluator.sweep.planning.simulation import makespan, simulate
from evaluator_serving.registry import engine_class

FREE = 0.1
"""Of its time that a driver has left over where the devices do not wait for it."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one model needs and how much there is to do.

    Attributes:
        demand: its sizes, and the forward tokens after de-duplication, pending ones only.
        requests: distinct requests, pending ones only.
        forwards: forward passes, counted likewise.
        several: as in TokenCounts.
        allocations: how it can run on this fleet.
        alike: the first model of which the same is loaded, itself where it is the first.
    """

    demand: Demand
    requests: int
    forwards: int
    several: tuple[tuple[str, int], ...]
    allocations: tuple[Allocation, ...]
    alike: str = ""

    @property
    def name(self) -> str:
        """The model's name in the run."""
        return self.demand.name

    @property
    def job(self) -> Job:
        """What the scheduler sees of it."""
        return Job(self.name, self.allocations, self.alike, self.requests)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole sweep's plan; `ready` is what is left of it where a model could not be planned.

    `speeds` is what the times rest on; `startup`: seconds that the first start in a process takes more than a later one;
    `price`: of a device-hour; `makespan`: the schedule's where the devices wait for the program (see `driver_time`).
    """

    ready: Prepared
    fleet: Fleet
    needs: tuple[Needs, ...]
    schedule: Schedule
    speeds: Speeds = field(default_factory=Speeds)
    startup: float = 0.0
    price: float | None = None
    makespan: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it is expected to take."""
        return self.startup + self.makespan if self.schedule.slots else 0.0

    @property
    def driver_seconds(self) -> float:
        """CPU seconds of the driver."""
        asked = [need.requests for need in self.needs if need.forwards]
        return PROGRAM_TIME.driver(sum(asked), len(asked))

    @property
    def driver_bound(self) -> bool:
        """Whether the devices wait for the driver much of the time."""
        return self.driver_seconds > (1 - FREE) * self.makespan > 0

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the models whose times rest on measurements, of their engine and dtype on one of the fleet's cards."""
        cards = {node.card for node in self.fleet.nodes}

        def known(demand: Demand) -> bool:
            return any(self.speeds.rates(card).tokens_s(demand.engine, demand.dtype, demand.parameters) for card in cards)

        return tuple(need.name for need in self.needs if known(need.demand))

    @property
    def cost(self) -> float | None:
        """Cost of the sweep, with all devices held until the end; None without a price."""
        return None if self.price is None else self.price * self.fleet.devices * self.seconds / 3600

    def both_fit(self, one: str, other: str, node: Node, placement: Placement) -> bool:
        """Whether two models fit on the same devices of a machine at the same time."""
        demands = [need.demand for need in self.needs if need.name in (one, other)]
        needed = sum(demand.memory(node.kind, placement.devices) for demand in demands)
        return needed <= placement.share * node.memory * ROOM

    def replan(self, fleet: Fleet, left: Sequence[str]) -> tuple[list[Job], Schedule]:
        """Jobs and schedule of the models in `left` on a fleet that has changed; a model that no longer fits has no job."""
        jobs = []
        for need in self.needs:
            caught = Failures()
            with caught.of(need.name):
                if need.name in left:
                    jobs.append(replace(need.job, allocations=allocations(need.demand, fleet, self.speeds)))
        return jobs, _schedule(jobs, fleet)


def model_needs(model: ModelSetup, counts: TokenCounts, fleet: Fleet, speeds: Speeds | None = None) -> Needs:
    """Sizes and allocations of one model. Raises InputError, with the number missing, if it doesn't fit."""
    demand = _demand(model, counts)
    return Needs(demand, counts.requests, counts.forwards, counts.several, allocations(demand, fleet, speeds))


def _demand(model: ModelSetup, counts: TokenCounts) -> Demand:
    options, source, engine = model.spec.options, model.source, model.info.engine
    config = source.config.get_text_config() if source.config else None
    return Demand(
        name=model.name,
        engine=engine,
        dtype=options.dtype,
        parameters=source.parameters,
        weights=engine_class(engine).weight_bytes(source.parameters, options),
        buffers=int(0.64 * counts.longest * (getattr(config, "vocab_size", 0) or 0)),
        heads=getattr(config, "num_attention_heads", 1) or 1,
        tokens=counts.tokens,
        options=options,
        kv_heads=_kv_heads(config),
        layers=getattr(config, "num_hidden_layers", 0) or 0,
        folder=str(source.origin) if isinstance(source.origin, Path) else "",
    )


def _kv_heads(config: Any) -> int:
    """Heads of keys and values by the names that configurations have for them, 0 where they don't say (as many as others)."""
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1
    names = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num")
    return next((value for name in names if isinstance(value := getattr(config, name, None), int)), 0)


def make_plan(ready: Prepared, fleet: Fleet, speeds: Speeds | None = None) -> Plan:
    """Sizes, placement and times of a sweep. Raises InputError for a model that doesn't fit the fleet."""
    return plan_models(ready, ((model, model.summary.counts) for model in ready.models), fleet, speeds)


def plan_models(
    ready: Prepared, models: Iterable[tuple[ModelSetup, TokenCounts]], fleet: Fleet, speeds: Speeds | None = None
) -> Plan:
    """Sizes, placement and times of these models with this much work each. Raises InputError as `make_plan` does."""
    speeds = speeds or Speeds()
    errors = Failures(ready.errors)
    needs: dict[str, Needs] = {}
    loads: list[tuple[tuple[Any, ...], str]] = []  # a key may hold options, which have no hash
    for model, counts in models:
        alike = next((first for key, first in loads if key == model.load_key), model.name)
        loads.append((model.load_key, alike))
        with errors.of(model.name, refuse=True):
            needs[model.name] = replace(model_needs(model, counts, fleet, speeds), alike=alike)
    if errors and not needs:
        raise errors.combined()
    left = replace(ready, models=tuple(model for model in ready.models if model.name in needs), errors=errors)
    return scheduled(left, fleet, tuple(needs.values()), speeds)


def scheduled(ready: Prepared, fleet: Fleet, needs: Sequence[Needs], speeds: Speeds) -> Plan:
    """The plan of models whose needs are known."""
    jobs = [need.job for need in needs if need.forwards]
    startup = max((first_start(need.demand, fleet, speeds) for need in needs), default=0.0)
    made, families = _schedule(jobs, fleet), _machines(fleet)
    taken = makespan(simulate(jobs, families, made.lines, program=PROGRAM_TIME))
    return Plan(ready, fleet, tuple(needs), made, speeds, startup, makespan=taken)


def _schedule(jobs: Sequence[Job], fleet: Fleet) -> Schedule:
    return schedule(jobs, _machines(fleet))


def _machines(fleet: Fleet) -> dict[str, list[int]]:
    """Family → devices of each of its machines."""
    return {family: [node.devices for node in nodes] for family, nodes in fleet.families().items()}
