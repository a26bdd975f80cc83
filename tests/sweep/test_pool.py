"""What the pool decides of devices whose model is done or nearly done; Ray isn't asked for anything."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.scoring.replica import ActiveReplica, LoopState, ModelState
from evaluator.scoring.worker import Loaded
from evaluator.sweep.hardware import GIB, Fleet, Node
from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import Job
from evaluator.sweep.planning.placement import Placement

pytestmark = pytest.mark.ray

NODES = [Node("cpu", "CPU worker", 1, 8 * GIB, id=name) for name in ("north", "south")]
ALLOCATION = Allocation(NODES[0].family, Placement(), load=10.0, score=100.0)
WIDE = Allocation(NODES[0].family, Placement(spread=2), load=10.0, score=100.0)


NOW = 1e6


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes: what is decided doesn't hang on how long the test takes."""
    from evaluator.sweep.on_ray import pool as module

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: NOW))


class Chunks:
    """Work of which so many chunks wait."""

    def __init__(self, waiting: int) -> None:
        self.waiting = [None] * waiting


def model(name: str, waiting: int | None = None, chunks: int = 10, weights: str = "") -> ModelState:
    """A model nobody has begun or, with `waiting`, one of which so many chunks wait."""
    made = ModelState(SimpleNamespace(name=name, encoded=(1,), load_key=weights or name))  # type: ignore[arg-type]
    if waiting is not None:
        made.work, made.chunks = Chunks(waiting), chunks  # type: ignore[assignment]
    return made


def pool(line: Sequence[tuple[str, Allocation]], *, both_fit: bool = True, prices: Mapping[str, float] | None = None) -> Any:
    from evaluator.sweep.on_ray.pool import Pool, PoolOptions

    jobs = [Job(name, (allocation,)) for name, allocation in line]
    allocations = {ALLOCATION.family: line}
    options = PoolOptions(Fleet(tuple(NODES)), jobs, allocations, prices or {}, lambda *_: ([], None), lambda *_: both_fit)  # type: ignore[arg-type, return-value]
    made = Pool(None, None, options)  # type: ignore[arg-type]
    made._cluster = SimpleNamespace(changed=lambda fleet: None)  # type: ignore[assignment]
    made._request_group = lambda start: None  # type: ignore[method-assign]
    return made


def working(on: str, at: ModelState, *, scored: int = 5, seconds: float = 45.0) -> ActiveReplica:
    """A replica that has scored so many chunks in so many seconds."""
    from evaluator.sweep.on_ray.replica import DeviceGroup, RayReplica

    class Here(DeviceGroup):
        def _process(self, allocation: Allocation) -> str:
            return "another process"

    device_group = Here(None, False, None, None)  # type: ignore[arg-type]
    device_group.replicas.append(RayReplica(ALLOCATION, device_group, f"process on {on}"))
    loaded = Loaded("cpu", {}, None, node=on)
    return ActiveReplica(at, device_group.replicas[0], 0, 0.0, loaded=loaded, loaded_at=NOW - seconds, scored=scored)


@pytest.mark.parametrize(("on", "expected"), [("north", "b"), ("south", "c"), ("elsewhere", "b")])
def test_a_process_takes_what_was_read_ahead_on_its_machine(on: str, expected: str) -> None:
    made = pool([("b", ALLOCATION), ("c", ALLOCATION)])
    made._prefetched = {"b": ("north", None), "c": ("south", None)}
    done = working(on, model("a", waiting=0))
    state = LoopState({"a": done.model, "b": model("b"), "c": model("c")}, [done])
    assignment = made.reassign(done, state, free=True)
    assert assignment.model == expected
    assert assignment.replica.actor == f"process on {on}"
    assert [name for name, _ in made._policy.lines[ALLOCATION.family]] == [name for name in ("b", "c") if name != expected]


def test_what_wants_other_devices_ends_the_process() -> None:
    done = working("north", model("a", waiting=0))
    made = pool([("b", WIDE), ("c", ALLOCATION)])
    assert made.reassign(done, LoopState({"a": done.model, "b": model("b"), "c": model("c")}, [done]), free=True) is None


@pytest.mark.parametrize(
    ("waiting", "both_fit", "expected"),
    [(0, True, ["b"]), (1, True, ["b"]), (2, True, []), (0, False, [])],
)
def test_the_next_model_starts_beside_when_the_present_one_ends_within_its_start(
    waiting: int, both_fit: bool, expected: list[str]
) -> None:
    """A chunk takes 9 s and a start 10: with one chunk left it is time, with two it is too early."""
    active = working("north", model("a", waiting=waiting))
    made = pool([("b", ALLOCATION), ("c", ALLOCATION)], both_fit=both_fit)
    state = LoopState({"a": active.model, "b": model("b"), "c": model("c")}, [active])
    assignments = made._beside(state)
    assert [assignment.model for assignment in assignments] == expected
    assert all(assignment.replica.actor == "another process" for assignment in assignments)
    if assignments:
        assert made._beside(state) == [], "one at a time"
        assert made.reassign(active, state, free=True) is None, "its process stays idle"
        made.end(active.replica)
        assert active.replica.device_group.idle is active.replica


def test_a_process_stays_with_the_next_model_of_the_same_weights() -> None:
    """Nothing starts beside it meanwhile, and what was planned of that model's starts is this one."""
    active = working("north", model("a", waiting=0))
    made = pool([("b", ALLOCATION), ("c", ALLOCATION)])
    state = LoopState({"a": active.model, "b": model("b"), "c": model("c", weights="a")}, [active])
    assert made._beside(state) == []
    following = state.next_sharing_weights(active.model)
    assert following is not None
    assert following.name == "c"
    replica = made.reuse(active, "c", state)
    assert (replica.actor, replica.allocation, replica.device_group.replicas) == ("process on north", ALLOCATION, [replica])
    assert [name for name, _ in made._policy.lines[ALLOCATION.family]] == ["b"]
    state.active_replicas[:] = []
    state.models["c"].work = Chunks(0)  # type: ignore[assignment]
    assert state.next_sharing_weights(active.model) is None


def test_a_replica_that_its_model_can_spare_makes_room_for_another_model() -> None:
    """Half of f is left, 50 s for one replica: then s, with 10 s to load and 38 to score, needs only the other's devices.

    After f on both, s would end in 25 + 10 + 19 s.
    """
    short = Allocation(ALLOCATION.family, Placement(), load=10.0, score=38.0)
    made = pool([("f", ALLOCATION), ("s", short)], prices={ALLOCATION.family: 1.0})
    f = model("f", waiting=5)
    active_replicas = [working(on, f, scored=0) for on in ("north", "south")]
    state = LoopState({"f": f, "s": model("s")}, active_replicas)
    assert made._next_start(ALLOCATION.family, state) is None, "f has all devices"
    assert not made.preempted()
    for active in active_replicas:
        active.scored, active.loaded_at = 2, NOW - 20
    start = made._next_start(ALLOCATION.family, state)
    assert start == ("s", short)
    (released,) = made.preempted()
    assert released in active_replicas
    assert not made.preempted(), "it is named once"
    released.draining = True
    assert made._next_start(ALLOCATION.family, state) == start, "its devices count as free"
    assignment = made.reassign(released, state, free=True)
    assert (assignment.model, assignment.replica.actor) == ("s", released.replica.actor)
