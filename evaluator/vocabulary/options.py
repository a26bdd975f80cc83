"""Choices: what is asked of a model, and how a report is made of the answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

T = TypeVar("T")

Protocol_ = Literal["default", "published", "published-2025"]
"""Which tasks know which: `Task.protocols`."""

Scale = Literal["ratio", "published", "log10", "eurogest"]
"""Which tasks know which: `Task.scales`."""

SCALES: dict[Scale, str] = {
    "ratio": "probability ratio, exp of the mean natural-log ratio",
    "published": "as printed in the papers, exp of the mean log10 ratio: ratio^(1/ln 10)",
    "log10": "mean log10 ratio",
    "eurogest": "EuroGEST's: shares of the two texts' probability, arithmetic means of them",
}
"""Scales in words."""

Interval = Literal["percentile", "bca", "published"]


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Choices made when a report is written, never when a model is asked.

    Attributes:
        scale: units of the values (method.md §0); a task without a scale ignores it and leaves the column null.
        interval: how intervals are made; `percentile` bootstrap is the default. Shares have Wilson's interval, or Agresti and
            Coull's where it is `published`. None but `published` leaves the range of a measure.
        resamples: bootstrap resamples.
        seed: seed of the resampling; same seed, same numbers.
        protocol: the protocol that the run was scored with (some published shares differ in what is printed).
        settings: task name → its own settings, of its `Task.settings`; a task without any has its defaults.
    """

    scale: Scale = "ratio"
    interval: Interval = "percentile"
    resamples: int = 1000
    seed: int = 0
    protocol: Protocol_ = "default"
    settings: Mapping[str, object] = field(default_factory=dict)

    def of(self, task: str, kind: type[T]) -> T:
        """The settings of a task, which are of this type."""
        found = self.settings.get(task)
        return found if isinstance(found, kind) else kind()
