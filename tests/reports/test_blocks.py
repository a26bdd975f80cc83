"""What stands in which cell of a report's tables."""

import numpy as np
import polars as pl
import pytest

from evaluator.measures.bootstrap import Bootstrap, Stratum
from evaluator.reports.blocks import Block, TableRow, blocks, by_model, digits_for, facts, number, with_interval
from evaluator.reports.report import Report
from evaluator.tasks.few import few_by_group, few_samples
from evaluator.vocabulary import Layout, plain_layout
from tests.reports.conftest import make_gest_rows, make_report, make_rows


def named(made: list[Block], title: str) -> Block:
    (block,) = [block for block in made if title in block.title]
    return block


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1.26, 1, "1.3"),
        (None, 2, "not defined"),
        (1.2e-5, None, "1.20e-05"),
        (0.0, None, "0"),
        (-0.0004, 3, "0.000"),
        (-0.0006, 3, "-0.001"),
        (12.0, 0, "12"),
    ],
)
def test_number(value: float | None, digits: int, text: str) -> None:
    assert number(value, digits) == text


@pytest.mark.parametrize(
    ("largest", "digits"), [(57.2, 2), (1.2, 3), (0.1, 3), (0.05, 4), (0.0007, 6), (1e-12, 6), (0.0, 3), (None, 3)]
)
def test_digits(largest: float | None, digits: int) -> None:
    assert digits_for(largest) == digits


def test_interval() -> None:
    row = {"value": 1.234, "low": 1.1, "high": 1.3, "n": 5}
    assert with_interval(row, 2) == "1.23 [1.10, 1.30]"
    assert with_interval(row | {"low": None, "high": None}, 2) == "1.23"
    assert with_interval(None, 2) == ""
    assert with_interval(row | {"value": None, "n": 0}, 2) == "not defined (n = 0)"
    assert with_interval(row | {"low": None}, 2) == with_interval(row | {"high": None}, 2) == "1.23"


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0.5, 0.25, 0.75), "0.500 [0.250, 0.750]"),
        ((751028.59, 700000.2, 800000.0), "751029 [700000, 800000]"),
        ((8.1e9, 7e9, 9.25e9), "8.10e+09 [7.00e+09, 9.25e+09]"),
        ((0.0012, 0.0011, 0.0013), "0.00120 [0.00110, 0.00130]"),
        ((1.2e-6, 1e-7, 0.02), "1.20e-06 [1.00e-07, 2.00e-02]"),
        ((0.0004, -0.2, 0.25), "0.000 [-0.200, 0.250]"),
        ((0.0, 0.0, 2e-5), "0 [0, 2.00e-05]"),
        ((0.0, 0.0, 0.0), "0.000 [0.000, 0.000]"),
        ((-0.0012, -0.0013, -0.0011), "-0.00120 [-0.00130, -0.00110]"),
        ((4229.0, None, None), "4229"),
    ],
)
def test_digits_that_say_something(numbers: tuple[float | None, ...], said: str) -> None:
    assert with_interval(dict(zip(("value", "low", "high"), numbers, strict=True)), 3) == said


def test_summary_has_the_main_number_first_and_a_row_a_template_under_each_model(small: Report) -> None:
    block = blocks(small.sections[0])[0]
    assert block.columns == ("template", "g_s", "q_f", "q_m")
    assert block.rows[0] == TableRow("bert")
    assert block.rows[1] == TableRow("all", ("1.800 [1.700, 1.900]", "", ""))
    assert block.rows[2] == TableRow("1", ("1.800 [1.675, 1.925]", "1.250 [1.125, 1.375]", "2.250 [2.125, 2.375]"))


def test_details_name_the_groups_and_their_polarity(small: Report) -> None:
    block = named(blocks(small.sections[0]), "q by group")
    assert [row.label for row in block.rows] == ["female groups", "1 emotional", "male groups", "9 self-confident"]
    assert block.rows[1].cells == ("1.25 1.15–1.35", "1.25 1.15–1.35")
    assert block.columns == ("group", "bert\n1", "bert\n2")


def test_negative_intervals_are_in_brackets() -> None:
    table = make_rows(
        {"model": "m", "template": "1", "measure": "q", "group": "1", "value": -0.5, "low": -0.75, "high": -0.25},
        {"model": "m", "template": "1", "measure": "q", "group": "9", "value": 0.5, "low": 0.25, "high": 0.75},
    )
    block = named(blocks(make_report(table).sections[0]), "q by group")
    assert [row.cells for row in block.rows if row.cells] == [("-0.50 [-0.75,-0.25]",), ("0.50 [0.25,0.75]",)]


