"""What is computed of sweeps that don't know the true times: never more than what a real one does."""

from pathlib import Path

import pytest
import schedule_blind as program

from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import Job
from evaluator.sweep.planning.placement import Placement
from evaluator.sweep.planning.schedule import schedule
from evaluator.sweep.planning.simulation import makespan, simulate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def job(name: str, load: float, score: float) -> Job:
    return Job(name, (Allocation("a", Placement(), load, score),))


@pytest.mark.parametrize(("ratio", "expected"), [(1.0, 1), (1.05, 1), (1.5, 0)])
def test_who_must_choose_before_anything_is_known_is_wrong_once(ratio: float, expected: int) -> None:
    """Three devices, loads of 10 s, and either model may be the one that takes 20 s: it needs two of them to end at 20 s.

    With two for the one and one for the other, the second disturbance ends at 30 s.
    """
    true = [[job("m", 10, 20), job("n", 10, 10)], [job("m", 10, 10), job("n", 10, 20)]]
    found = program.exceeded(true, {"a": [3]}, [20 * ratio] * 2)
    assert program.math.ceil(found - 1e-6) == expected


@pytest.mark.parametrize("seed", range(3))
def test_what_a_real_sweep_reaches_is_not_said_to_be_impossible(seed: int) -> None:
    on = program.fleet(16, True)
    families = {name: [node.devices for node in nodes] for name, nodes in on.families().items()}
    jobs = program.make_jobs(9, on, 1, seed)
    true = program.disturbances(jobs, 4, seed)
    plan = schedule(jobs, families, tries=10)
    ends = [makespan(simulate(jobs, families, plan.lines, times, plan.prices)) for times in true]
    assert program.exceeded(true, families, ends) == pytest.approx(0, abs=1e-6)
    least = [min(allocation.load for one in times for allocation in one.allocations) for times in true]
    assert program.exceeded(true, families, least) == pytest.approx(4), "nobody ends before anything has loaded"
