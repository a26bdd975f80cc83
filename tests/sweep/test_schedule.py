"""Packing models onto devices."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.sweep.schedule import Job, Schedule, lower_bound, schedule

jobs_strategy = st.lists(
    st.builds(
        Job,
        name=st.uuids().map(str),
        devices=st.sampled_from([1, 1, 1, 2, 4]),
        load=st.floats(0.1, 100),
        score=st.floats(0.1, 1000),
    ),
    min_size=1,
    max_size=8,
)


def check(jobs: list[Job], devices: int, node: int, made: Schedule) -> None:
    """A schedule is valid: no device does two things at once, every replica does its share, groups stay on one node."""
    by_name = {job.name: job for job in jobs}
    for device in range(devices):
        spans = sorted((s.start, s.end) for s in made.slots if device in s.devices)
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(spans))
    for job in jobs:
        slots = [s for s in made.slots if s.job == job.name]
        assert len(slots) == made.replicas[job.name] >= 1
        for slot in slots:
            assert slot.end - slot.start == pytest.approx(job.load + job.score / len(slots))
            assert len(set(slot.devices)) == job.devices
            assert len({d // node for d in slot.devices}) == 1
    assert made.makespan == max(s.end for s in made.slots)
    assert set(by_name) == {s.job for s in made.slots}


@settings(deadline=None, max_examples=60)
@given(jobs_strategy, st.sampled_from([4, 8, 16]))
def test_schedules_are_valid_and_not_below_the_bound(jobs: list[Job], devices: int) -> None:
    made = schedule(jobs, devices, node=4)
    check(jobs, devices, 4, made)
    assert made.makespan >= made.bound * (1 - 1e-9)
    assert made.makespan <= sum(j.load + j.score for j in jobs) * (1 + 1e-9)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(0.5, 5), st.floats(0.5, 20)), min_size=1, max_size=3), st.integers(1, 3))
def test_bound_is_below_every_schedule_found_by_trying_all(times: list[tuple[float, float]], devices: int) -> None:
    """All assignments of up to `devices` replicas a job to single devices, each device running its pieces in a row."""
    jobs = [Job(str(i), 1, load, score) for i, (load, score) in enumerate(times)]
    best = float("inf")
    for counts in itertools.product(range(1, devices + 1), repeat=len(jobs)):
        pieces = [job.load + job.score / n for job, n in zip(jobs, counts, strict=True) for _ in range(n)]
        for where in itertools.product(range(devices), repeat=len(pieces)):
            ends = [0.0] * devices
            for device, length in zip(where, pieces, strict=True):
                ends[device] += length
            best = min(best, max(ends))
    assert lower_bound(jobs, devices) <= best + 1e-6


def test_hand_computed_cases() -> None:
    assert lower_bound([], 4) == 0
    # One job that loads in 10 s and scores for 80 s, four devices: four replicas of 10 + 20 s.
    assert schedule([Job("a", 1, 10, 80)], 4).makespan == pytest.approx(30)
    # A job as wide as the machine can't be split.
    assert schedule([Job("a", 4, 10, 80)], 4).makespan == pytest.approx(90)
    with pytest.raises(ValueError, match="needs 8 devices, there are 4"):
        schedule([Job("a", 8, 1, 1)], 4)
