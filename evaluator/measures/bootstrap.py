"""A seeded, vectorised bootstrap for every statistic that is a function of sums over sampling units.

Means, geometric means, shares, products of shares and Pearson correlations all are: give the engine, for each unit, the
addends of the sums that the statistic needs. A resample draws, within each stratum, as many units as there are, with
replacement; all columns are drawn together, so that one draw serves all templates (or both sides of a correlation) at
once. What is drawn depends only on the seed, the stratum's name and its number of units: not on which other models
are in the report, on their order, or on the number of workers.

B. Efron, R. J. Tibshirani: An Introduction to the Bootstrap (1993), chapters 13 (percentile) and 14 (BCa); acceleration
for several strata as in A. C. Davison, D. V. Hinkley: Bootstrap Methods and their Application (1997), section 5.3.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from evaluator.vocabulary import Interval, MeasureOptions
from evaluator_serving.errors import InputError
from evaluator_serving.memory import available_memory

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Statistic = Callable[[Array], Array]
"""From sums of shape […, strata, columns] to values of shape […, outputs], NaN where a value is undefined."""

PUBLISHED_Z = 1.96
"""The published intervals use this rounded quantile."""

BLOCK = 1 << 24
"""Numbers that are held at once while resamples are drawn and while they are sorted (128 MiB of float64)."""

_LEVELS = (0.025, 0.975)
_ENOUGH = 0.5
"""Share of resamples in which a statistic must be defined for it to get an interval."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """Units that are resampled among themselves.

    Attributes:
        name: part of the seed of its draws; distinct within one estimate.
        values: [units, columns], a unit's addends to each sum. A missing value is 0 with a 0 in a column of counts.
    """

    name: str
    values: Array


@dataclass(frozen=True, slots=True)
class Estimate:
    """Values of a statistic's outputs with 95% intervals, each [outputs]; NaN where undefined.

    `mean` is the mean of the resampled values: its distance from `value` estimates the statistic's bias.
    """

    value: Array
    low: Array
    high: Array
    mean: Array


class Bootstrap:
    """Makes intervals; keeps its draws, so use one instance for all models of a report.

    Intervals: `percentile`, `bca` (bias-corrected and accelerated), and `published` (normal fit: mean of the resampled
    values ± 1.96 times their population standard deviation).

    Degenerate cases: a stratum without units contributes zero sums; of a stratum with one unit the spread is unknown,
    so every output that uses it has no interval; a statistic that doesn't vary has an interval of no width; resamples
    in which a statistic is undefined are left out, and with fewer than half of them left it has no interval.
    """

    def __init__(self, interval: Interval = "percentile", resamples: int = 1000, seed: int = 0) -> None:
        if resamples < 1:
            raise ValueError(f"{resamples} resamples")
        self._interval = interval
        self._resamples = resamples
        self._seed = seed
        self._draws: dict[tuple[str, int], Array32] = {}

    @classmethod
    def of(cls, options: MeasureOptions) -> "Bootstrap":
        """The bootstrap that a report's options ask for."""
        return cls(options.interval, options.resamples, options.seed)

    def counts(self, stratum: str, units: int) -> Array32:
        """How often each resample draws each unit, [resamples, units], rows summing to `units`; cached."""
        key = (stratum, units)
        if key not in self._draws:
            (self._draws[key],) = self._drawn(stratum, units, self._resamples)
        return self._draws[key]

    def _drawn(self, stratum: str, units: int, rows: int) -> Iterator[Array32]:
        """The counts of all resamples, `rows` of them at a time: the same draws, however many."""
        name = int.from_bytes(hashlib.blake2b(stratum.encode(), digest_size=8).digest(), "little")
        random = np.random.default_rng([self._seed, name])
        for start in range(0, self._resamples, rows):
            height = min(rows, self._resamples - start)
            drawn = random.integers(units, size=(height, units))
            drawn += np.arange(height)[:, None] * units
            flat = np.bincount(drawn.ravel(), minlength=height * units)
            yield flat.reshape(height, units).astype(np.float32)

    def resampled_sums(self, strata: Sequence[Stratum]) -> Iterator[Array]:
        """Sums over each resample's units, [some resamples, strata, columns]; NaN for a stratum of one unit.

        All resamples come at once unless that took more than BLOCK numbers.
        """
        width = strata[0].values.shape[1]
        rows = max(1, BLOCK // max(len(strata) * width, *(len(s.values) for s in strata)))
        if whole := rows >= self._resamples:
            rows = self._resamples
        draws = {
            index: iter([self.counts(s.name, len(s.values))]) if whole else self._drawn(s.name, len(s.values), rows)
            for index, s in enumerate(strata)
            if len(s.values) > 1
        }
        for start in range(0, self._resamples, rows):
            sums = np.zeros((min(rows, self._resamples - start), len(strata), width))
            for index, stratum in enumerate(strata):
                if index in draws:
                    sums[:, index] = next(draws[index]) @ stratum.values
                elif len(stratum.values) == 1:
                    sums[:, index] = np.nan
            yield sums

    def estimate(self, strata: Sequence[Stratum], statistic: Statistic) -> Estimate:
        """The statistic of all units with its intervals. `strata` isn't empty, all with the same number of columns.

        Raises InputError where the resampled values don't fit into memory.
        """
        if len({stratum.name for stratum in strata}) < len(strata):
            raise ValueError("two strata of the same name would be drawn alike")
        sums = np.stack([stratum.values.sum(axis=0) for stratum in strata])
        with np.errstate(divide="ignore", invalid="ignore"):
            value = statistic(sums)
            resampled, mean = self._resampled(strata, statistic, len(value))
            acceleration = _acceleration(strata, sums, statistic) if self._interval == "bca" else value
            low, high = np.empty((2, len(value)))
            columns = max(1, BLOCK // self._resamples)
            for start in range(0, len(value), columns):
                part = slice(start, start + columns)
                low[part], high[part] = self._bounds(value[part], resampled[:, part], acceleration[part])
        return Estimate(value, low, high, mean)

    def resampled(self, strata: Sequence[Stratum], statistic: Statistic, outputs: int) -> Array:
        """The statistic of each resample, [resamples, outputs], NaN where it is undefined."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._resampled(strata, statistic, outputs)[0]

    def _resampled(self, strata: Sequence[Stratum], statistic: Statistic, outputs: int) -> tuple[Array, Array]:
        """The statistic of each resample, [resamples, outputs], NaN where it is undefined, and its means."""
        needed = self._resamples * outputs * 9  # a float64 and a mark each
        if needed > 8 * BLOCK and needed > (free := available_memory()):
            raise InputError(
                f"{self._resamples:,} resamples of {outputs:,} values would take {needed / 1e9:.1f} GB of memory, "
                f"{free / 1e9:.1f} GB are free: use fewer --resamples"
            )
        resampled = np.empty((self._resamples, outputs))
        total, start = np.zeros(outputs), 0
        for sums in self.resampled_sums(strata):
            values = statistic(sums)
            values = np.where(np.isfinite(values), values, np.nan)
            resampled[start : start + len(values)] = values
            total += np.nansum(values, axis=0)
            start += len(values)
        return resampled, total / np.isfinite(resampled).sum(axis=0)

    def _bounds(self, value: Array, resampled: Array, acceleration: Array) -> tuple[Array, Array]:
        """Both bounds of some outputs, each [outputs]."""
        if self._interval == "published":
            return _normal_fit(resampled)
        if self._interval == "bca":
            return _quantiles(resampled, _bca_levels(value, resampled, acceleration))
        return _quantiles(resampled, np.tile(np.array(_LEVELS), (len(value), 1)))


def clustered(values: Array, clusters: Sequence[Hashable]) -> Array:
    """Sums of the rows of each cluster, [clusters in order of first appearance, columns]: clusters become the units."""
    position: dict[Hashable, int] = {}
    rows = np.array([position.setdefault(cluster, len(position)) for cluster in clusters], dtype=np.int64)
    sums = np.zeros((len(position), values.shape[1]))
    np.add.at(sums, rows, values)
    return sums


def with_counts(values: Array) -> Array:
    """[units, k] with NaN for missing → [units, 2k]: the values (0 where missing), then 1 (present) or 0."""
    present = ~np.isnan(values)
    return np.concatenate([np.where(present, values, 0.0), present.astype(np.float64)], axis=1)


def means(sums: Array) -> Array:
    """Means […, k] from sums […, 2k] made by `with_counts`; NaN where nothing is present."""
    half = sums.shape[-1] // 2
    return sums[..., :half] / sums[..., half:]


def _usable(resampled: Array) -> NDArray[np.bool_]:
    """[outputs]: defined in enough resamples."""
    usable: NDArray[np.bool_] = np.isfinite(resampled).mean(axis=0) >= _ENOUGH
    return usable


def _normal_fit(resampled: Array) -> tuple[Array, Array]:
    """Mean ± 1.96 population standard deviations of each column of [resamples, outputs]."""
    low, high = np.full((2, resampled.shape[1]), np.nan)
    for output in np.flatnonzero(_usable(resampled)):
        column = resampled[:, output]
        column = column[np.isfinite(column)]
        centre, spread = column.mean(), PUBLISHED_Z * column.std()
        low[output], high[output] = centre - spread, centre + spread
    return low, high


def _quantiles(resampled: Array, levels: Array) -> tuple[Array, Array]:
    """Linear-interpolation quantiles of each column of [resamples, outputs] at its own two levels [outputs, 2]."""
    ordered = np.sort(resampled, axis=0)  # NaN last
    defined = np.isfinite(resampled).sum(axis=0)
    usable = _usable(resampled) & np.isfinite(levels).all(axis=1)
    columns = np.flatnonzero(usable)
    position = levels[columns] * (defined[columns, None] - 1)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, defined[columns, None] - 1)
    first, second = ordered[below, columns[:, None]], ordered[above, columns[:, None]]
    bounds = np.full((2, resampled.shape[1]), np.nan)
    bounds[:, columns] = (first + (second - first) * (position - below)).T
    return bounds[0], bounds[1]


def _bca_levels(value: Array, resampled: Array, acceleration: Array) -> Array:
    """Quantile levels [outputs, 2] of the BCa interval; NaN where all resamples lie on one side of the value."""
    normal = NormalDist()
    levels = np.full((len(value), 2), np.nan)
    slack = 1e-12 * np.maximum(1, np.abs(value))  # sums of a constant differ by their rounding
    defined = np.isfinite(resampled).sum(axis=0)
    less, more = (resampled < value - slack).sum(axis=0), (resampled > value + slack).sum(axis=0)
    below = (less + (defined - less - more) / 2) / defined
    for output in np.flatnonzero(_usable(resampled) & (below > 0) & (below < 1)):
        bias = normal.inv_cdf(below[output])
        for side, level in enumerate(_LEVELS):
            shifted = bias + normal.inv_cdf(level)
            levels[output, side] = normal.cdf(bias + shifted / (1 - acceleration[output] * shifted))
    return levels


def _acceleration(strata: Sequence[Stratum], sums: Array, statistic: Statistic) -> Array:
    """Acceleration [outputs] from leaving out one unit at a time; 0 where nothing varies."""
    cubes = squares = np.zeros(statistic(sums).shape)
    for index, stratum in enumerate(strata):
        units = len(stratum.values)
        if units < 2:
            continue
        left = np.repeat(sums[None], units, axis=0)
        left[:, index] -= stratum.values
        without = statistic(left)
        influence = (units - 1) * (without.mean(axis=0) - without)
        cubes = cubes + (influence**3).sum(axis=0) / units**3
        squares = squares + (influence**2).sum(axis=0) / units**2
    return np.where(squares == 0, 0.0, cubes / (6 * squares**1.5))
