"""Statistics of sentence pairs, by hand and against SciPy."""

import polars as pl
import pytest
from scipy.stats import binomtest

from evaluator.measures.intervals import wilson
from evaluator.measures.pairs import sign_test
from evaluator.tasks import task
from evaluator.vocabulary import TIDY, MeasureOptions

measured = task("pairs").measure

SCORES = {"a": [2.0, -1.0, 0.0, 3.0], "b": [-1.0, -1.0, -2.0, -0.5, -1.0, -4.0]}


def scores() -> pl.DataFrame:
    rows = [("m", "pairs", "en", "sum", group, x) for group, values in SCORES.items() for x in values]
    frame = pl.DataFrame(rows, schema=["model", "task", "language", "template", "group", "score"], orient="row")
    direction = ["stereo" if n % 2 else "antistereo" for n in range(frame.height)]
    return frame.with_row_index("sample").with_columns(pl.col("sample").cast(pl.Int64), direction=pl.Series(direction))


def test_by_hand() -> None:
    found = measured(scores(), MeasureOptions(resamples=50))
    assert found.columns == list(TIDY)
    value = {(m, g): v for m, g, v in found.select("measure", "group", "value").iter_rows()}
    assert value["share", "a"] == 2.5 / 4
    assert value["share", "b"] == 0
    assert value["share", "all"] == 2.5 / 10
    assert value["mean", "a"] == 1
    assert value["mean_abs", "a"] == 1.5
    assert value["mean", "all"] == pytest.approx(-0.55)
    assert value["share", "stereo"] == 1 / 5
    low, high, n = found.filter(measure="share", group="all").select("low", "high", "n").row(0)
    assert (low, n) == (wilson(2.5, 10).low, 10)
    assert high == wilson(2.5, 10).high
    assert value["p", "a"] == pytest.approx(1)  # 2 above, 1 below, the tie left out
    assert value["p", "b"] == pytest.approx(2 / 64)
    assert value["p_holm", "b"] == pytest.approx(4 / 64)
    assert value["p_holm", "a"] == pytest.approx(1)
    assert value["p", "all"] == pytest.approx(binomtest(2, 9).pvalue)
    assert found.filter(measure="p", group="a")["n"].item() == 3


@pytest.mark.parametrize(("above", "below"), [(0, 1), (3, 0), (5, 5), (60, 40), (900, 608), (30_000, 29_000)])
def test_the_sign_test_is_scipys(above: int, below: int) -> None:
    assert sign_test(above, below) == pytest.approx(binomtest(above, above + below).pvalue, rel=1e-9)
    assert sign_test(below, above) == sign_test(above, below)


def test_no_pair_that_differs_tests_nothing() -> None:
    assert sign_test(0, 0) == 1
    tied = scores().with_columns(score=0.0)
    found = measured(tied, MeasureOptions(resamples=5))
    assert found.filter(measure="share", group="all")["value"].item() == 0.5
    assert found.filter(measure="p", group="all").select("value", "n").row(0) == (1.0, 0)


def test_no_scores_are_no_rows() -> None:
    assert measured(scores().clear(), MeasureOptions()).is_empty()
    assert measured(scores().with_columns(score=pl.lit(None, pl.Float64)), MeasureOptions()).is_empty()
