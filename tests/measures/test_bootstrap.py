"""The bootstrap engine against scipy, normal theory, hand-computed cases and its own promises."""

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from evaluator.measures import bootstrap
from evaluator.measures.bootstrap import Array, Bootstrap, Stratum, clustered, means, with_counts
from evaluator_serving.errors import InputError


def mean(sums: Array) -> Array:
    """Mean of one column in one stratum (columns: value, 1)."""
    return means(sums)[..., 0, :]


def column(*values: float) -> Array:
    return with_counts(np.array(values, dtype=float)[:, None])


def product_of_means(sums: Array) -> Array:
    """exp(mean of the first stratum) · mean of the second: not linear, two strata."""
    m = means(sums)
    return np.exp(m[..., 0, :]) * m[..., 1, :]


def skewed(seed: int, size: int) -> Array:
    return np.random.default_rng(seed).exponential(size=size)


@pytest.mark.parametrize(("interval", "method"), [("percentile", "percentile"), ("bca", "BCa")])
def test_two_strata_agree_with_scipy(interval: str, method: str) -> None:
    first, second = skewed(1, 40), skewed(2, 25)
    resamples = 40_000
    ours = Bootstrap(interval, resamples, seed=3).estimate(  # type: ignore[arg-type]
        [Stratum("1", column(*first)), Stratum("2", column(*second))], product_of_means
    )
    theirs = stats.bootstrap(
        (first, second),
        lambda x, y, axis: np.exp(x.mean(axis)) * y.mean(axis),
        n_resamples=resamples,
        method=method,
        rng=np.random.default_rng(4),
    ).confidence_interval
    assert ours.value[0] == pytest.approx(np.exp(first.mean()) * second.mean())
    assert ours.low[0] == pytest.approx(theirs.low, rel=0.02)
    assert ours.high[0] == pytest.approx(theirs.high, rel=0.02)


@pytest.mark.parametrize(("interval", "method"), [("percentile", "percentile"), ("bca", "BCa")])
def test_same_resamples_as_scipy_give_the_same_interval(interval: str, method: str) -> None:
    """Given our own resampled means, scipy's percentile and BCa intervals are ours to the last digits."""
    values = skewed(5, 12)
    bootstrap = Bootstrap(interval, 999, seed=0)  # type: ignore[arg-type]
    ours = bootstrap.estimate([Stratum("s", column(*values))], mean)
    distribution = bootstrap.counts("s", 12) @ values / 12
    if method == "percentile":
        low, high = np.percentile(distribution, [2.5, 97.5])
    else:  # the textbook formulas (Efron and Tibshirani 14.10, 14.14, 14.15) for a mean
        z0 = stats.norm.ppf(np.mean(distribution < values.mean()))
        left = np.array([np.delete(values, i).mean() for i in range(12)])
        centred = left.mean() - left
        a = (centred**3).sum() / (6 * (centred**2).sum() ** 1.5)
        shifted = z0 + stats.norm.ppf([0.025, 0.975])
        low, high = np.quantile(distribution, stats.norm.cdf(z0 + shifted / (1 - a * shifted)))
    assert (ours.low[0], ours.high[0]) == pytest.approx((low, high), rel=1e-12)


def test_published_interval_is_a_normal_fit_of_the_resampled_means() -> None:
    values = skewed(6, 30)
    bootstrap = Bootstrap("published", 1000, seed=1)
    ours = bootstrap.estimate([Stratum("s", column(*values))], mean)
    resampled = [sum(c * v for c, v in zip(row, values, strict=True)) / 30 for row in bootstrap.counts("s", 30)]
    centre = sum(resampled) / 1000
    spread = 1.96 * (sum((r - centre) ** 2 for r in resampled) / 1000) ** 0.5
    assert (ours.low[0], ours.high[0]) == pytest.approx((centre - spread, centre + spread), rel=1e-6)
    assert spread == pytest.approx(1.96 * values.std() / 30**0.5, rel=0.1)  # normal theory


@pytest.mark.parametrize("interval", ["percentile", "bca", "published"])
def test_correlation_of_two_columns_is_drawn_together(interval: str) -> None:
    """Drawn apart, the correlation of y = 2x would not be 1 in every resample."""
    x = skewed(7, 20)
    y = 2 * x

    def pearson(sums: Array) -> Array:
        n, sx, sy, sxx, syy, sxy = (sums[..., 0, k] for k in range(6))
        return ((n * sxy - sx * sy) / np.sqrt((n * sxx - sx**2) * (n * syy - sy**2)))[..., None]

    addends = np.stack([np.ones(20), x, y, x * x, y * y, x * y], axis=1)
    estimate = Bootstrap(interval, 200).estimate([Stratum("s", addends)], pearson)  # type: ignore[arg-type]
    assert (estimate.value[0], estimate.low[0], estimate.high[0]) == pytest.approx((1, 1, 1), abs=1e-9)


