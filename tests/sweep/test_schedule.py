"""Packing models onto fleets: bound, packing, policy and simulation."""

import itertools
import math
import random
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from evaluator.sweep.planning.bound import lower_bound
from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import Job
from evaluator.sweep.planning.placement import Placement
from evaluator.sweep.planning.policy import Machines, Policy, Progress, Running
from evaluator.sweep.planning.replan import NewPlan, Replanner
from evaluator.sweep.planning.schedule import schedule
from evaluator.sweep.planning.simulation import Slot, makespan, simulate

Families = Mapping[str, Sequence[int]]
MIXED = {"a": [4, 4], "b": [2, 1, 1]}
PLACEMENTS = {
    "a": [Placement(), Placement(share=0.25), Placement(2), Placement(4), Placement(4, 2, nodes=2)],
    "b": [Placement(), Placement(share=0.5), Placement(spread=2), Placement(1, 3, nodes=3)],
}


def allocation(load: float, score: float, family: str = "a", placement: Placement | None = None) -> Allocation:
    return Allocation(family, placement or Placement(), load, score)


def job(name: str, load: float, score: float, family: str = "a", placement: Placement | None = None) -> Job:
    return Job(name, (allocation(load, score, family, placement),))


@st.composite
def jobs_on_mixed(draw: st.DrawFn) -> list[Job]:
    jobs = []
    for number in range(draw(st.integers(1, 8))):
        places = draw(st.lists(st.sampled_from([(f, p) for f in MIXED for p in PLACEMENTS[f]]), min_size=1, unique=True))
        allocations = [Allocation(f, p, draw(st.floats(0, 100)), draw(st.floats(0.1, 1000))) for f, p in places]
        jobs.append(Job(f"m{number}", tuple(allocations)))
    return jobs


def disturbed(jobs: Sequence[Job], seed: int) -> list[Job]:
    dice = random.Random(seed)
    return [
        Job(
            j.name,
            tuple(
                replace(w, load=w.load * dice.uniform(0.7, 1.3), score=w.score * dice.uniform(0.7, 1.3)) for w in j.allocations
            ),
        )
        for j in jobs
    ]


def check(jobs: Sequence[Job], families: Families, slots: Sequence[Slot], *, preempted: bool = False) -> None:
    """A schedule is valid: devices aren't used beyond what they are, replicas lie as placed, all work is done, once.

    A model's replicas end together, but for those that may be `preempted`.
    """
    used = defaultdict(list)
    for slot in slots:
        placement = slot.allocation.placement
        assert len(set(slot.nodes)) == len(slot.nodes) == placement.nodes
        assert len(slot.devices) == placement.devices
        for at, machine in enumerate(slot.nodes):
            devices = slot.devices[at * placement.per_node : (at + 1) * placement.per_node]
            assert len(set(devices)) == placement.per_node
            assert all(0 <= device < families[slot.allocation.family][machine] for device in devices)
            for device in devices:
                used[slot.allocation.family, machine, device].append((slot.start, slot.end, placement.share))
    for spans in used.values():
        for moment, _, _ in spans:
            assert sum(share for start, end, share in spans if start <= moment < end) <= 1
    for one in jobs:
        mine = [slot for slot in slots if slot.job == one.name]
        true = {(w.family, w.placement): w for w in one.allocations}
        times = [(true[s.allocation.family, s.allocation.placement], s) for s in mine]
        done = sum(max(0.0, s.end - s.start - w.load) / w.score for w, s in times)
        assert done == pytest.approx(1, abs=1e-6)
        assert preempted or len({s.end for s in mine}) == 1
    assert {slot.job for slot in slots} == {one.name for one in jobs}


# --- schedules ----------------------------------------------------------------------------------------------------


def test_a_model_that_is_fast_on_many_devices_is_not_put_where_it_is_cheap() -> None:
    """One after the other, each on its fastest way, they take 56 + 1 + 1 seconds."""
    first = (
        allocation(93, 201, "a", Placement(share=0.25)),
        allocation(55, 1, "b", Placement(spread=2)),
        allocation(0, 62, "b", Placement(1, 3, nodes=3)),
    )
    second = (
        allocation(49, 9, "a", Placement(share=0.25)),
        allocation(0, 1, "b", Placement(1, 3, nodes=3)),
        allocation(16, 1, "b", Placement(spread=2)),
    )
    jobs = [Job("m0", first), Job("m1", second), Job("m2", (allocation(0, 1),))]
    assert schedule(jobs, MIXED, tries=5).makespan <= 58


