"""Choices: what is asked of a model, and how a report is made of the answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Protocol_ = Literal["default", "published", "published-2025"]
"""Which tasks know which: `Task.protocols`."""

Scale = Literal["ratio", "published", "log10", "eurogest"]
"""Which tasks know which: `Task.scales`."""

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
        extra: task-specific settings (e.g. path of a word-count file).
    """

    scale: Scale = "ratio"
    interval: Interval = "percentile"
    resamples: int = 1000
    seed: int = 0
    protocol: Protocol_ = "default"
    extra: Mapping[str, str] = field(default_factory=dict)