@pytest.mark.parametrize("interval", ["percentile", "bca", "published"])
class TestDegenerate:
    def run(self, interval: str, *strata: Array) -> tuple[float, float, float]:
        given_ = [Stratum(str(i), s) for i, s in enumerate(strata)]
        estimate = Bootstrap(interval, 100).estimate(given_, mean)  # type: ignore[arg-type]
        return estimate.value[0], estimate.low[0], estimate.high[0]

    def test_no_unit(self, interval: str) -> None:
        assert np.isnan(self.run(interval, np.zeros((0, 2)))).all()

    def test_one_unit_has_a_value_but_no_interval(self, interval: str) -> None:
        value, low, high = self.run(interval, column(0.3))
        assert value == 0.3
        assert np.isnan([low, high]).all()

    def test_one_unit_in_a_stratum_that_is_not_used(self, interval: str) -> None:
        _, low, high = self.run(interval, column(0.0, 1.0, 2.0), column(9.0))
        assert low < 1 < high

    def test_no_variation(self, interval: str) -> None:
        assert self.run(interval, column(*[0.1] * 7)) == pytest.approx((0.1, 0.1, 0.1), abs=1e-12)

    def test_all_missing(self, interval: str) -> None:
        assert np.isnan(self.run(interval, column(np.nan, np.nan))).all()

    def test_missing_values_do_not_count(self, interval: str) -> None:
        value, low, high = self.run(interval, column(1.0, 3.0, 2.0, 2.0, np.nan, 2.0))
        assert value == 2.0
        assert 1 <= low <= 2 <= high <= 3

    def test_one_present_value_of_many(self, interval: str) -> None:
        value, low, high = self.run(interval, column(5.0, *[np.nan] * 39))
        assert value == 5.0
        # it is drawn at least once in 1 − (1 − 1/40)^40 ≈ 64% of the resamples, and those are enough
        if interval == "bca":  # but leaving out the only value leaves nothing to estimate the acceleration from
            assert np.isnan([low, high]).all()
        else:
            assert (low, high) == (5.0, 5.0)


def test_undefined_in_most_resamples() -> None:
    def only_if_first_drawn_twice(sums: Array) -> Array:
        return np.where(sums[..., 0, :1] >= 2, sums[..., 0, :1], np.nan)

    units = np.zeros((50, 1))
    units[0] = 1.0
    estimate = Bootstrap("percentile", 500).estimate([Stratum("s", units)], only_if_first_drawn_twice)
    assert np.isnan([estimate.low[0], estimate.high[0]]).all()


@pytest.mark.parametrize("interval", ["percentile", "bca", "published"])
def test_infinite_resamples_are_left_out(interval: str) -> None:
    """1 / (first unit drawn or not) is infinite in about a third of the resamples; the others have a plain interval."""

    def over_first(sums: Array) -> Array:
        return 1 / sums[..., 0, :1]

    units = np.zeros((30, 1))
    units[0] = 1.0
    bootstrap = Bootstrap(interval, 400)  # type: ignore[arg-type]
    estimate = bootstrap.estimate([Stratum("s", units)], over_first)
    drawn = bootstrap.counts("s", 30)[:, 0]
    finite = np.sort(1 / drawn[drawn > 0].astype(float))
    if interval == "percentile":
        assert (estimate.low[0], estimate.high[0]) == pytest.approx(tuple(np.quantile(finite, [0.025, 0.975])))
    elif interval == "published":
        assert estimate.high[0] == pytest.approx(finite.mean() + 1.96 * finite.std())
    else:  # left out, the unit leaves nothing to divide by: no acceleration, so no interval
        assert np.isnan(estimate.low[0])


def test_draws_depend_on_seed_and_name_only() -> None:
    first, again = Bootstrap(seed=1, resamples=50), Bootstrap(seed=1, resamples=50)
    again.counts("other", 9)
    np.testing.assert_array_equal(first.counts("g", 9), again.counts("g", 9))
    assert (first.counts("g", 9) != Bootstrap(seed=2, resamples=50).counts("g", 9)).any()
    assert (first.counts("g", 9) != first.counts("h", 9)).any()
    assert (first.counts("g", 9).sum(axis=1) == 9).all()


def test_strata_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        Bootstrap().estimate([Stratum("a", column(1.0, 2.0)), Stratum("a", column(1.0, 2.0))], mean)


def test_draws_are_uniform() -> None:
    """Each unit's count is Binomial(n, 1/n): mean 1, variance 1 − 1/n."""
    counts = Bootstrap(resamples=20_000).counts("u", 10)
    assert counts.mean(axis=0) == pytest.approx(np.ones(10), abs=0.04)
    assert counts.var(axis=0) == pytest.approx(np.full(10, 0.9), abs=0.06)


