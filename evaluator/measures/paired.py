"""Two models on the same samples: differences with bootstrap intervals, a paired permutation test, what could have been found.

Test. Under the hypothesis that the two models are exchangeable, each unit's difference could as well have the other sign: the
observed statistic is compared with those of random signs (R. A. Fisher 1935, the paired permutation test). Statistics are
studentised by the spread within strata: then the test is exact under exchangeability, and holds asymptotically under the
weaker hypothesis that only this one measure is equal (E. Chung, J. P. Romano: Exact and asymptotically robust permutation
tests, 2013). Without that, a common shift of all q (another frequency of the two words) would drown differences of g_s. Of a
statistic that isn't a mean the units' values are the jackknife's pseudo-values, which for a mean are the values themselves.

Holm: S. Holm, A simple sequentially rejective multiple test procedure (1979).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Array, Array32, Bootstrap, Stratum
from evaluator.measures.sampled import Label, Sampled, Units, influences, logs_where

PERMUTATIONS = 10_000
LEVEL = 0.05
POWER = 0.8
BLOCK = 1 << 22
"""Signs that are drawn at once."""
CACHED = 1 << 16
"""Statistics of random signs that are held at once, so that the processor's cache has room for them."""
_TIE = 1e-5
"""Studentised statistics that agree to this are equal: the means of signs are single-precision numbers."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Two models' units, matched: the same strata, and in each the same units in the same order.

    Attributes:
        baseline, model: the same labels, strata and names of units.
        alone: units that only one of the two had, which are left out.
    """

    baseline: Sampled
    model: Sampled
    alone: int

    @property
    def labels(self) -> tuple[Label, ...]:
        """The names of the outputs."""
        return self.baseline.labels


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A model against a baseline, each [outputs]; NaN where undefined.

    Attributes:
        baseline, model: values on the paired units.
        difference, low, high: model − baseline with its 95% bootstrap interval.
        p: of the two-sided paired permutation test.
        detectable_low, detectable_high: the minimum detectable effects downward (negative) and upward: true differences of this
            size are found by a single test at the 5% level with 80% power.
        n: paired units that the output rests on.
    """

    baseline: Array
    model: Array
    difference: Array
    low: Array
    high: Array
    p: Array
    detectable_low: Array
    detectable_high: Array
    n: Array


def pair(baseline: Sampled, model: Sampled, shown: Callable[[Label], bool] = lambda label: True) -> Paired | None:
    """The units that both models have, with the outputs that both have and that are `shown`. None where there is no output.

    Raises ValueError where the strata of what is in common differ: the scores weren't restricted to common samples.
    """
    mine, theirs = ({units.stratum: units for units in side.strata} for side in (baseline, model))
    shared = [label for label in baseline.labels if label in set(model.labels) and shown(label)]
    if not shared:
        return None
    if mine.keys() != theirs.keys():
        raise ValueError(f"different strata: {sorted(mine.keys() ^ theirs.keys())}")
    alone = 0
    pairs: tuple[list[Units], list[Units]] = ([], [])
    for name, units in mine.items():
        both = set(units.ids) & set(theirs[name].ids)
        alone += len(set(units.ids) ^ set(theirs[name].ids))
        pairs[0].append(units.only(both))
        pairs[1].append(theirs[name].only(both))
    return Paired(_chosen(baseline, pairs[0], shared), _chosen(model, pairs[1], shared), alone)


def _chosen(sampled: Sampled, strata: Sequence[Units], labels: Sequence[Label]) -> Sampled:
    """The same with these units, and of the outputs only these."""
    known = sampled.labels
    return replace(sampled.choose([known.index(label) for label in labels]), strata=tuple(strata))


Strata = Sequence[tuple[str, Array]]
"""Names of strata, and the influences [units, outputs] in each."""


def compare(
    pairs: Sequence[Paired], bootstrap: Bootstrap, permutations: int = PERMUTATIONS, seed: int = 0
) -> list[PairedComparison]:
    """All outputs of each pair."""
    found = [_untested(pair, bootstrap) for pair in pairs]
    tests = sign_tests([(strata, observed) for _, strata, observed in found], permutations, seed)
    return [replace(comparison, p=p) for (comparison, *_), p in zip(found, tests, strict=True)]


def _untested(pair: Paired, bootstrap: Bootstrap) -> tuple[PairedComparison, Strata, Array]:
    """A comparison without its p, and what the test is made of: influences on the differences, and these [outputs]."""
    first, second = pair.baseline, pair.model
    names = [units.stratum for units in first.strata]
    arrays = [[units.values for units in side.strata] for side in (first, second)]
    width = arrays[0][0].shape[1]

    def difference(sums: Array) -> Array:
        return second.statistic(sums[..., width:]) - first.statistic(sums[..., :width])

    joined = [np.concatenate(both, axis=1) for both in zip(*arrays, strict=True)]
    found = bootstrap.estimate([Stratum(*named) for named in zip(names, joined, strict=True)], difference)
    one, other = first.values, second.values
    with np.errstate(invalid="ignore"):  # of two infinities
        observed = logs_where(first.ratio, other) - logs_where(first.ratio, one)
    # influences are linear in the statistic: those of a difference are the differences of both sides'
    sides = [influences(values, side.tested) for values, side in zip(arrays, (first, second), strict=True)]
    spread = [b - a for a, b in zip(*sides, strict=True)]
    step = detectable(standard_error(spread))
    rests = [len(a) * ((a != 0) | (b != 0)).any(axis=0) for a, b in zip(*sides, strict=True)]
    with np.errstate(over="ignore"):  # infinite where so few units tell nothing
        below, above = (np.where(first.ratio, one * np.expm1(change), change) for change in (-step, step))
    untested = PairedComparison(
        baseline=one,
        model=other,
        difference=found.value,
        low=found.low,
        high=found.high,
        p=np.full(len(one), np.nan),
        detectable_low=below,
        detectable_high=above,
        n=np.sum(rests, axis=0),
    )
    return untested, list(zip(names, spread, strict=True)), observed


def sign_tests(tests: Sequence[tuple[Strata, Array]], permutations: int = PERMUTATIONS, seed: int = 0) -> list[Array]:
    """The sign tests of several pairs: those with strata of the same names and sizes are made at once, from the same signs."""
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for place, (strata, _) in enumerate(tests):
        alike.setdefault(tuple((name, len(influence)) for name, influence in strata), []).append(place)
    found: dict[int, Array] = {}
    for shape, places in alike.items():
        mine = [tests[place] for place in places]
        joined = [(name, np.concatenate([s[at][1] for s, _ in mine], axis=1)) for at, (name, _) in enumerate(shape)]
        p = sign_test(joined, np.concatenate([observed for _, observed in mine]), permutations, seed)
        ends = np.cumsum([len(observed) for _, observed in mine])
        found |= dict(zip(places, np.split(p, ends[:-1]), strict=True))
    return [found[place] for place in range(len(tests))]


def sign_test(strata: Strata, observed: Array, permutations: int = PERMUTATIONS, seed: int = 0) -> Array:
    """Two-sided p [outputs] of the differences `observed`, from each stratum's name and influences [units, outputs].

    (1 + how many of the random signs give a statistic at least as far from 0) / (1 + permutations); 1 where nothing differs,
    NaN where the difference or a spread is undefined. What is drawn depends on the seed, the stratum's name and size only.
    """
    shared = np.sum([(influence != 0).any(axis=0) for _, influence in strata], axis=0)
    # for a mean within one stratum these are the units' differences themselves: the test is exact
    units = [
        (name, influence + np.where((influence != 0).any(axis=0), observed / np.maximum(shared, 1), 0.0))
        for name, influence in strata
        if len(influence) > 1
    ]
    if not units:
        return np.where(np.isnan(observed), np.nan, np.where(observed == 0, 1.0, np.nan))
    defined = np.isfinite(observed) & np.all([np.isfinite(values).all(axis=0) for _, values in strata], axis=0)
    limit = _studentised(observed, _variance([values for _, values in units])) * (1 - _TIE)
    sources = [np.random.default_rng([seed, *name.encode()]) for name, _ in units]
    flipped = [_Flipped.of(values) for _, values in units]
    counts = np.zeros(len(observed), dtype=np.int64)
    height = max(1, BLOCK // max(len(values) for _, values in units))
    step = min(2048, max(512, CACHED // len(observed)))
    for start in range(0, permutations, height):
        rows = min(height, permutations - start)
        drawn = [each.draw(source, rows) for source, each in zip(sources, flipped, strict=True)]
        for first in range(0, rows, step):
            total, variance = np.zeros((2, len(observed), min(step, rows - first)))
            for bits, each in zip(drawn, flipped, strict=True):
                each.add(bits[first : first + step], total, variance)
            counts += (_studentised(total, variance) >= limit[:, None]).sum(axis=1)
    unmoved = shared == 0
    p = (1 + counts) / (1 + permutations)
    p = np.where(unmoved, np.where(observed == 0, 1.0, 1 / (1 + permutations)), p)
    return np.where(defined, p, np.nan)


@dataclass(frozen=True, slots=True)
class _Flipped:
    """A stratum under random signs: the `outputs` that rest on it, their `values` [units, outputs], and the means of their
    squares, which signs don't change."""

    outputs: NDArray[np.int64]
    values: Array32
    squares: Array

    @classmethod
    def of(cls, values: Array) -> Self:
        used = np.flatnonzero((values != 0).any(axis=0))
        return cls(used, values[:, used].astype(np.float32), (values[:, used] ** 2).mean(axis=0))

    def draw(self, source: np.random.Generator, rows: int) -> NDArray[np.uint8]:
        """Rows of bits, one for each unit."""
        return source.integers(0, 256, size=(rows, -(-len(self.values) // 8)), dtype=np.uint8)

    def add(self, bits: NDArray[np.uint8], total: Array, variance: Array) -> None:
        """Add the mean under each row of signs, and the square of its standard error, to [outputs, rows]."""
        count = len(self.values)
        ones = np.unpackbits(bits, axis=1, count=count).view(np.int8)
        signs = (2 * ones - 1).astype(np.float32)
        means = np.ascontiguousarray((signs @ self.values).T)
        means /= np.float32(count)
        total[self.outputs] += means
        variance[self.outputs] += np.maximum(self.squares[:, None] - means**2, 0) / (count - 1)


def _variance(strata: Sequence[Array]) -> Array:
    """Square of the standard error of the sum of the strata's means, [outputs]."""
    total: Array = np.sum([values.var(axis=0, ddof=1) / len(values) for values in strata], axis=0)
    return total


def _studentised(difference: Array, variance: Array) -> Array:
    """|difference| / standard error; 0 where there is no difference, infinite where the difference doesn't vary."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, np.abs(difference) / np.sqrt(variance))


def standard_error(influences: Sequence[Array]) -> Array:
    """The jackknife's standard error, [outputs], from the influences in each stratum."""
    several = [influence for influence in influences if len(influence) > 1]
    alone = np.sum([influence.sum(axis=0) for influence in influences if len(influence) == 1], axis=0)
    error = np.sqrt(np.sum([(i**2).sum(axis=0) / (len(i) * (len(i) - 1)) for i in several], axis=0))
    return np.asarray(error + alone * 0.0, dtype=np.float64)


def detectable(error: Array, level: float = LEVEL, power: float = POWER) -> Array:
    """The true difference that a two-sided test at `level` finds with this `power`, where its standard error is `error`."""
    normal = NormalDist()
    return error * (normal.inv_cdf(1 - level / 2) + normal.inv_cdf(power))


def holm(p: Array) -> Array:
    """Adjusted p of a family of tests, [tests]: rejecting those at most α keeps the chance of any false one at α.

    NaN (a test that isn't defined) stays and doesn't count.
    """
    adjusted = np.full(len(p), np.nan)
    defined = np.flatnonzero(~np.isnan(p))
    order = defined[np.argsort(p[defined], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors)) if len(order) else []
    return adjusted
