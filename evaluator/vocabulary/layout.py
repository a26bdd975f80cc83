"""How a task's rows are arranged and labelled in tables and plots."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

Side = Literal["first", "second", "other"]


@dataclass(frozen=True, slots=True)
class Overview:
    """A measure plotted for all models side by side.

    Attributes:
        measure: name.
        neutral: the unbiased value.
        meaning: what values above and below the unbiased one mean; a sentence without full stop.
    """

    measure: str
    neutral: float | None = None
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Contour:
    """A labelled line through points (x, y) of a scatter plot."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Scatter plot of two measures, or of one measure in two groups: one point per model and language.

    Attributes:
        x, y: the measures.
        x_group, y_group: their groups, if any.
        identity: draw the line x = y.
        neutral: the unbiased x and y, drawn as lines.
        contours: lines of equal value of a third measure.
        note: how to read the plot, a sentence.
    """

    x: str
    y: str
    x_group: str | None = None
    y_group: str | None = None
    identity: bool = False
    neutral: tuple[float | None, float | None] = (None, None)
    contours: tuple[Contour, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Arrangement of a task's measures in tables and plots.

    Attributes:
        summary: measures in the table with one row per model and template.
        summary_groups: groups of the summary's rows (None: rows without a group); each further group adds rows.
        details: measures shown by group, one row per group; figures show them as a heat map and with intervals.
        relative: measures of `details` without absolute meaning: the heat map divides them by their mean over the groups.
        neutrals: measure of `details` → its unbiased value, if it is not in `overview`.
        ranks: measures whose distribution over models and templates is shown by group.
        pairs: pairwise correlations, shown as mean and range.
        overview: measures plotted for all models.
        by_language: measures compared between languages and models, in a table and a heat map.
        language_ranks: measures for which a group's spread between languages is shown.
        scatters: scatter plots.
        cautions: conclusions that the numbers do not support, a sentence each.
        groups: group → name, in the order of tables. Of a measure with many groups only these are shown.
        polarity: group → pole, for groups that have one.
        poles: meaning of the first and the second word of every pair; a high value means the first.
        lowest: meaning of the lowest rank (`feminine`).
        names: measure → displayed name, if different.
        notes: measure → note shown under each table with that measure.
        across_protocols: measured difference between the default and the published protocol's values, a sentence; empty if they
            are not comparable.
        log_axis: whether plots of `details` and `overview` have logarithmic axes (for ratios).
    """

    summary: tuple[str, ...]
    summary_groups: tuple[str | None, ...] = (None, "all")
    details: tuple[str, ...] = ()
    relative: tuple[str, ...] = ()
    neutrals: Mapping[str, float] = field(default_factory=dict)
    ranks: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    overview: tuple[Overview, ...] = ()
    by_language: tuple[Overview, ...] = ()
    language_ranks: tuple[str, ...] = ()
    scatters: tuple[Scatter, ...] = ()
    cautions: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    polarity: Mapping[str, str] = field(default_factory=dict)
    poles: tuple[str, str] = ("", "")
    lowest: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    across_protocols: str = ""
    log_axis: bool = False

    def __post_init__(self) -> None:
        """Check that groups belong to the layout's poles. Raises ValueError."""
        if other := set(self.polarity.values()) - set(self.poles):
            raise ValueError(f"polarity names {', '.join(sorted(other))}, but the poles are {' and '.join(self.poles)}")

    def named(self, group: str) -> str:
        """A group with its name: `9 self-confident`."""
        name = self.groups.get(group, group)
        return name if name == group else f"{group} {name}"

    def shown(self, measure: str) -> str:
        """The displayed name of a measure."""
        return self.names.get(measure, measure)

    def neutral(self, measure: str) -> float | None:
        """The unbiased value of a measure, None if it has none."""
        values = {overview.measure: overview.neutral for overview in (*self.overview, *self.by_language)}
        return values.get(measure, self.neutrals.get(measure))

    def side(self, group: str) -> Side:
        """The pole of a group."""
        pole = self.polarity.get(group)
        return "other" if pole is None else "first" if pole == self.poles[0] else "second"

    def mark(self, pole: str) -> str:
        """A pole's initial in brackets, or its name if both poles have the same initial."""
        return f"({pole if self.poles[0][0] == self.poles[1][0] else pole[0]})"


def plain_layout(rows: pl.DataFrame) -> Layout:
    """A default layout: measures without groups (or with group `all`) in the summary, the others by group."""
    whole = pl.col("group").is_null() | (pl.col("group") == "all")
    summary = rows.filter(whole)["measure"].unique(maintain_order=True)
    details = rows.filter(~whole)["measure"].unique(maintain_order=True)
    return Layout(summary=tuple(summary), details=tuple(details))
