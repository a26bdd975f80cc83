"""How a task's rows are best shown. Tasks may say so; every other task gets a plain layout made from its rows.

A task module may add two methods to its class, both optional:

    def layout(self, options: MeasureOptions) -> Layout
    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]

The second returns what a reader of the report must know, a sentence each; it is shown with every format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import polars as pl

from evaluator.tasks.base import MeasureOptions, Scale

GENDERS = ("male", "female")
"""GEST's poles."""

_ADJECTIVES = {"male": "masculine", "female": "feminine"}

Side = Literal["first", "second", "other"]


@dataclass(frozen=True, slots=True)
class Overview:
    """A measure that is plotted for all models side by side; `neutral` is its unbiased value."""

    measure: str
    neutral: float | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """What goes where in tables and plots.

    Attributes:
        summary: measures shown with a row for each model and template.
        summary_groups: the groups whose rows they are (null: rows without a group); more than one are rows of their own.
        details: measures shown by group, the groups as rows; each also gets an interval plot in the HTML report.
        ranks: measures whose distribution over models and templates is shown by group.
        pairs: correlations of pairs, of which the mean and the range are shown.
        overview: measures compared between models in a plot.
        groups: group → its name, in the order of the tables. Of a measure with very many groups only these are shown.
        polarity: group → its pole, for the groups that have one.
        poles: what the first and the second word of every pair stand for; a high value means the first.
        names: measure → what a reader is shown for it, where it isn't its name.
        notes: measure → what a reader must know of it, shown under each table with that measure.
        log_axis: whether plots of `details` and `overview` have logarithmic axes (ratios do).
    """

    summary: tuple[str, ...]
    summary_groups: tuple[str | None, ...] = (None, "all")
    details: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    overview: tuple[Overview, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    polarity: Mapping[str, str] = field(default_factory=dict)
    poles: tuple[str, str] = GENDERS
    names: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    log_axis: bool = False

    def named(self, group: str) -> str:
        """A group with its name, `9 self-confident`."""
        name = self.groups.get(group, group)
        return name if name == group else f"{group} {name}"

    def shown(self, measure: str) -> str:
        """What a reader is shown for a measure."""
        return self.names.get(measure, measure)

    def side(self, group: str) -> Side:
        """Which of the poles a group belongs to."""
        pole = self.polarity.get(group)
        return "other" if pole is None else "first" if pole == self.poles[0] else "second"

    def mark(self, pole: str) -> str:
        """A pole's initial in brackets, or its name where both begin alike."""
        return f"({pole if self.poles[0][0] == self.poles[1][0] else pole[0]})"

    @property
    def lowest(self) -> str:
        """What a group of the lowest value is: `feminine`, or the second pole's name."""
        return _ADJECTIVES.get(self.poles[1], self.poles[1])


@runtime_checkable
class HasLayout(Protocol):
    """A task that says how its rows are shown."""

    def layout(self, options: MeasureOptions) -> Layout:
        """The layout for a report with these options."""


@runtime_checkable
class HasWarnings(Protocol):
    """A task that warns."""

    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]:
        """Warnings about these scores, a sentence each."""


def plain_layout(rows: pl.DataFrame) -> Layout:
    """Measures without groups (or with group `all`) in the summary, the others by group."""
    whole = pl.col("group").is_null() | (pl.col("group") == "all")
    summary = rows.filter(whole)["measure"].unique(maintain_order=True)
    details = rows.filter(~whole)["measure"].unique(maintain_order=True)
    return Layout(summary=tuple(summary), details=tuple(details))


def rates_layout(
    groups: Mapping[str, str],
    polarity: Mapping[str, str],
    scale: Scale,
    poles: tuple[str, str] = GENDERS,
    topic: Sequence[str] | None = None,
) -> Layout:
    """GEST's layout, also for groups, poles and a topic's words of the user's own: see `evaluator.measures.gest`."""
    first, second = poles
    names = {} if poles == GENDERS else {"q_f": f"q_f ({second})", "q_m": f"q_m ({first})", "rank": f"{second} rank"}
    q_f, q_m = (names.get(measure, measure) for measure in ("q_f", "q_m"))
    samples = (
        "male-stereotype samples that are about family"
        if topic is None
        else f"samples of {first} groups that contain a word of the topic ({', '.join(topic)})"
    )
    return Layout(
        summary=("q_f", "q_m", "g_s", "q_family", "mass"),
        details=("q",),
        ranks=("rank",),
        pairs=("r_templates", "r_models"),
        overview=(Overview("g_s", 0.0 if scale == "log10" else 1.0),),
        groups=groups,
        polarity=polarity,
        poles=poles,
        names=names,
        notes={
            "q": "q compares the groups of one column with each other. Where a single q lies tells nothing by itself: it "
            "also carries how frequent the two words are.",
            "g_s": (f"g_s = {q_m} − {q_f}, 0 is unbiased" if scale == "log10" else f"g_s = {q_m} / {q_f}, 1 is unbiased")
            + "; template all: mean over the templates.",
            "q_family": f"q_family: the rate of the {samples}.",
            "mass": "mass: mean probability of the two words together.",
            "rank": f"Rank 1: the lowest q, the most {_ADJECTIVES.get(second, second)} group of its column.",
            "r_templates": "Pearson correlations of q over the groups: r_templates between two templates of one model, "
            "r_models between two models of one kind at one template.",
        },
        log_axis=scale != "log10",
    )
