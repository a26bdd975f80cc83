"""The estimate that a plan gives of a sweep, and the actual time: recorded in run.json for reports."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from evaluator.sweep.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """What a plan estimates for one sweep command.

    Attributes:
        time: when it was given; seconds: how long the sweep was to take from its first replica's start.
        basis: when speeds were last measured on this hardware, empty where those of all models are data sheets'.
        devices: of the fleet; price: of a device-hour, None where none was given.
        took: seconds that it took, None while it hasn't ended; whole: whether every model was scored to its end.
    """

    time: str
    seconds: float
    basis: str
    devices: int
    price: float | None = None
    took: float | None = None
    whole: bool = False

    @classmethod
    def of(cls, plan: Plan, price: float | None) -> "PlanEstimate":
        """At this moment."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return cls(now, round(plan.seconds, 2), plan.speeds.newest if plan.measured else "", plan.fleet.devices, price)

    def with_actual(self, took: float, *, whole: bool) -> "PlanEstimate":
        """With what came of it."""
        return replace(self, took=round(took, 2), whole=whole)

    def record(self) -> dict[str, Any]:
        """For run.json."""
        return asdict(self)