@settings(deadline=None, max_examples=12)
@given(jobs_on_mixed(), st.integers(0, 99))
def test_schedules_are_valid_and_not_below_the_bound(jobs: list[Job], seed: int) -> None:
    made = schedule(jobs, MIXED, tries=5)
    check(jobs, MIXED, made.slots)
    assert made.makespan == max(s.end for s in made.slots)
    assert made.makespan >= made.bound * (1 - 1e-6)
    assert made.makespan <= sum(min(w.load + w.score for w in j.allocations) for j in jobs) * (1 + 1e-6)
    assert sum(made.replicas(j.name) for j in jobs) == len(made.slots)
    true = disturbed(jobs, seed)
    slots = simulate(jobs, MIXED, made.lines, true)
    check(true, MIXED, slots)
    assert makespan(slots) >= lower_bound(true, MIXED) * (1 - 1e-6)
    mended = simulate(jobs, MIXED, made.lines, true, made.prices)
    check(true, MIXED, mended, preempted=True)
    assert makespan(mended) >= lower_bound(true, MIXED) * (1 - 1e-6)


def test_a_sweep_of_many_models_comes_near_the_bound() -> None:
    dice = random.Random(1)
    jobs = []
    for number in range(30):
        size = 1.2**number
        allocations = [allocation(40 + size / 4, 5 * size, "a"), allocation(40 + size / 4, 15 * size, "b")]
        if number < 15:
            allocations.append(allocation(40 + size / 4, max(20, 20 * size), "a", Placement(share=0.25)))
        jobs.append(Job(f"m{number}", tuple(replace(w, score=w.score * dice.uniform(0.7, 1.3)) for w in allocations)))
    made = schedule(jobs, {"a": [8], "b": [1] * 8}, tries=60)
    check(jobs, {"a": [8], "b": [1] * 8}, made.slots)
    assert made.makespan <= 1.1 * made.bound


def test_the_same_models_get_the_same_plan() -> None:
    jobs = [Job(f"m{n}", (allocation(5, 10 * n + 1, "a"), allocation(5, 20 * n + 1, "b"))) for n in range(9)]
    assert schedule(jobs, MIXED, tries=20) == schedule(jobs, MIXED, tries=20)


@pytest.mark.parametrize(
    ("jobs", "families", "seconds"),
    [
        # Loads in 10 s and scores for 80 s, four devices: four replicas of 10 + 20 s.
        ([job("m", 10, 80)], {"a": [4]}, 30),
        # As wide as the machine: can't be split.
        ([job("m", 10, 80, placement=Placement(4))], {"a": [4]}, 90),
        # Two machines' four devices each, used together.
        ([job("m", 10, 80, placement=Placement(4, 2, nodes=2))], {"a": [4, 4]}, 90),
        # Both families at once: after the load 1/100 + 1/200 a second.
        ([Job("m", (allocation(10, 100, "a"), allocation(10, 200, "b")))], {"a": [1], "b": [1]}, 10 + 200 / 3),
        # Eight that take an eighth of a device each run side by side.
        ([job(f"m{n}", 10, 30, placement=Placement(share=0.125)) for n in range(8)], {"a": [1]}, 40),
        # The small one first, then the large one's second replica (from 30, loaded at 40, when 70 of its 100 s are left).
        ([job("large", 10, 100), job("small", 10, 20)], {"a": [2]}, 75),
        # Each where it is at its best.
        (
            [
                Job("m", (allocation(0, 40, "a"), allocation(0, 10, "b"))),
                Job("n", (allocation(0, 10, "a"), allocation(0, 80, "b"))),
            ],
            {"a": [1], "b": [1]},
            10,
        ),
    ],
)
def test_hand_computed_schedules_that_reach_the_bound(jobs: list[Job], families: Families, seconds: float) -> None:
    made = schedule(jobs, families)
    check(jobs, families, made.slots)
    assert made.bound == pytest.approx(seconds, rel=2e-4)
    assert made.makespan == pytest.approx(seconds, rel=1e-6)