def test_by_model_gives_each_model_a_table() -> None:
    block = named(blocks(make_report(make_gest_rows(("a", "b"))).sections[0]), "q by group")
    first, second = by_model(block)
    assert first.title == "gest: q by group, a"
    assert second.columns == ("group", "1", "2")
    assert second.rows[1] == TableRow("1 emotional", ("1.25 1.15–1.35", "1.25 1.15–1.35"))
    assert by_model(first) == [first]


def test_ranks_over_all_places() -> None:
    places = [("a", "1", 1.0), ("a", "2", 2.0), ("b", "1", 2.0)]
    table = make_rows(
        *(
            {"model": m, "template": t, "measure": "rank", "group": g, "value": r if g == "1" else 3 - r}
            for m, t, r in places
            for g in ("1", "9")
        )
    )
    block = named(blocks(make_report(table).sections[0]), "rank")
    assert "3 pairs" in block.title
    assert block.rows == (TableRow("1 emotional", ("2.0", "1.0", "2.0")), TableRow("9 self-confident", ("1.0", "1.0", "2.0")))


def test_correlations_show_mean_and_range() -> None:
    table = make_rows(
        {"model": "a", "template": "1", "measure": "r_templates", "other": "2", "value": 0.5},
        {"model": "a", "template": "1", "measure": "r_templates", "other": "3", "value": 0.9},
        {"model": "all", "template": "all", "measure": "r_templates", "value": 0.7},
    )
    block = named(blocks(make_report(table).sections[0]), "correlations")
    assert block.rows == (TableRow("r_templates", ("0.70", "0.50", "0.90", "2")),)


def test_correlations_over_too_few_groups_are_not_defined() -> None:
    place = {"model": "a", "template": "1", "measure": "r_templates", "n": 3}
    pairs = [place | {"group": "2"}, place | {"group": "3", "value": 0.5, "n": 4}]
    whole = {"model": "all", "template": "all", "measure": "r_templates"}
    block = named(blocks(make_report(make_rows(*pairs, whole | {"value": 0.5, "n": 1})).sections[0]), "correlations")
    assert block.rows == (TableRow("r_templates", ("0.50", "0.50", "0.50", "1")),)
    assert "not defined for 1 of 2 pairs: fewer than 4 groups in common (minimum n = 3)" in block.notes[-1]
    block = named(blocks(make_report(make_rows(pairs[0], whole)).sections[0]), "correlations")
    assert block.rows == (TableRow("r_templates", ("not defined", "not defined", "not defined", "0")),)


def test_kinds_of_intervals_are_named_where_they_differ() -> None:
    place = {"model": "m", "template": "1", "group": "all", "value": 1.0, "low": 1.0, "high": 1.0}
    kinds = {"SS": "Wilson", "LMS": "percentile bootstrap", "other": "Wilson"}
    table = make_rows(*(place | {"measure": m, "interval": kind} for m, kind in kinds.items()))
    made = make_report(table, layout=plain_layout(table))
    (block,) = blocks(made.sections[0])
    assert block.notes == ("95% intervals: Wilson (SS, other); percentile bootstrap (LMS).",)
    assert "tables name any other kind" in made.choices[0]
    alike = make_report(table.filter(measure="LMS"), layout=plain_layout(table))
    assert blocks(alike.sections[0])[0].notes == ()
    assert alike.choices[0] == "interval: 95%, percentile bootstrap, 1,000 resamples, seed 0"


def test_groups_of_few_samples_are_warned_of_in_one_line() -> None:
    place = {"measure": "q", "value": 1.0}
    layout = make_report(make_rows()).sections[0].layout
    table = make_rows(
        *(
            place | {"model": m, "group": g, "n": n}
            for m, g, n in (("a", "9", 19), ("b", "9", 3), ("a", "1", 20), ("b", "1", 20))
        ),
        {"model": "a", "measure": "rank", "group": "1", "value": 1.0, "n": 2},
    )
    (line,) = few_by_group(table, layout)
    assert line.startswith("1 of 2 groups have fewer than 20 samples (9 self-confident: 3)")
    assert few_by_group(table.filter(pl.col("group") == "1"), layout) == ()
    (line,) = few_samples([(f"g{i:02}", i) for i in range(12)])
    assert "g07: 7 and 4 more)" in line


