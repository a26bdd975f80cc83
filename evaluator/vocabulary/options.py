"""Options of scoring (protocol) and of reports (scale, interval)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict, TypeVar

T = TypeVar("T")

Protocol_ = Literal["default", "published", "published-2025"]
"""A task's protocols: `Task.protocols`."""

Scale = Literal["ratio", "published", "log10", "eurogest"]
"""A task's scales: `Task.scales`."""

SCALES: dict[Scale, str] = {
    "ratio": "probability ratio, exp of the mean natural-log ratio",
    "published": "as printed in the papers, exp of the mean log10 ratio: ratio^(1/ln 10)",
    "log10": "mean log10 ratio",
    "eurogest": "EuroGEST's: arithmetic means of the shares of the two texts' probability",
}
"""Scale → description."""

Interval = Literal["percentile", "bca", "published"]


class RateChoices(TypedDict, total=False):
    """How rates are computed: arguments that all functions with rates take, those of `MeasureOptions`.

    Attributes:
        scale: units of the rates (default: `ratio`).
        interval: method of the intervals (default: `percentile`).
        resamples: number of bootstrap resamples (default: 1000).
        seed: seed of the bootstrap (default: 0).
    """

    scale: Scale
    interval: Interval
    resamples: int
    seed: int


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of a report; they do not affect scores.

    Attributes:
        scale: units of the values (method.md §0); ignored by tasks without scales, whose column is null.
        interval: method of the intervals. Shares have Wilson intervals, or Agresti–Coull intervals if it is `published`.
            Only `published` intervals can exceed a measure's range.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap; the same seed gives the same numbers.
        protocol: the run's protocol (some published shares are printed differently).
        settings: task name → its parameters that are chosen for a report; defaults if absent.
    """

    scale: Scale = "ratio"
    interval: Interval = "percentile"
    resamples: int = 1000
    seed: int = 0
    protocol: Protocol_ = "default"
    settings: Mapping[str, object] = field(default_factory=dict)

    def of(self, task: str, kind: type[T]) -> T:
        """A task's settings of this type, its defaults if there are none."""
        settings = self.settings.get(task)
        return settings if isinstance(settings, kind) else kind()