def test_nothing_to_do_takes_no_time() -> None:
    assert schedule([], {"a": [4]}).makespan == 0
    assert lower_bound([], {"a": [4]}) == 0
    assert schedule([job("m", 0, 0)], {"a": [4]}).makespan == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("scores", "devices", "seconds"),
    [
        ([20.0, 20.0, 20.0], 1, 10 + 60),  # one replica loads once, and scores them one after the other
        ([40.0, 40.0], 2, 10 + 40),  # each device loads
        ([10.0, 70.0], 2, 10 + 40),  # the replica of the first helps with the second when it is done
    ],
)
def test_what_is_alike_is_loaded_once_on_a_device(scores: list[float], devices: int, seconds: float) -> None:
    jobs = [replace(job(f"m{number}", 10, score), alike="m0") for number, score in enumerate(scores)]
    made = schedule(jobs, {"a": [devices]})
    assert made.bound == pytest.approx(seconds, rel=2e-4)
    assert made.makespan == pytest.approx(seconds, rel=1e-6)
    apart = schedule([replace(one, alike="") for one in jobs], {"a": [devices]})
    assert apart.makespan >= 10 * len(scores) / devices + sum(scores) / devices - 1e-6
    for one in jobs:  # all work is done, once
        mine = [slot for slot in made.slots if slot.job == one.name]
        loads = sum(slot.start == 0 for slot in mine)
        assert sum(slot.end - slot.start for slot in mine) == pytest.approx(10 * loads + one.allocations[0].score)


def test_models_that_cannot_run_in_the_same_ways_load_apart() -> None:
    jobs = [Job("m", (allocation(10, 20),), "m"), Job("n", (allocation(10, 20, placement=Placement(2)),), "m")]
    assert schedule(jobs, {"a": [2]}).makespan == pytest.approx((10 + 20 / 2) + (10 + 20))  # m on both devices, then n


# --- the bound ----------------------------------------------------------------------------------------------------


def best_of_all(jobs: Sequence[Job], families: Families) -> float:
    """The shortest time of all choices of replicas, one machine a family, each with the best shares of work."""
    device = {(family, d): i for i, (family, d) in enumerate((f, d) for f in families for d in range(families[f][0]))}
    options = [
        (number, w, [device[w.family, d] for d in group])
        for number, one in enumerate(jobs)
        for w in one.allocations
        for group in itertools.combinations(range(families[w.family][0]), w.placement.devices)
    ]
    best = math.inf
    for picked in itertools.product([False, True], repeat=len(options)):
        chosen = [option for option, yes in zip(options, picked, strict=True) if yes]
        if {number for number, _, _ in chosen} != set(range(len(jobs))):
            continue
        # Unknown: the part of each replica, and the time. On each device loads and parts take no longer than that.
        spent, loads = np.zeros((len(device), len(chosen) + 1)), np.zeros(len(device))
        whole = np.zeros((len(jobs), len(chosen) + 1))
        for at, (number, w, devices) in enumerate(chosen):
            spent[devices, at] = w.score
            loads[devices] += w.load
            whole[number, at] = 1
        spent[:, -1] = -1
        found = linprog([0] * len(chosen) + [1], A_ub=spent, b_ub=-loads, A_eq=whole, b_eq=np.ones(len(jobs)))
        best = min(best, found.fun)
    return float(best)


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_below_the_best_of_all_schedules(seed: int) -> None:
    dice = random.Random(seed)
    families = [{"a": [3]}, {"a": [2], "b": [1]}, {"a": [1], "b": [1]}, {"a": [2]}][seed % 4]
    jobs = []
    for number in range(3 if seed % 4 == 2 else 2):
        load, score = dice.uniform(0.5, 8), dice.uniform(0.5, 20)
        allocations = [allocation(load, score * dice.uniform(0.5, 2), family) for family in families]
        if seed % 4 == 3:  # also two devices at a time
            allocations.append(allocation(load * dice.uniform(0.5, 1), score * dice.uniform(0.4, 0.8), "a", Placement(2)))
        jobs.append(Job(f"m{number}", tuple(allocations)))
    best = best_of_all(jobs, families)
    bound = lower_bound(jobs, families)
    assert 0.6 * best <= bound <= best * (1 + 1e-6)
    assert schedule(jobs, families).makespan >= best * (1 - 1e-6)


# --- packing ------------------------------------------------------------------------------------------------------


# --- the policy ---------------------------------------------------------------------------------------------------


def always(_: Allocation) -> bool:
    return True