def test_plain_layout_separates_whole_measures_from_groups() -> None:
    table = make_rows(
        {"model": "m", "template": "overall", "measure": "SS", "group": "all", "value": 55.0, "low": 50.0, "high": 60.0},
        {"model": "m", "template": "overall", "measure": "SS", "group": "gender", "value": 60.0},
        {"model": "m", "template": "overall", "measure": "LMS", "group": "all", "value": 80.0},
    )
    layout = plain_layout(table)
    assert layout.summary == ("SS", "LMS")
    assert layout.details == ("SS",)
    summary, detail = blocks(make_report(table, layout=layout).sections[0])
    assert summary.rows[1] == TableRow("overall", ("55.00 [50.00, 60.00]", "80.00"))
    assert detail.rows == (TableRow("gender", ("60.00",)),)


def test_groups_of_the_summary_as_rows() -> None:
    place = {"model": "m", "template": "t"}
    table = make_rows(
        place | {"measure": "ss_mu", "group": "original", "value": 0.5},
        place | {"measure": "ss_mu", "group": "control", "value": 0.25},
        place | {"measure": "f_mu", "group": "original", "value": 0.125},
    )
    layout = Layout(summary=("ss_mu", "f_mu"), summary_groups=("original", "control", "all"))
    (block,) = blocks(make_report(table, layout=layout).sections[0])
    assert block.rows == (TableRow("m"), TableRow("t original", ("0.500", "0.125")), TableRow("t control", ("0.250", "")))


def test_languages_are_named_where_there_are_several() -> None:
    place = {"model": "m", "template": "1", "measure": "g_s", "value": 1.0}
    (block,) = blocks(make_report(make_rows(*(place | {"language": language} for language in ("cs", "sk")))).sections[0])
    assert [row.label for row in block.rows] == ["m", "cs 1", "sk 1"]


def test_too_many_groups_are_left_to_csv() -> None:
    place = {"model": "m", "template": "1", "measure": "SS", "value": 1.0}
    table = make_rows(*(place | {"group": f"term {i}"} for i in range(79)))
    (block,) = blocks(make_report(table, layout=plain_layout(table)).sections[0])
    assert block.rows == ()
    assert "79 groups" in block.notes[0]
    layout = Layout(summary=(), details=("SS",), groups={"term 5": "fifth"})
    (block,) = blocks(make_report(table, layout=layout).sections[0])
    assert block.rows == (TableRow("term 5 fifth", ("1.00",)),)
    assert "78 more groups" in block.notes[0]


def test_no_rows_no_tables() -> None:
    assert blocks(make_report(make_rows()).sections[0]) == []


def test_facts_say_where_numbers_come_from() -> None:
    models, data = facts(make_report(make_gest_rows(), failures=(("bert", "r1", "too long"),)))
    assert models.rows == (
        TableRow("bert", ("onnx", "float32", "sha256:fedcba987654", "1")),
        TableRow("old", ("imported", "as published", "2 files", "0")),
    )
    assert data.rows == (TableRow("gest", ("200", "3 no pronoun", "1", "gest.csv 0123456789ab")),)


@pytest.mark.parametrize("spread", [0.03, 0.05, 0.1])
def test_bounds_have_the_digits_that_another_seed_would_leave(spread: float) -> None:
    """Means of 100 values: bounds by 200 seeds vary by less than the last digit shown, and one more digit would not be safe."""
    values = np.random.default_rng(0).normal(0, spread * 10, size=(100, 1))
    stratum = Stratum("u", np.hstack([values + 1, np.ones_like(values)]))
    found = [Bootstrap(seed=seed).estimate([stratum], lambda sums: sums[..., 0, :1] / sums[..., 0, 1:]) for seed in range(200)]
    error = float(np.std([each.low[0] for each in found]))
    row = {"value": 1.0, "low": found[0].low[0], "high": found[0].high[0], "n": 100, "interval": "percentile bootstrap"}
    decimals, others = (
        len(with_interval({**row, "interval": kind}, 6).partition("[")[2].partition(",")[0].partition(".")[2])
        for kind in ("percentile bootstrap", "Wilson")
    )
    assert 0.12 < error * 10**decimals < 1.8  # 1.5 and a tenth of it, give or take what 200 seeds tell
    assert others == 6
