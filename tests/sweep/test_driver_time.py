"""A plan knows its driver: one process, whatever the number of devices."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.scoring.driver import Prepared
from evaluator.scoring.failures import Failures
from evaluator.sweep.function import plan_file
from evaluator.sweep.hardware import parse_fleet
from evaluator.sweep.planning import plan as planning
from evaluator.sweep.planning.driver_time import PROGRAM_TIME, ProgramTime
from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import Job
from evaluator.sweep.planning.placement import Placement
from evaluator.sweep.planning.plan import Plan
from evaluator.sweep.planning.simulation import makespan, simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTHING = ProgramTime(request=0, model=0, commit=0, worker=0)


@pytest.mark.parametrize(
    ("program", "ends"),
    [
        (NOTHING, 10 + 100),
        (replace(NOTHING, model=2), 2 + 10 + 100),
        (replace(NOTHING, worker=1e-3), 10 + 100 + 50),  # the device waits while its worker assembles 50,000 answers
        (replace(NOTHING, request=1e-3), 10 + 100),  # the driver needs 50 s, beside the device
        (replace(NOTHING, request=8e-3), 10 + 400),  # the device waits for the driver
        (replace(NOTHING, request=8e-3, commit=1, every=5), 10 + 500),  # which has four fifths of its time for requests
    ],
)
def test_a_replica_waits_for_its_driver_and_its_own_cpu(program: ProgramTime, ends: float) -> None:
    allocation = Allocation("a", Placement(), load=10, score=100)
    job = Job("m", (allocation,), requests=50_000)
    assert makespan(simulate([job], {"a": [1]}, {"a": [("m", allocation)]}, program=program)) == pytest.approx(ends)


def test_one_driver_is_shared_by_all_models() -> None:
    """Each would take 200 s of the driver in 100 s of its device: together 400 s, and half of the speed for the last 2 s.

    The second one loads 2 s later (the driver starts one after the other): it has the driver to itself for its rest.
    """
    jobs = [Job(name, (Allocation("a", Placement(), load=10, score=100),), requests=100_000) for name in ("m", "n")]
    program = replace(NOTHING, model=2, request=2e-3)
    ends = {
        slot.job: slot.end
        for slot in simulate(jobs, {"a": [1, 1]}, {"a": [(job.name, job.allocations[0]) for job in jobs]}, program=program)
    }
    # From 12 s on m alone: 1/200 a second. From 14 s on each 1/400: m has 0.99 left, 396 s. n then has 0.01 left, 2 s.
    assert ends == {"m": pytest.approx(14 + 396), "n": pytest.approx(14 + 396 + 2)}


@pytest.mark.parametrize(("makespan", "bound"), [(100.0, False), (6.0, True)])
def test_a_plan_names_its_driver_where_that_is_the_limit(makespan: float, bound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PROGRAM_TIME", replace(NOTHING, request=1e-3, model=0.5))
    needs: Any = [SimpleNamespace(requests=2500, forwards=1), SimpleNamespace(requests=2500, forwards=1)]
    done: Any = SimpleNamespace(requests=9999, forwards=0)
    schedule: Any = SimpleNamespace(makespan=makespan / 2, slots=("one",))
    fleet = parse_fleet("1x8xH100-80")
    plan = Plan(Prepared((), (), Failures()), fleet, (*needs, done), schedule, startup=3.0, makespan=makespan)
    assert plan.driver_seconds == 2 * 2500 * 1e-3 + 2 * 0.5
    assert plan.seconds == 3.0 + makespan
    assert plan.driver_bound is bound
    assert replace(plan, schedule=SimpleNamespace(makespan=0.0, slots=())).seconds == 0.0  # type: ignore[arg-type]


@pytest.mark.slow
def test_256_devices_do_not_wait_for_their_driver(data_dir: Path) -> None:
    """EuroGEST on 24 models: 1.8 million requests."""
    models = EXAMPLES / "eurogest_models.json"
    plan, _ = plan_file(EXAMPLES / "eurogest.toml", data=data_dir, fleet="32x8xH100-80", configurations=models)
    asked = sum(need.requests for need in plan.needs)
    assert asked > 24 * 70_000
    assert plan.driver_seconds > PROGRAM_TIME.request * asked
    assert plan.makespan <= 1.1 * plan.schedule.bound
