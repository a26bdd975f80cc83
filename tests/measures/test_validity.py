"""Correlations of GEST with WinoBias over models, against SciPy and by hand."""

import math
import random

import polars as pl
import pytest

from evaluator.measures import ordered
from evaluator.measures.validity import Correlated, correlations, pearson, points, spearman, within
from evaluator.reports.figures.across import validity_figures
from evaluator.vocabulary import TIDY
from evaluator.vocabulary import tidy as complete

stats = pytest.importorskip("scipy.stats", reason="SciPy is the reference here: install the dev extra")


@pytest.mark.parametrize("n", [4, 11, 40])
def test_against_scipy(n: int) -> None:
    rng = random.Random(n)
    x = [rng.gauss(0, 1) for _ in range(n)]
    y = [a + rng.gauss(0, 1) for a in x]
    y[1] = y[2]  # a tie
    expected = stats.pearsonr(x, y)
    interval = expected.confidence_interval(0.95)
    found = pearson(x, y)
    assert (found.value, found.low, found.high) == pytest.approx((expected.statistic, interval.low, interval.high))
    ranks = spearman(x, y)
    assert ranks.value == pytest.approx(stats.spearmanr(x, y).statistic)
    assert ranks.low is not None
    assert ranks.high is not None
    assert -1 < ranks.low < ranks.value < ranks.high < 1  # type: ignore[operator]


def test_spearman_interval_by_hand() -> None:
    found = spearman([1, 2, 3, 4, 5], [1, 3, 2, 4, 5])
    # r = 0.9: atanh 1.47222, error sqrt((1 + 0.405)/2) = 0.838153, ± 1.959964 of it
    assert found.value == pytest.approx(0.9)
    assert (found.low, found.high) == pytest.approx((-0.168896, 0.996069), abs=1e-5)


def test_degenerate() -> None:
    for correlate in (pearson, spearman):
        assert correlate([1, 2, 3], [1, 2, 4]) == Correlated(None, None, None, 3)
    assert pearson([1, 1, 1, 1], [1, 2, 3, 4]).value is None
    assert pearson([1.0], [2.0]).value is None
    perfect = pearson([1, 2, 3, 4], [2, 4, 6, 8])
    assert (perfect.value, perfect.low, perfect.high) == (1, 1, 1)


def tidy(rows: list[tuple[str, str, str, str, float]], task: str) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["model", "template", "measure", "group", "value"], orient="row")
    constant = {"task": task, "language": "en", "n": 1, "scale": "ratio"}
    return complete(frame.with_columns(pl.lit(value).alias(name) for name, value in constant.items()))


def test_points_and_rows() -> None:
    rates = {"a": (1.0, 3.0, 2.0), "b": (2.0, 4.0, 3.0), "c": (5.0, 5.0, 9.0), "d": (0.0, 1.0, 0.5)}
    gest = tidy(
        [
            row
            for model, (q3, q4, g) in rates.items()
            for row in (
                (model, "3", "q", "1", q3),
                (model, "4", "q", "1", q4),
                (model, "3", "g_s", "all", 99.0),
                (model, "all", "g_s", "all", g),
            )
        ],
        "gest",
    )
    check = {"a": 2.0, "b": 2.5, "c": 2.25, "d": 1.0, "only winobias": 7.0}
    winobias = tidy([(m, "type1-test", "g_hat_s", "all", v) for m, v in check.items()], "winobias")
    found = points(gest, winobias)
    assert found.filter(group="1")["x"].to_list() == [2.0, 3.0, 5.0, 0.5]  # means over the two templates
    assert found.filter(group="g_s")["x"].to_list() == [2.0, 3.0, 9.0, 0.5]
    rows = correlations(found, "ratio")
    assert rows.schema == pl.Schema(TIDY)
    r = rows.filter(group="g_s", measure="spearman").row(0, named=True)
    # ranks 2, 3, 4, 1 against 2, 4, 3, 1: 1 − 6·2/(4·15)
    assert (r["value"], r["n"], r["template"], r["scale"]) == (pytest.approx(0.8), 4, "type1-test", "ratio")
    assert rows.filter(measure="pearson").height == 2
    assert rows.filter(pl.col("low").is_not_null())["interval"].unique().to_list() == ["Fisher's z"]


