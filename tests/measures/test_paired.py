"""Paired comparisons: against exact enumeration by scipy, against hand-computed numbers, and by simulation."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from evaluator.measures.bootstrap import Array, Bootstrap
from evaluator.measures.paired import PairedComparison, compare, detectable, holm, pair, sign_test
from evaluator.measures.sampled import Label, Output, Sampled, Units, influences


def sampled(
    *strata: Array, statistic: Callable[[Array], Array] | None = None, ratio: bool = False, ids: list[int] | None = None
) -> Sampled:
    """One output, by default the mean of the first stratum."""
    made = [Units(f"s{i}", tuple(ids or range(len(x))), np.stack([x, np.ones(len(x))], axis=1)) for i, x in enumerate(strata)]
    mean = statistic or (lambda sums: sums[..., 0, :1] / sums[..., 0, 1:])
    return Sampled((Output(Label(None, "m"), len(strata[0]), ratio=ratio),), tuple(made), mean)


def compared(one: Sampled, other: Sampled, permutations: int = 10_000) -> PairedComparison:
    """The comparison of both on their common units."""
    both = pair(one, other)
    assert both is not None
    return compare([both], Bootstrap(), permutations)[0]


def contrast(sums: Array) -> Array:
    """Mean of the second stratum less that of the first."""
    mean = sums[..., 0] / sums[..., 1]
    return mean[..., 1:] - mean[..., :1]


def test_p_is_that_of_all_sign_changes() -> None:
    """scipy enumerates all 2^11 exchanges of the two models' values."""
    random = np.random.default_rng(5)
    a = random.normal(size=11)
    b = a + 0.6 + random.normal(0, 1, size=11)
    exact = stats.permutation_test(
        (a, b), lambda x, y: np.mean(y) - np.mean(x), permutation_type="samples", n_resamples=np.inf, vectorized=False
    )
    found = compared(sampled(a), sampled(b), 40_000)
    assert 0.01 < exact.pvalue < 0.7
    assert found.p[0] == pytest.approx(exact.pvalue, abs=4 * math.sqrt(exact.pvalue / 40_000))


def test_several_pairs_are_tested_as_each_alone() -> None:
    """With the same units, with others, and with a stratum that another pair's difference doesn't rest on."""
    random = np.random.default_rng(3)
    pairs = []
    for sizes, statistic in (((40, 7), contrast), ((40, 7), None), ((40, 8), contrast), ((40, 7), contrast)):
        sides = [sampled(*(random.normal(shift, 1, size) for size in sizes), statistic=statistic) for shift in (0, 0.3)]
        both = pair(*sides)
        assert both is not None
        pairs.append(both)
    together = compare(pairs, Bootstrap(), 3000)
    alone = [compare([each], Bootstrap(), 3000)[0] for each in pairs]
    assert len({found.p[0] for found in alone}) == len(pairs)
    for one, other in zip(together, alone, strict=True):
        for name in PairedComparison.__slots__:
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_p_of_shares_counts_ties() -> None:
    """Three wins and one loss: of 16 changes of sign those with a sum of 2 or 4 on either side, 10, are as far off."""
    a, b = np.zeros(8), np.array([1.0, 1, 1, -1, 0, 0, 0, 0])
    as_far = sum(abs(sum(signs)) >= 2 for signs in itertools.product((-1, 1), repeat=4)) / 16
    assert as_far == 10 / 16
    assert compared(sampled(a), sampled(b), 20_000).p[0] == pytest.approx(as_far, abs=0.015)


@pytest.mark.filterwarnings("error")
def test_units_that_differ_by_hundreds_of_magnitudes_tell_nothing_without_a_warning() -> None:
    """Logs of ±400: their mean's standard error is 400, of which 2.8 times are beyond every float64 as a ratio."""

    def geometric(sums: Array) -> Array:
        return np.exp(sums[..., 0, :1] / sums[..., 0, 1:])

    far, same = np.array([400.0, -400.0]), np.zeros(2)
    found = compared(sampled(same, statistic=geometric, ratio=True), sampled(far, statistic=geometric, ratio=True))
    assert (found.detectable_low[0], found.detectable_high[0]) == (-1, np.inf)


def test_a_shift_of_everything_hides_no_difference_of_a_contrast() -> None:
    """All values of one model are 3 higher, one stratum's 0.6 more: without studentising the shift would be taken for noise."""
    random = np.random.default_rng(1)
    a = [random.normal(size=100) for _ in range(2)]
    b = [values + 3 + extra + random.normal(0, 1, size=100) for values, extra in zip(a, (0, 0.6), strict=True)]
    found = compared(sampled(*a, statistic=contrast), sampled(*b, statistic=contrast))
    d = [y - x for x, y in zip(a, b, strict=True)]
    welch = stats.ttest_ind(d[1], d[0], equal_var=False)
    assert found.difference[0] == pytest.approx(d[1].mean() - d[0].mean(), rel=1e-12)
    assert welch.pvalue < 0.01
    assert found.p[0] == pytest.approx(welch.pvalue, rel=0.5, abs=5e-4)
    error = math.sqrt(sum(x.var(ddof=1) / 100 for x in d))
    detectable = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * error
    assert (found.detectable_low[0], found.detectable_high[0]) == pytest.approx((-detectable, detectable), rel=1e-9)


