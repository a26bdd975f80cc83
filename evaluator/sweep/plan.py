"""The plan of a sweep: what each model needs, how it is placed and how long it takes, before anything is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaluator.run.driver import Prepared
from evaluator.run.failures import Failures
from evaluator.run.prepare import PreparedModel
from evaluator.sweep.fit import Demand, Way, ways
from evaluator.sweep.hardware import Fleet
from evaluator.sweep.job import Job
from evaluator.sweep.schedule import Schedule, schedule
from evaluator_serving.registry import engine_class
from evaluator_serving.rows import merge


@dataclass(frozen=True, slots=True)
class Needs:
    """What one model needs and how much there is to do.

    Attributes:
        demand: its sizes, and the forward tokens after de-duplication, pending ones only.
        forwards: forward passes, counted likewise.
        several: candidates that are several tokens under this tokenizer, as text, with their token counts.
        ways: how it can run on this fleet.
    """

    demand: Demand
    forwards: int
    several: tuple[tuple[str, int], ...]
    ways: tuple[Way, ...]

    @property
    def name(self) -> str:
        """The model's name in the run."""
        return self.demand.name


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole sweep's plan; `ready` is what is left of it where a model could not be planned."""

    ready: Prepared
    fleet: Fleet
    needs: tuple[Needs, ...]
    schedule: Schedule

    def cost(self, price: float) -> float:
        """What the sweep costs at `price` per device-hour, all devices held until the end."""
        return price * self.fleet.devices * self.schedule.makespan / 3600

    def again(self, fleet: Fleet, left: Sequence[str]) -> tuple[list[Job], Schedule]:
        """Jobs and schedule of the models in `left` on a fleet that has changed; a model that no longer fits has no job."""
        jobs = []
        for need in self.needs:
            caught = Failures()
            with caught.of(need.name):
                if need.name in left:
                    jobs.append(Job(need.name, ways(need.demand, fleet)))
        return jobs, _schedule(jobs, fleet)


def model_needs(model: PreparedModel, fleet: Fleet, throughput: float | None = None) -> Needs:
    """Sizes and ways of one model. Raises InputError, with the number missing, if it doesn't fit.

    `throughput` is in forward tokens a second of a one-billion-parameter model on one device; None takes the card's own.
    """
    options = model.spec.options
    parameters = model.source.parameters
    pending = [item for item in model.encoded if item.request not in model.answered]
    merged = merge(pending)
    longest = max((row.length for row in merged.rows), default=0)
    config = model.source.config.get_text_config()
    several: dict[str, int] = {}
    for item in pending:
        for candidate in item.candidates:
            if len(candidate.tokens) > 1 and len(several) < 1000:
                several[" ".join(map(str, candidate.tokens))] = len(candidate.tokens)
    demand = Demand(
        name=model.name,
        engine=model.info.engine,
        dtype=model.info.dtype,
        parameters=parameters,
        weights=engine_class(model.info.engine).weight_bytes(parameters, options),
        buffers=int(0.64 * longest * (getattr(config, "vocab_size", 0) or 0)),
        heads=getattr(config, "num_attention_heads", 1) or 1,
        tokens=sum(row.length for row in merged.rows),
        options=options,
        kv_heads=_kv_heads(config),
        layers=getattr(config, "num_hidden_layers", 0) or 0,
    )
    return Needs(demand, len(merged.rows), tuple(several.items()), ways(demand, fleet, throughput))


def _kv_heads(config: Any) -> int:
    """Heads of keys and values by the names that configurations have for them, 0 where they don't say (as many as others)."""
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1
    names = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num")
    return next((value for name in names if isinstance(value := getattr(config, name, None), int)), 0)


def make_plan(ready: Prepared, fleet: Fleet, throughput: float | None = None) -> Plan:
    """Sizes, placement and times of a sweep. Raises InputError for a model that doesn't fit the fleet."""
    errors = Failures(ready.errors)
    needs: dict[str, Needs] = {}
    for model in ready.models:
        with errors.of(model.name, refuse=True):
            needs[model.name] = model_needs(model, fleet, throughput)
    if errors and not needs:
        raise errors.told()
    left = replace(ready, models=tuple(model for model in ready.models if model.name in needs), errors=errors)
    jobs = [Job(need.name, need.ways) for need in needs.values() if need.forwards]
    return Plan(left, fleet, tuple(needs.values()), _schedule(jobs, fleet))


def _schedule(jobs: Sequence[Job], fleet: Fleet) -> Schedule:
    return schedule(jobs, {family: [node.devices for node in nodes] for family, nodes in fleet.families().items()})