def test_the_first_in_line_waits_and_isnt_overtaken() -> None:
    wide, narrow = allocation(10, 50, placement=Placement(4)), allocation(10, 50)
    policy = Policy.of([Job("w", (wide,)), Job("n", (narrow,))], {"a": [("w", wide), ("n", narrow)]})
    progress = {"w": Progress(), "n": Progress()}
    assert policy.next("a", progress, 0, lambda w: w.placement.devices == 1) is None
    assert policy.next("a", progress, 0, always) == ("w", wide)
    policy.started("a", ("w", wide))
    progress["w"].replicas = 1
    assert policy.next("a", progress, 0, always) == ("n", narrow)


def test_replicas_that_have_become_useless_are_passed_over() -> None:
    first, second = job("m", 10, 50), job("n", 10, 50)
    policy = Policy.of(
        [first, second], {"a": [("gone", first.allocations[0]), ("m", first.allocations[0]), ("n", second.allocations[0])]}
    )
    progress = {"m": Progress(remaining=0.1, at=0, rate=0.02, replicas=1), "n": Progress()}  # m ends in 5 s, a load is 10
    assert policy.next("a", progress, 0, always) == ("n", second.allocations[0])
    assert [name for name, _ in policy.lines["a"]] == ["n"]


def test_idle_devices_take_what_waits_elsewhere_if_it_ends_in_time() -> None:
    runs, waits = job("runs", 10, 100), Job("waits", (allocation(10, 20, "a"), allocation(10, 60, "b")))
    policy = Policy.of([runs, waits], {"a": [("waits", waits.allocations[0])], "b": []})
    progress = {"runs": Progress(remaining=1.0, at=0, rate=0.01, replicas=1), "waits": Progress()}
    assert policy.next("b", progress, 30, always) == ("waits", waits.allocations[1])  # would end at 100, as the other does
    assert policy.next("b", progress, 31, always) is None


def test_idle_devices_help_the_last_one_if_that_pays() -> None:
    first, last = (Job(name, (allocation(10, 100), allocation(10, 50, placement=Placement(2)))) for name in ("first", "last"))
    policy = Policy.of([first, last], {"a": []})
    progress = {"first": Progress(1, 0, 0.02, [], 1), "last": Progress(1, 0, 0.01, [], 1)}  # end at 50 and at 100
    assert policy.next("a", progress, 0, always) == ("last", last.allocations[1])
    assert policy.next("a", progress, 0, lambda w: w.placement.devices == 1) == ("last", last.allocations[0])
    assert policy.next("a", progress, 88, always) == ("last", last.allocations[1])  # 12 s are left, a load is 10
    assert policy.next("a", progress, 90, always) is None


def test_replicas_lie_on_the_fullest_machines() -> None:
    machines = Machines.of([2, 2, 4])
    eighth, half = allocation(1, 1, placement=Placement(share=0.125)), allocation(1, 1, placement=Placement(share=0.5))
    assert machines.take(eighth) == ((0,), (0,))
    assert machines.take(half) == ((0,), (0,))  # beside it
    assert machines.take(half) == ((0,), (1,))
    assert machines.take(allocation(1, 1, placement=Placement(2, 2, nodes=2))) == ((1, 2), (0, 1, 0, 1))
    assert machines.take(allocation(1, 1, placement=Placement(4))) is None
    machines.give(allocation(1, 1, placement=Placement(2, 2, nodes=2)), (1, 2), (0, 1, 0, 1))
    assert machines.take(allocation(1, 1, placement=Placement(4))) == ((2,), (0, 1, 2, 3))
    assert machines.idle == 3 + 4 + 16


def test_work_is_taken_from_a_job_that_is_slower_than_estimated() -> None:
    jobs = [job("m", 10, 40), job("n", 10, 40)]
    true = [job("m", 10, 90), job("n", 10, 40)]
    slots = simulate(jobs, {"a": [2]}, {"a": [(j.name, j.allocations[0]) for j in jobs]}, true)
    check(true, {"a": [2]}, slots)
    # n ends at 50, when m has done 40 of its 90 s; a replica joins, loaded at 60: 40 s of work are left for two.
    assert [(s.job, s.start, s.end) for s in slots] == [("n", 0, 50), ("m", 0, 80), ("m", 50, 80)]


# --- planned again ------------------------------------------------------------------------------------------------


