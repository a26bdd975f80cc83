"""One model's work as the scheduler sees it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evaluator.sweep.planning.fit import Allocation

LANES = 8
"""Parts into which a device is divided: the smallest share that a replica may take."""


@dataclass(frozen=True, slots=True)
class Job:
    """One model's work and its allocations, at least one.

    A replica that is done with a job goes on, without loading, with another one that is `alike`: of which the same is loaded
    (a model under several system prompts). Empty where there is none. `requests`: how many there are to answer.
    """

    name: str
    allocations: tuple[Allocation, ...]
    alike: str = ""
    requests: int = 0

    def on(self, family: str) -> list[Allocation]:
        """Its allocations on one family."""
        return [allocation for allocation in self.allocations if allocation.family == family]


def merged(jobs: Sequence[Job]) -> list[Job]:
    """Jobs that are alike as one, which loads once and has all their work; those with other allocations stay apart."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.alike or job.name, []).append(job)
    found: list[Job] = []
    for group in groups.values():
        first, *others = (
            {(allocation.family, allocation.placement): allocation for allocation in job.allocations} for job in group
        )
        if any(other.keys() != first.keys() for other in others):
            found += group
            continue
        scores = {place: sum(allocations[place].score for allocations in (first, *others)) for place in first}
        found.append(
            replace(
                group[0], allocations=tuple(replace(allocation, score=scores[place]) for place, allocation in first.items())
            )
        )
    return found


def width(allocation: Allocation) -> float:
    """Devices that a replica takes."""
    return allocation.placement.devices * allocation.placement.share
