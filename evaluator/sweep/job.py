"""One model's work as the scheduler sees it."""

from dataclasses import dataclass

from evaluator.sweep.fit import Way

LANES = 8
"""Parts into which a device is divided: the smallest share that a replica may take."""


@dataclass(frozen=True, slots=True)
class Job:
    """One model's work and the ways to do it, at least one."""

    name: str
    ways: tuple[Way, ...]

    def on(self, family: str) -> list[Way]:
        """The ways on one family."""
        return [way for way in self.ways if way.family == family]


def width(way: Way) -> float:
    """Devices that a replica takes."""
    return way.placement.devices * way.placement.share
