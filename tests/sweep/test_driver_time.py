"""A plan knows its driver: one process, whatever the number of devices."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.scoring.driver import Prepared
from evaluator.scoring.failures import Failures
from evaluator.sweep.hardware import parse_fleet
from evaluator.sweep.planning import driver_time
from evaluator.sweep.planning.plan import Plan


@pytest.mark.parametrize(("makespan", "seconds", "bound"), [(10.0, 10.0 + 3.0, False), (0.5, 6.0, True)])
def test_a_sweep_takes_as_long_as_its_driver_where_that_is_longer(
    makespan: float, seconds: float, bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_time, "SECONDS_PER_REQUEST", 1e-3)
    monkeypatch.setattr(driver_time, "SECONDS_PER_MODEL", 0.5)
    needs: Any = [SimpleNamespace(requests=2500, forwards=1), SimpleNamespace(requests=2500, forwards=1)]
    done: Any = SimpleNamespace(requests=9999, forwards=0)
    schedule: Any = SimpleNamespace(makespan=makespan, slots=("one",))
    plan = Plan(Prepared((), (), Failures()), parse_fleet("1x8xH100-80"), (*needs, done), schedule, startup=3.0)
    assert plan.driver_seconds == 2 * 2500 * 1e-3 + 2 * 0.5
    assert plan.seconds == seconds
    assert plan.driver_bound is bound
    assert replace(plan, schedule=SimpleNamespace(makespan=0.0, slots=())).seconds == 0.0  # type: ignore[arg-type]
