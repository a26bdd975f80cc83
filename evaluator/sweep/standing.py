"""Where a sweep stands, for the policy and the pool: which devices are taken, how fast models go. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ray.util.placement_group import PlacementGroup

from evaluator.run.replica import Member, Model, Replica, State
from evaluator.sweep.fit import Way
from evaluator.sweep.job import width
from evaluator.sweep.policy import Progress, Running, Start
from evaluator.sweep.seat import Seat

MEASURED = 2
"""Chunks after which a replica's speed counts as known."""
SLOW = (0.5, 2.0)
"""Between these a measured load counts against the estimate: beyond them it says more of a download, or of a process that had
its libraries already, than of the model."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A replica that waits for its devices: `ready` is Ray's reference to the moment when they are there."""

    start: Start
    group: PlacementGroup
    ready: Any

    @property
    def model(self) -> str:
        """The model's name."""
        return self.start[0]

    @property
    def way(self) -> Way:
        """On which devices."""
        return self.start[1]


def seat_of(replica: Replica) -> Seat:
    """A replica of the pool's as what it is."""
    assert isinstance(replica, Seat), "all replicas come from the pool"
    return replica


def way_of(member: Member) -> Way:
    """How a replica lies on devices."""
    return seat_of(member.replica).way


def node_of(member: Member) -> str:
    """The id of a loaded replica's machine."""
    return member.loaded.node if member.loaded is not None else ""


def holders(members: Sequence[Member], asked: Sequence[Asked]) -> list[Member | Asked]:
    """What takes devices or has asked for some. Two replicas on the same devices take them once: the later one, which stays.

    One that is about to go takes none any more.
    """
    places = {seat_of(m.replica).place: m for m in members}
    return [*(m for m in places.values() if not m.leaving), *asked]


def start_of(holder: Member | Asked) -> Start:
    """A model's name, and how its replica lies on devices."""
    return holder.start if isinstance(holder, Asked) else (holder.model.name, way_of(holder))


def running(holder: Member | Asked, longer: float, now: float) -> Running:
    """A replica for the plan made again; `longer`: see `Progress.slow`."""
    name, way = start_of(holder)
    begun = now if isinstance(holder, Asked) else holder.begun
    loaded = isinstance(holder, Member) and holder.loaded is not None
    return Running(name, way, None if loaded else begun + way.load * longer)


def taken(starts: Sequence[Start], family: str) -> float:
    """Devices of a family that are in use or asked for."""
    return sum(width(way) for _, way in starts if way.family == family)


def rate(member: Member, now: float) -> float:
    """Parts of its model's work a second: as measured since it loaded, before that as planned."""
    if member.scored < MEASURED:
        return 1 / max(way_of(member).score, 1e-9)
    return member.scored / member.model.chunks / max(now - member.since, 1e-9)


def rates(members: Sequence[Member], now: float) -> dict[str, float]:
    """Parts of each model's work a second, by all its loaded replicas."""
    found: dict[str, float] = defaultdict(float)
    for member in members:
        if member.loaded is not None:
            found[member.model.name] += rate(member, now)
    return found


def slow(loaded: Sequence[Member]) -> float:
    """By what a model's loads took longer than was estimated, 1 where none is known."""
    planned = sum(way_of(m).load for m in loaded)
    return min(max(sum(m.since - m.begun for m in loaded) / planned, SLOW[0]), SLOW[1]) if planned else 1.0


def progress(model: Model, state: State, asked: Sequence[Asked], now: float) -> Progress:
    """A model with work left, as the policy sees it."""
    members = [m for m in state.of(model) if not m.leaving]
    loaded = [m for m in members if m.loaded is not None]
    measured = sum(rate(m, now) for m in loaded)
    planned = sum(1 / max(way_of(m).score, 1e-9) for m in loaded)
    loading = [(m.begun, way_of(m)) for m in members if m.loaded is None]
    loading += [(now, a.way) for a in asked if a.model == model.name]
    longer = slow(loaded)
    return Progress(
        left=model.left,
        at=now,
        rate=measured,
        loading=[(begun + way.load * longer, 1 / max(way.score, 1e-9)) for begun, way in loading],
        members=len(loaded) + len(loading),
        pace=measured / planned if planned else 1.0,
        slow=longer,
        measured=any(m.scored >= MEASURED for m in loaded),
    )