def test_a_model_that_turns_out_slow_is_helped_before_the_others_have_run() -> None:
    small = [job(f"n{n:02}", 2, 19) for n in range(30)]  # three devices for 210 s
    jobs, true = [job("m", 40, 160), *small], [job("m", 40, 240), *small]
    lines = {"a": [(j.name, j.allocations[0]) for j in jobs]}
    as_planned, mended = (simulate(jobs, {"a": [4]}, lines, true, prices) for prices in (None, {"a": 1.0}))
    for slots in (as_planned, mended):
        check(true, {"a": [4]}, slots)
    # By the lines three replicas join m at 210, when nothing else is left: 30 of its 240 s are left at 250, for four.
    assert makespan(as_planned) == pytest.approx(257.5)
    # It is known at 40 that m takes 280 alone: with one more load 280 + 40 + 630 s are shared by four devices.
    assert 237.5 <= makespan(mended) < 245
    assert sorted(s.start for s in mended if s.job == "m")[:2] == [0, 42]


def test_it_is_planned_again_only_when_something_new_is_known() -> None:
    jobs = {"m": job("m", 10, 40), "n": job("n", 10, 40), "o": job("o", 10, 20)}
    replanner = Replanner(jobs, {"a": [2]}, {"a": 1.0})
    running = [Running(name, jobs[name].allocations[0], 10) for name in ("m", "n")]
    planned = Progress(1, 0, 0, [(10, 1 / 40)], 1)
    state = {"m": planned, "n": planned, "o": Progress()}
    assert replanner.replan(state, running, 0) is None  # the plan is new
    assert replanner.replan(state, running, 5) is None
    known = {**state, "m": Progress(1, 10, 1 / 40, [], 1, measured=True), "n": Progress(1, 10, 1 / 40, [], 1, measured=True)}
    loaded = [Running(name, jobs[name].allocations[0]) for name in ("m", "n")]
    # Both end at 50; the third one is all that is to start, after either.
    assert replanner.replan(known, loaded, 10) == NewPlan({"a": deque([("o", jobs["o"].allocations[0])])})
    assert 70 <= replanner.until <= 85, "shared by both devices, or on one of them"
    assert replanner.replan(known, loaded, 20) is None
    unplanned = Replanner(jobs, {"a": [2]}, {}, measured=frozenset())
    assert unplanned.replan(known, loaded, 10) is None, "there is no plan to mend"


def test_a_model_that_turns_out_fast_gives_a_replica_up_for_one_that_is_slow() -> None:
    jobs, true = [job("f", 60, 360), job("s", 60, 120)], [job("f", 60, 180), job("s", 60, 150)]
    line = [("f", jobs[0].allocations[0])] * 3 + [("s", jobs[1].allocations[0])]
    as_planned, mended = (simulate(jobs, {"a": [4]}, {"a": line}, true, prices) for prices in (None, {"a": 1.0}))
    # By the lines f ends at 120; three join s then, loaded at 180, when 30 of its 150 s are left.
    check(true, {"a": [4]}, as_planned)
    assert makespan(as_planned) == pytest.approx(187.5)
    # At 60 both are known. With two replicas f ends at 150, and s, with another one from 120 on, at 165.
    check(true, {"a": [4]}, mended, preempted=True)
    ends = [(s.job, s.start, s.end) for s in mended]
    assert ends == [("f", 0, 60), ("f", 0, 150), ("f", 0, 150), ("s", 0, 165), ("s", 60, 165)]


@pytest.mark.parametrize(("alike", "preempted"), [("", (2,)), ("f", ())])
def test_a_replica_that_goes_on_without_loading_is_kept(alike: str, preempted: tuple[int, ...]) -> None:
    """As above at 60, with a third one that has a device of its own; if it is like f, f's replicas have loaded all for it."""
    g = Job("g", (allocation(60, 10, "a"), allocation(60, 10, "b")), alike)
    jobs = {"f": replace(job("f", 60, 360), alike=alike), "g": g, "s": job("s", 60, 120)}
    loaded = [*[Running("f", jobs["f"].allocations[0])] * 3, Running("s", jobs["s"].allocations[0])]
    progress = {
        "f": Progress(1, 60, 3 / 180, [], 3, speed_ratio=2.0, measured=True),
        "g": Progress(),
        "s": Progress(1, 60, 1 / 150, [], 1, speed_ratio=0.8, measured=True),
    }
    replanner = Replanner(jobs, {"a": [4], "b": [1]}, {"a": 1.0, "b": 0.1}, measured=frozenset())
    new_plan = replanner.replan(progress, loaded, 60)
    assert new_plan is not None
    assert new_plan.preempted == preempted