def test_equal_models_differ_in_nothing() -> None:
    values = np.random.default_rng(0).normal(size=30)
    found = compared(sampled(values), sampled(values.copy()))
    assert (found.difference[0], found.low[0], found.high[0], found.p[0], found.detectable_high[0]) == (0, 0, 0, 1, 0)
    assert found.n[0] == 30


def test_a_difference_without_spread_is_certain() -> None:
    values = np.arange(12.0)
    assert compared(sampled(values), sampled(values + 0.25), 999).p[0] == 1 / 1000


def test_ratios_are_tested_in_logarithms() -> None:
    """Detectable of a ratio 2 whose logarithm has the error e: 2 · (exp(±2.80 e) − 1)."""
    random = np.random.default_rng(3)
    x = random.normal(math.log(2), 0.5, size=200)
    y = x + random.normal(0, 0.5, size=200)

    def geometric(sums: Array) -> Array:
        return np.exp(sums[..., 0, :1] / sums[..., 0, 1:])

    found = compared(sampled(x, statistic=geometric, ratio=True), sampled(y, statistic=geometric, ratio=True))
    step = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * (y - x).std(ddof=1) / math.sqrt(200)
    down, up = (math.exp(x.mean()) * math.expm1(sign * step) for sign in (-1, 1))
    assert (found.detectable_low[0], found.detectable_high[0]) == pytest.approx((down, up), rel=1e-6)
    assert found.difference[0] == pytest.approx(math.exp(y.mean()) - math.exp(x.mean()))
    assert found.low[0] < found.difference[0] < found.high[0]


def test_units_that_only_one_has_are_left_out() -> None:
    one = sampled(np.array([1.0, 2, 4]), ids=[5, 6, 7])
    other = sampled(np.array([40.0, 10, 20]), ids=[7, 5, 9])
    both = pair(one, other)
    assert both is not None
    assert both.alone == 2
    (found,) = compare([both], Bootstrap(), 99)
    assert (found.baseline[0], found.model[0], found.n[0]) == (2.5, 25, 2)


def test_tiny_values_are_no_rounding() -> None:
    """Probabilities of 1e-22 differ as clearly as ones of 0.1."""
    random = np.random.default_rng(9)
    a = random.uniform(1, 2, size=40)
    b = a * 1.5
    large, small = (compared(sampled(a * unit), sampled(b * unit), 999) for unit in (0.1, 1e-22))
    assert small.p[0] == large.p[0] == 1 / 1000
    assert small.n[0] == 40
    assert small.detectable_high[0] == pytest.approx(large.detectable_high[0] * 1e-21, rel=1e-6)


def test_what_is_not_defined_has_no_p() -> None:
    alone = sampled(np.array([1.0]))
    assert np.isnan(compared(alone, sampled(np.array([2.0])), 99).p[0])
    assert np.isnan(sign_test([("s", np.zeros((4, 1)))], np.array([np.nan]), 9)[0])


def test_influences_of_a_mean_and_of_a_ratio() -> None:
    """A mean's are the distances from it; of a ratio of sums R = Σy/Σx they are near (y − R x) / x̄."""
    random = np.random.default_rng(2)
    x, y = random.uniform(1, 2, size=(2, 500))

    def both(sums: Array) -> Array:
        return np.stack([sums[..., 0, 0] / sums[..., 0, 2], sums[..., 0, 0] / sums[..., 0, 1]], axis=-1)

    (found,) = influences([np.stack([y, x, np.ones(500)], axis=1)], both)
    assert found[:, 0] == pytest.approx(y - y.mean(), abs=1e-12)
    ratio = y.sum() / x.sum()
    assert found[:, 1] == pytest.approx((y - ratio * x) / x.mean(), abs=0.01)


def test_holm_by_hand() -> None:
    """0.01·4, then 0.02·3 = 0.06, then max(0.06, 0.03·2) = 0.06, then 0.5; what isn't defined doesn't count."""
    p = np.array([0.5, 0.01, np.nan, 0.03, 0.02])
    assert holm(p) == pytest.approx([0.5, 0.04, np.nan, 0.06, 0.06], nan_ok=True)
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).size == 0


def test_the_detectable_effect_is_found_four_times_in_five() -> None:
    random = np.random.default_rng(11)
    size = detectable(np.array([1 / math.sqrt(200)]))[0]
    found = [
        sign_test([("s", d - d.mean(axis=0))], d.mean(axis=0), 400)[0] <= 0.05
        for d in (random.normal(size, 1, size=(200, 1)) for _ in range(300))
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=0.07)


def test_the_test_rejects_as_often_as_it_says() -> None:
    """500 independent outputs at once, skewed differences, under the null hypothesis."""
    d = np.random.default_rng(4).choice([-1, 1], size=(200, 500)) * np.random.default_rng(5).exponential(size=(200, 500))
    p = sign_test([("s", d - d.mean(axis=0))], d.mean(axis=0), 400)
    assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=0.025)
