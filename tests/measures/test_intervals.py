"""Intervals of shares against their defining equations, published tables and properties that they must have."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.measures.intervals import Z95, agresti_coull, share_bounds, wilson


def test_hand_computed() -> None:
    # z² = 4 when z = 2: k = 1 of n = 4 is (1 + 2)/8 = 0.375 ± 2·sqrt(0.375·0.625/8)
    interval = agresti_coull(1, 4, z=2.0)
    assert interval.centre == 0.375
    assert interval.high - interval.centre == pytest.approx(2 * (0.375 * 0.625 / 8) ** 0.5, abs=1e-15)
    assert interval.low == pytest.approx(2 * interval.centre - interval.high, abs=1e-15)


def test_no_trials_says_that_nothing_is_known() -> None:
    assert agresti_coull(0, 0) == pytest.approx((0.0, 0.5, 1.0), abs=1e-12)


def test_is_not_clipped() -> None:
    assert agresti_coull(5, 5).high > 1
    assert agresti_coull(0, 5).low < 0


@pytest.mark.parametrize("k", [-1, 4])
@pytest.mark.parametrize("interval", [agresti_coull, wilson])
def test_impossible_counts(interval: Callable[[float, float], object], k: int) -> None:
    with pytest.raises(ValueError, match="trials"):
        interval(k, 3)


def test_wilson_by_hand() -> None:
    # z = 2, k = 1 of n = 4: ñ = 8, centre 0.375, half width 2/8·sqrt(3/4 + 1)
    assert wilson(1, 4, z=2.0) == pytest.approx((0.375 - 7**0.5 / 8, 0.375, 0.375 + 7**0.5 / 8))
    assert wilson(0, 4, z=2.0)[::2] == (0.0, 0.5)  # 4/(4 + 4)
    assert wilson(3, 3, z=2.0).high == 1.0
    assert wilson(0, 0)[::2] == (0.0, 1.0)


def test_published_shares_stay_as_printed() -> None:
    assert share_bounds(5, 5, "published") == (agresti_coull(5, 5), "Agresti-Coull")
    for interval in ("percentile", "bca"):
        assert share_bounds(5, 5, interval) == (wilson(5, 5), "Wilson")  # type: ignore[arg-type]


def test_published_machine_translation_intervals(data_dir: Path) -> None:
    """Every published [low, centre, high] is the interval of some whole counts, to the two decimals printed."""
    published = json.loads((data_dir / "gest" / "published_mt.json").read_text())
    cells = [cell for language in published["deepl"].values() for cell in language["p"]]
    possible = {tuple(round(bound, 2) for bound in agresti_coull(k, n)) for n in range(60, 261) for k in range(n + 1)}
    found = sum(tuple(cell) in possible for cell in cells)
    assert found >= 0.97 * len(cells)


counts = st.integers(0, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts)
def test_is_symmetric_and_covers_the_share(kn: tuple[int, int]) -> None:
    k, n = kn
    interval, mirrored = agresti_coull(k, n), agresti_coull(n - k, n)
    assert interval.low == pytest.approx(1 - mirrored.high, abs=1e-12)
    assert interval.centre == pytest.approx(1 - mirrored.centre, abs=1e-12)
    if n:
        assert interval.low < k / n < interval.high


@given(counts)
def test_more_trials_narrow_it(kn: tuple[int, int]) -> None:
    k, n = kn
    small, large = agresti_coull(k, n), agresti_coull(3 * k, 3 * n)
    if n:
        assert large.high - large.low < small.high - small.low


@given(counts)
def test_wilson_inverts_the_score_test_within_the_range(kn: tuple[int, int]) -> None:
    k, n = kn
    low, centre, high = wilson(k, n)
    assert 0 <= low < high <= 1
    assert centre == agresti_coull(k, n).centre
    if n:
        assert low <= k / n <= high
        # the bounds are the shares p with (k/n − p)² = z²·p(1 − p)/n
        for bound in (low, high):
            assert (k / n - bound) ** 2 == pytest.approx(Z95**2 * bound * (1 - bound) / n, abs=1e-12)
