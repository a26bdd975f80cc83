"""Axes of the plots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.reports.svg import Axis, axis_over, tick_text

numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))


def test_linear_axis() -> None:
    axis = Axis(0, 10, 100, 200)
    assert [axis(v) for v in (0, 5, 10)] == [100, 150, 200]
    assert axis.ticks() == [0, 2, 4, 6, 8, 10]


def test_log_axis_has_equal_ratios_at_equal_distances() -> None:
    axis = Axis(0.5, 2, 0, 100, log=True)
    assert [round(axis(v)) for v in (0.5, 1, 2)] == [0, 50, 100]
    assert axis.ticks() == [0.5, 1, 2]


@given(st.lists(numbers, min_size=1, max_size=9), st.booleans())
def test_ticks_and_values_lie_within_the_axis(values: list[float], log: bool) -> None:
    axis = axis_over(values, 0, 300, log=log)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 12
    slack = (axis.high - axis.low) * 1e-6
    for value in (*values, *ticks):
        assert axis.low - slack <= value <= axis.high + slack
        assert -1 <= axis(value) <= 301


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4), st.booleans())
def test_no_number_is_too_large_or_too_small_for_an_axis(values: list[float], log: bool) -> None:
    axis = axis_over(values, 0, 300, log=log)
    for value in (*values, *axis.ticks()):
        assert -1 <= axis(value) <= 301


@pytest.mark.parametrize(
    ("value", "text"), [(0.30000000000000004, "0.3"), (0, "0"), (1e-7, "1e-07"), (1500.0, "1500"), (-0.05, "-0.05")]
)
def test_tick_text(value: float, text: str) -> None:
    assert tick_text(value) == text