def test_clusters_are_the_units() -> None:
    """Ten copies of each original: the interval is the originals', not √10 narrower."""
    originals = skewed(8, 60)
    copies = np.repeat(originals, 10)
    labels: Sequence[str] = [f"o{i}" for i in range(60) for _ in range(10)]
    bootstrap = Bootstrap("percentile", 2000)
    alone = bootstrap.estimate([Stratum("s", column(*originals))], mean)
    grouped = clustered(column(*copies), labels)
    assert grouped.shape == (60, 2)
    together = bootstrap.estimate([Stratum("s", grouped)], mean)
    assert together.value[0] == pytest.approx(alone.value[0])
    assert together.low[0] == pytest.approx(alone.low[0])
    naive = bootstrap.estimate([Stratum("s", column(*copies))], mean)
    ratio = (together.high - together.low) / (naive.high - naive.low)
    assert ratio[0] == pytest.approx(10**0.5, rel=0.1)


def test_clusters_in_any_order() -> None:
    sums = clustered(np.array([[1.0, 1], [2, 1], [4, 1]]), ["a", "b", "a"])
    np.testing.assert_array_equal(sums, [[5, 2], [2, 1]])


samples = arrays(np.float64, st.integers(2, 15), elements=st.floats(-20, 20).map(lambda x: round(x, 3)))


@settings(max_examples=60, deadline=None)
@given(samples, st.sampled_from(["percentile", "bca"]))
def test_interval_stays_within_the_data(values: Array, interval: str) -> None:
    estimate = Bootstrap(interval, 199).estimate([Stratum("s", column(*values))], mean)  # type: ignore[arg-type]
    if np.isfinite(estimate.low[0]):
        assert values.min() - 1e-9 <= estimate.low[0] <= estimate.high[0] <= values.max() + 1e-9


@settings(max_examples=60, deadline=None)
@given(samples, st.sampled_from(["percentile", "bca", "published"]), st.floats(0.1, 10), st.floats(-5, 5))
def test_interval_moves_with_the_unit(values: Array, interval: str, scale: float, shift: float) -> None:
    """Intervals of a·x + b are a·interval + b (a > 0): converting scales needs no re-scoring."""
    if np.ptp(values) == 0:
        return
    bootstrap = Bootstrap(interval, 199)  # type: ignore[arg-type]
    plain = bootstrap.estimate([Stratum("s", column(*values))], mean)
    moved = bootstrap.estimate([Stratum("s", column(*(scale * values + shift)))], mean)
    expected = scale * np.array([plain.low[0], plain.high[0]]) + shift
    np.testing.assert_allclose([moved.low[0], moved.high[0]], expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(arrays(float, st.tuples(st.integers(1, 8), st.integers(1, 3)), elements=st.sampled_from([np.nan, 0.5, 2.0])))
def test_means_of_what_is_present(values: Array) -> None:
    with np.errstate(invalid="ignore"):
        ours = means(with_counts(values).sum(axis=0))
    for index in range(values.shape[1]):
        present = [v for v in values[:, index] if v == v]
        assert ours[index] == pytest.approx(sum(present) / len(present) if present else np.nan, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("interval", ["percentile", "bca", "published"])
def test_coverage(interval: str) -> None:
    """Nominal 95% intervals of a normal mean with n = 50 cover it in about 94% of 800 experiments."""
    random = np.random.default_rng(11)
    hits = 0
    for seed in range(800):
        bootstrap = Bootstrap(interval, 400, seed)  # type: ignore[arg-type]
        estimate = bootstrap.estimate([Stratum("s", column(*random.normal(size=50)))], mean)
        hits += bool(estimate.low[0] <= 0 <= estimate.high[0])
    assert 0.91 <= hits / 800 <= 0.97


@pytest.mark.parametrize("interval", ["percentile", "bca", "published"])
def test_many_resamples_in_blocks_are_the_same_draws(monkeypatch: pytest.MonkeyPatch, interval: Any) -> None:
    strata = [Stratum("1", column(*skewed(1, 30))), Stratum("2", column(*skewed(2, 7))), Stratum("none", column()[:0])]
    whole = Bootstrap(interval, 1003, seed=5).estimate(strata, product_of_means)
    monkeypatch.setattr(bootstrap, "BLOCK", 30 * 50)
    blocks = Bootstrap(interval, 1003, seed=5).estimate(strata, product_of_means)
    for name in ("value", "low", "high", "mean"):
        assert getattr(blocks, name) == pytest.approx(getattr(whole, name), rel=1e-12)


def test_memory_does_not_grow_with_units_times_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "BLOCK", 1 << 18)
    stratum = Stratum("1", column(*skewed(1, 500)))
    tracemalloc.start()
    Bootstrap(resamples=20_000).estimate([stratum], mean)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20  # all draws at once: 20,000 x 500 numbers of 8 bytes, 80 MB


def test_what_does_not_fit_is_refused_with_what_it_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "available_memory", lambda: 10**9)
    with pytest.raises(
        InputError, match=r"1,000,000,000 resamples of 1 values would take 9\.0 GB .* 1\.0 GB are free: .*fewer"
    ):
        Bootstrap(resamples=10**9).estimate([Stratum("1", column(1, 2))], mean)
