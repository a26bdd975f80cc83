"""How a task's rows are shown: what goes where in tables and plots, and by which names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

Side = Literal["first", "second", "other"]


@dataclass(frozen=True, slots=True)
class Overview:
    """A measure that is plotted for all models side by side.

    Attributes:
        measure: its name.
        neutral: its unbiased value.
        meaning: a sentence without its full stop in plain words: what a value above and below the unbiased one means.
    """

    measure: str
    neutral: float | None = None
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Contour:
    """A line through points (x, y) of a scatter plot, with what it stands for."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Two measures, or one measure of two groups, against each other: a point a model and language.

    Attributes:
        x, y: the measures.
        x_group, y_group: of which group, where they have groups.
        identity: whether x and y have one scale, so that the line on which they are equal is drawn.
        neutral: the unbiased x and y, drawn as lines.
        contours: lines of equal value of a third measure.
        note: how to read it, a sentence.
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
    """What goes where in tables and plots.

    Attributes:
        summary: measures shown with a row for each model and template.
        summary_groups: the groups whose rows they are (null: rows without a group); more than one are rows of their own.
        details: measures shown by group, the groups as rows; figures show them as a heat map and with intervals.
        relative: those of `details` whose level tells nothing: the heat map shows them against their mean over the groups.
        neutrals: measure of `details` → its unbiased value, where it isn't one of `overview`.
        ranks: measures whose distribution over models and templates is shown by group.
        pairs: correlations of pairs, of which the mean and the range are shown.
        overview: measures compared between models in a plot.
        by_language: measures compared between languages and models, in a table and a heat map.
        language_ranks: measures of which is shown how a group's values differ between languages.
        scatters: pairs of measures that are plotted against each other.
        cautions: what must not be concluded from the numbers, a sentence each.
        groups: group → its name, in the order of the tables. Of a measure with very many groups only these are shown.
        polarity: group → its pole, for the groups that have one.
        poles: what the first and the second word of every pair stand for, where there are such; a high value means the first.
        lowest: what a group of the lowest rank is, where there are ranks (`feminine`).
        names: measure → what a reader is shown for it, where it isn't its name.
        notes: measure → what a reader must know of it, shown under each table with that measure.
        log_axis: whether plots of `details` and `overview` have logarithmic axes (ratios do).
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
    log_axis: bool = False

    def __post_init__(self) -> None:
        """Check that groups belong to the layout's poles. Raises ValueError."""
        if other := set(self.polarity.values()) - set(self.poles):
            raise ValueError(f"groups belong to {', '.join(sorted(other))}, the poles are {' and '.join(self.poles)}")

    def named(self, group: str) -> str:
        """A group with its name, `9 self-confident`."""
        name = self.groups.get(group, group)
        return name if name == group else f"{group} {name}"

    def shown(self, measure: str) -> str:
        """What a reader is shown for a measure."""
        return self.names.get(measure, measure)

    def neutral(self, measure: str) -> float | None:
        """A measure's unbiased value, where it has one."""
        known = {overview.measure: overview.neutral for overview in (*self.overview, *self.by_language)}
        return known.get(measure, self.neutrals.get(measure))

    def side(self, group: str) -> Side:
        """Which of the poles a group belongs to."""
        pole = self.polarity.get(group)
        return "other" if pole is None else "first" if pole == self.poles[0] else "second"

    def mark(self, pole: str) -> str:
        """A pole's initial in brackets, or its name where both begin alike."""
        return f"({pole if self.poles[0][0] == self.poles[1][0] else pole[0]})"


def plain_layout(rows: pl.DataFrame) -> Layout:
    """Measures without groups (or with group `all`) in the summary, the others by group."""
    whole = pl.col("group").is_null() | (pl.col("group") == "all")
    summary = rows.filter(whole)["measure"].unique(maintain_order=True)
    details = rows.filter(~whole)["measure"].unique(maintain_order=True)
    return Layout(summary=tuple(summary), details=tuple(details))
