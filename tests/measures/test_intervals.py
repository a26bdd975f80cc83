"""Agresti–Coull intervals against the defining equation, published tables and scipy-free properties."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.measures.intervals import agresti_coull, agresti_coull_columns


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


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3)])
def test_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="trials"):
        agresti_coull(k, n)


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


@settings(deadline=None)
@given(st.lists(counts, min_size=1, max_size=20))
def test_expressions_equal_numbers(pairs: list[tuple[int, int]]) -> None:
    frame = pl.DataFrame(pairs, schema={"k": pl.Int64, "n": pl.Int64}, orient="row")
    rows = frame.select(agresti_coull_columns(pl.col("k"), pl.col("n"))).rows()
    for row, (k, n) in zip(rows, pairs, strict=True):
        assert row == pytest.approx(tuple(agresti_coull(k, n)), abs=1e-12)
