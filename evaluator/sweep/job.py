"""One model's work as the scheduler sees it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evaluator.sweep.fit import Way

LANES = 8
"""Parts into which a device is divided: the smallest share that a replica may take."""


@dataclass(frozen=True, slots=True)
class Job:
    """One model's work and the ways to do it, at least one.

    A replica that is done with a job goes on, without loading, with another one that is `alike`: of which the same is loaded
    (a model under several system prompts). Empty where there is none.
    """

    name: str
    ways: tuple[Way, ...]
    alike: str = ""

    def on(self, family: str) -> list[Way]:
        """The ways on one family."""
        return [way for way in self.ways if way.family == family]


def merged(jobs: Sequence[Job]) -> list[Job]:
    """Jobs that are alike as one, which loads once and has all their work; those that can't run in the same ways stay apart."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.alike or job.name, []).append(job)
    found: list[Job] = []
    for group in groups.values():
        first, *others = ({(way.family, way.placement): way for way in job.ways} for job in group)
        if any(other.keys() != first.keys() for other in others):
            found += group
            continue
        scores = {place: sum(ways[place].score for ways in (first, *others)) for place in first}
        found.append(replace(group[0], ways=tuple(replace(way, score=scores[place]) for place, way in first.items())))
    return found


def width(way: Way) -> float:
    """Devices that a replica takes."""
    return way.placement.devices * way.placement.share
