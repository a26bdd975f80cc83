"""A model's scores as sampling units with a statistic of them: what reports, comparisons and influences are made of.

A task's measures are functions of sums over units (see `evaluator.measures.bootstrap`). Here such a function goes with its
outputs (the rows of a report) and the identity of each unit, so that two models' units can be matched, or one be left out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Array, Statistic

ROUNDING = 1e-13
"""A value that moves by less than this share of it hasn't moved."""


class Label(NamedTuple):
    """Which row of a report an output is. `language`: only where one object has the outputs of several."""

    template: str | None
    measure: str
    group: str | None = None
    scale: str | None = None
    language: str | None = None


IntervalKind = Literal["bootstrap", "log bootstrap", "share", "centred share", "shifted"]
"""How an output's interval is made: of the bootstrap's values or of their logarithms; of a share k/n, whose published form
prints the interval's centre if it is `centred`; of the bootstrap's values less their bias, within 0 and `Output.whole`."""


@dataclass(frozen=True, slots=True)
class Output:
    """One value of a statistic: which row of a report it is, and what its interval is.

    Attributes:
        n: samples that it rests on.
        ratio: whether it is a positive ratio, of which differences are tested in logarithms.
        whole: the value of a share of 1, and the largest value of what is `shifted`.
    """

    label: Label
    n: int
    interval: IntervalKind = "bootstrap"
    ratio: bool = False
    whole: float = 1.0


@dataclass(frozen=True, slots=True)
class Units:
    """A stratum whose units have names: `ids` [units], `values` [units, columns] (addends to each sum)."""

    stratum: str
    ids: tuple[object, ...]
    values: Array

    def only(self, kept: Iterable[object]) -> Self:
        """Those of the units that are among `kept`, in the order of their names."""
        wanted = set(kept)
        order = sorted([i for i, name in enumerate(self.ids) if name in wanted], key=[*map(repr, self.ids)].__getitem__)
        return replace(self, ids=tuple(map(self.ids.__getitem__, order)), values=self.values[order])


@dataclass(frozen=True, slots=True)
class Sampled:
    """One model's scores of one task and language.

    Attributes:
        outputs: what the statistic's values are.
        strata: units that were drawn together.
        statistic: from sums over the strata [..., strata, columns] to the outputs as they are printed, NaN where undefined.
        unit: the column of the scores that has the units' names: `sample`, or what several samples were made of.
        as_published: the same outputs over the units that the papers' intervals resample, where those are others.
    """

    outputs: tuple[Output, ...]
    strata: tuple[Units, ...]
    statistic: Statistic
    unit: str = "sample"
    as_published: "Sampled | None" = None

    @property
    def labels(self) -> tuple[Label, ...]:
        """The outputs' names."""
        return tuple(output.label for output in self.outputs)

    @property
    def ratio(self) -> NDArray[np.bool_]:
        """[outputs], whether an output is a positive ratio."""
        return np.array([output.ratio for output in self.outputs], dtype=np.bool_)

    def choose(self, outputs: Sequence[int]) -> Self:
        """The same with some of the outputs, by their places."""
        order = list(outputs)
        statistic = self.statistic
        return replace(self, outputs=tuple(self.outputs[i] for i in order), statistic=lambda sums: statistic(sums)[..., order])

    @property
    def values(self) -> Array:
        """The outputs over all units, [outputs]."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.statistic(np.stack([units.values.sum(axis=0) for units in self.strata]))

    def tested(self, sums: Array) -> Array:
        """The outputs on the scale on which differences are tested: ratios as natural logarithms."""
        return logs_where(self.ratio, self.statistic(sums))


def logs_where(ratio: NDArray[np.bool_], values: Array) -> Array:
    """[..., outputs] with the natural logarithms of those outputs that are ratios."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(ratio, np.log(np.where(ratio, values, 1.0)), values)


def influences(strata: Sequence[Array], statistic: Callable[[Array], Array]) -> list[Array]:
    """The jackknife's influence of every unit, [units, outputs] for each stratum of [units, columns].

    (n − 1) · (mean of the statistic with one unit left out − the statistic without this unit): for a mean, how far the unit's
    value lies from it; exactly 0 for outputs that don't rest on the stratum. A stratum of one unit tells nothing of its spread:
    NaN for the outputs that rest on it.
    """
    sums = np.stack([values.sum(axis=0) for values in strata])
    made = []
    for index, values in enumerate(strata):
        count = len(values)
        whole, without = left_out(sums, index, values, statistic)
        influence = (count - 1) * (without.mean(axis=0) - without) if count > 1 else np.full(without.shape, np.nan)
        made.append(np.where(moved(whole, without), influence, 0.0))
    return made


def left_out(sums: Array, index: int, values: Array, statistic: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The statistic of all units [outputs], and without each unit of the stratum at `index` in turn, [units, outputs]."""
    left = np.repeat(sums[None], len(values) + 1, axis=0)  # both from one call: then they are added up in one order
    left[1:, index] -= values
    with np.errstate(divide="ignore", invalid="ignore"):
        found = statistic(left)
    return found[0], found[1:]


def moved(whole: Array, without: Array) -> NDArray[np.bool_]:
    """[outputs]: whether leaving out some unit of the stratum changes the output, or makes it undefined."""
    same: NDArray[np.bool_] = np.all(np.abs(without - whole) <= ROUNDING * np.abs(whole), axis=0)
    return ~same
