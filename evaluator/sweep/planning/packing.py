"""Pieces of work packed into a given time: where each replica would lie if everything is to end by then. Pure arithmetic.

A job that one replica can do in time is one piece. A larger one is several, and because a model's replicas share its work and
end together, the last of them may start late: it fills what another job leaves of its devices. So every lane (an eighth of a
device) has one free interval; jobs of one piece fill it from its beginning, pieces of shared jobs are at its end. Each job
takes the cheapest allocation that there is room for, where the least room is left over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import LANES, Job, width
from evaluator.sweep.planning.policy import PlannedReplica

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A replica as it was packed."""

    start: float
    job: str
    allocation: Allocation


class _Strip:
    """The free intervals of one family's lanes: arrays of shape (machines, lanes)."""

    def __init__(self, devices: Sequence[int], seconds: float, free: Array | None) -> None:
        self.seconds = seconds
        self.begin = np.zeros((len(devices), max(devices) * LANES)) if free is None else free
        self.until = np.full_like(self.begin, seconds)

    def groups(self, allocation: Allocation) -> tuple[Array, Array]:
        """(when each group of lanes that a replica can take gets free, until when); see `_members` for the groups."""
        members = self._members(allocation)
        lanes, count = self._shape(allocation)
        begin = self.begin[:, : count * lanes].reshape(-1, lanes).max(1)[members].max(1)
        until = self.until[:, : count * lanes].reshape(-1, lanes).min(1)[members].min(1)
        return begin, until

    def fill(self, allocation: Allocation, group: int, *, end: float | None = None, start: float | None = None) -> None:
        """Fill a group's interval from its beginning up to `end`, or from `start` to its end."""
        lanes, count = self._shape(allocation)
        for member in self._members(allocation)[group].tolist():
            machine, at = divmod(member, count)
            where = machine, slice(at * lanes, (at + 1) * lanes)
            if end is not None:
                self.begin[where] = end
            if start is not None:
                self.until[where] = start

    def _shape(self, allocation: Allocation) -> tuple[int, int]:
        """(lanes that a replica takes on a machine, such groups of neighbours on a machine)."""
        lanes = round(allocation.placement.per_node * allocation.placement.share * LANES)
        return lanes, self.begin.shape[1] // lanes

    def _members(self, allocation: Allocation) -> Array:
        """Groups of neighbouring lanes, shape (choices, machines a replica); over several machines, the first that get free."""
        lanes, count = self._shape(allocation)
        nodes = allocation.placement.nodes
        if nodes == 1:
            return np.arange(len(self.begin) * count)[:, None]
        order = np.argsort(self.begin[:, :lanes].max(1), kind="stable") * count
        return order[: len(order) // nodes * nodes].reshape(-1, nodes)


def pack(
    jobs: Sequence[Job],
    families: Mapping[str, Sequence[int]],
    seconds: float,
    prices: Mapping[str, float],
    free: Mapping[str, Array] | None = None,
    *,
    whole: bool = False,
) -> tuple[list[Piece], float]:
    """(pieces of all jobs, parts of jobs that did not fit into `seconds`, summed). `jobs`: the first ones choose first.

    `free`: of each family when its lanes get free, shape (machines, lanes); without it all are from the beginning.
    `whole`: only whether all fits is asked for; it ends at the first job that doesn't.
    """
    strips = {name: _Strip(devices, seconds, free[name] if free else None) for name, devices in families.items()}
    pieces: list[Piece] = []
    over = 0.0
    for job in jobs:
        allocations = sorted(job.allocations, key=lambda w: prices[w.family] * width(w) * (w.load + w.score))
        found, missing = _one(job.name, allocations, strips), 0.0
        if not found:
            found, missing = _several(job.name, allocations, strips, prices)
        pieces += found
        over += missing
        if whole and over:
            break
    return pieces, over


def _one(job: str, allocations: Sequence[Allocation], strips: Mapping[str, _Strip]) -> list[Piece]:
    """The first allocation whose single replica fits, None if there is none."""
    for allocation in allocations:
        strip, needs = strips[allocation.family], allocation.load + allocation.score
        begin, until = strip.groups(allocation)
        rest = until - begin - needs
        if (rest >= 0).any():
            group = int(np.where(rest >= 0, rest, np.inf).argmin())
            start = float(begin[group])
            strip.fill(allocation, group, end=start + needs)
            return [Piece(start, job, allocation)]
    return []


def _several(
    job: str, allocations: Sequence[Allocation], strips: Mapping[str, _Strip], prices: Mapping[str, float]
) -> tuple[list[Piece], float]:
    """Replicas that end when the time is over, the cheapest for what it does first, the last one no longer than it must be.

    Returns them and the part of the job that found no room.
    """
    left = 1.0
    pieces: list[Piece] = []
    while left > 1e-9:
        best: tuple[float, Allocation, int, float, float] | None = None
        for allocation in allocations:
            strip = strips[allocation.family]
            begin, until = strip.groups(allocation)
            part = np.where(
                until >= strip.seconds, (strip.seconds - begin - allocation.load) / max(allocation.score, 1e-9), 0.0
            )
            if not (part > 0).any():
                continue
            enough = np.where(part >= left, part, np.inf)
            group = int(enough.argmin() if np.isfinite(enough).any() else part.argmax())
            does = min(left, float(part[group]))
            start = strip.seconds - allocation.load - does * allocation.score
            cost = prices[allocation.family] * width(allocation) * (strip.seconds - start) / does
            if best is None or cost < best[0]:
                best = cost, allocation, group, start, does
        if best is None:
            return pieces, left
        _, allocation, group, start, does = best
        strips[allocation.family].fill(allocation, group, start=start)
        pieces.append(Piece(start, job, allocation))
        left -= does
    return pieces, 0.0


def lines_of(pieces: Sequence[Piece], families: Mapping[str, Sequence[int]]) -> dict[str, list[PlannedReplica]]:
    """Each family's replicas in the order of their starts, of those that start together the widest and longest first."""
    lines: dict[str, list[PlannedReplica]] = {name: [] for name in families}
    for piece in sorted(pieces, key=lambda p: (p.start, -width(p.allocation), -p.allocation.load - p.allocation.score, p.job)):
        lines[piece.allocation.family].append((piece.job, piece.allocation))
    return lines