@pytest.mark.parametrize("other", [[0.3] * 11, [float(i * i) for i in range(11)]])
def test_a_side_that_does_not_vary_has_no_correlation_whatever_its_mean_rounds_to(other: list[float]) -> None:
    same = [0.1] * 11
    assert pearson(same, other).value is None
    pairs = pl.DataFrame({"x": same, "y": other})
    assert math.isnan(pairs.select(ordered.pearson(pl.col("x"), pl.col("y"))).item())
    assert math.isnan(pairs.select(ordered.pearson(pl.col("y"), pl.col("x"))).item())


def test_q_beside_what_was_said() -> None:
    """Ranks by hand: q of the templates' means 2, 1, 4, 3 (the fourth of one template only) and lean 0.1, -0.3, 0.2, 0.4."""
    both = (("3", 0.5), ("4", -0.5))
    q = [("a", t, "q", g, v + shift) for t, shift in both for g, v in (("1", 2), ("2", 1), ("9", 4))]
    gest = tidy([*q, ("a", "3", "q", "10", 3.0), ("a", "3", "g_s", "", 9.0), ("b", "3", "q", "1", 1.0)], "gest")
    lean = [("1", 0.1), ("2", -0.3), ("9", 0.2), ("10", 0.4), ("11", 0.9)]
    spoken = tidy([("a", "text", "lean", g, v) for g, v in lean] + [("c", "text", "lean", "1", 0.0)], "gest-who")
    found = within(gest, spoken, "ratio")
    (r,) = found.filter(measure="spearman").iter_rows(named=True)
    # ranks 2, 1, 4, 3 and 2, 1, 3, 4: 1 - 6 · 2 / (4 · 15)
    assert (r["model"], r["template"], r["n"], r["value"]) == ("a", "text", 4, pytest.approx(0.8))
    assert found.filter(measure="q", group="2")["value"].to_list() == [1.0]
    assert found.filter(measure="lean")["value"].to_list() == [0.1, -0.3, 0.2, 0.4]
    assert set(found["task"]) == {"validity"}


def in_languages() -> pl.DataFrame:
    """GEST in two languages: q over all templates and over the common sentences, g_s by language and over both."""
    rates = {"a": (1.0, 4.0), "b": (2.0, 3.0), "c": (3.0, 2.0), "d": (4.0, 1.0)}
    rows = [
        (model, language, template, measure, group, value + (99.0 if template == "common" else 0.0))
        for model, both in rates.items()
        for language, value in (("cs", both[0]), ("de", both[1]), ("all", sum(both) / 2))
        for template in ("all", "common")
        for measure, group in (("q", "1"), ("g_s", None))
        if (language, measure) != ("all", "q")
    ]
    frame = pl.DataFrame(rows, schema=["model", "language", "template", "measure", "group", "value"], orient="row")
    return complete(frame.with_columns(task=pl.lit("eurogest"), scale=pl.lit("ratio")))


def test_languages_are_no_models_more() -> None:
    """Of a task of several languages each is correlated by itself: n is the number of models."""
    check = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    winobias = tidy([(m, "type1-test", "g_hat_s", "all", v) for m, v in check.items()], "winobias")
    found = points(in_languages(), winobias)
    assert found.filter(group="1", language="cs")["x"].to_list() == [1.0, 2.0, 3.0, 4.0]
    rows = correlations(found, "ratio").filter(measure="pearson")
    r = {
        (language, group): (value, n)
        for language, group, value, n in rows.select("language", "group", "value", "n").iter_rows()
    }
    assert r == {
        **{("cs", group): (pytest.approx(1.0), 4) for group in ("g_s", "1")},
        **{("de", group): (pytest.approx(-1.0), 4) for group in ("g_s", "1")},
        ("all", "g_s"): (None, 4),  # it is 2.5 for every model
    }
    (figure,) = validity_figures(found, correlations(found, "ratio"), "eurogest", "winobias")
    assert figure.data["x"].to_list() == [2.5] * 4
    assert "in all languages" in figure.title


def test_words_beside_each_language() -> None:
    spoken = tidy([("a", "text", "lean", "1", 0.5)], "gest-who")
    found = within(in_languages(), spoken, "ratio").filter(measure="q")
    assert found.select("language", "value").rows() == [("cs", 1.0), ("de", 4.0)]
