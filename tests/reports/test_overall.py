"""Which rows models are compared by: over all templates, or each template by itself, never one of them as if it were all."""

import polars as pl
import pytest

from evaluator.reports.facts import ModelFacts
from evaluator.reports.figures.overview import overview
from evaluator.reports.figures.scatters import scatters
from evaluator.reports.figures.sizes import sizes
from evaluator.reports.headline import headline
from evaluator.reports.report import Section
from evaluator.tasks import task
from evaluator.vocabulary import MeasureOptions
from tests.reports.conftest import make_rows

SHARES = {"a": {"sum": 0.7, "token": 0.6, "byte": 0.3}, "b": {"sum": 0.2, "token": 0.4, "byte": 0.9}}


def section(name: str, rows: pl.DataFrame, **facts: ModelFacts) -> Section:
    return Section(name, rows, task(name).layout(MeasureOptions()), (), models=facts)  # type: ignore[arg-type]


@pytest.fixture
def pairs() -> Section:
    """Two models of which each of three metrics says something else."""
    made = [
        {"model": m, "template": t, "measure": "share", "group": "all", "value": v, "low": v - 0.1, "high": v + 0.1, "n": 50}
        for m, shares in SHARES.items()
        for t, v in shares.items()
    ]
    return section("pairs", make_rows(*made), a=ModelFacts(parameters=1e6), b=ModelFacts(parameters=1e8))


def test_each_metric_has_its_own_sentence(pairs: Section) -> None:
    meaning, *told = headline(pairs)
    assert meaning.startswith("share above 0.5")
    assert told == [
        "Template sum: Of 2 models, 1 has an interval above 0.5, 1 has an interval below 0.5. The "
        "highest share is 0.700 [0.600, 0.800] (a), the lowest 0.200 [0.100, 0.300] (b), with 95% intervals.",
        "Template token: Of 2 models, 2 have an interval that includes 0.5. The highest share is 0.600 [0.500, 0.700] "
        "(a), the lowest 0.400 [0.300, 0.500] (b), with 95% intervals.",
        "Template byte: Of 2 models, 1 has an interval above 0.5, 1 has an interval below 0.5. The "
        "highest share is 0.900 [0.800, 1.000] (b), the lowest 0.300 [0.200, 0.400] (a), with 95% intervals.",
    ]


def test_figures_let_a_metric_be_chosen_and_draw_each_as_its_own(pairs: Section) -> None:
    for figure in (*overview(pairs), *sizes(pairs)):
        assert figure.chart is not None
        (choice,) = figure.chart["params"]
        assert choice["bind"]["options"] == ["sum", "token", "byte"]
        assert "over all templates" not in figure.caption
        assert "template sum: share from 0.200 (b) to 0.700 (a)" in figure.alt
        assert figure.data.height == 6
    (main,) = overview(pairs)
    places = {(m, t): order for m, t, order in main.data.select("model", "template", "order").iter_rows()}
    assert places == {
        ("a", "sum"): 0,
        ("b", "sum"): 1,
        ("a", "token"): 0,
        ("b", "token"): 1,
        ("a", "byte"): 1,
        ("b", "byte"): 0,
    }
    assert main.data["overall"].all()


def test_the_common_sentences_of_all_languages_are_not_the_whole() -> None:
    made = [
        {"task": "eurogest", "model": "m", "language": lang, "template": t, "measure": "g_s", "value": v, "n": 2}
        for t, values in {"all": (1.5, 1.7, 1.6), "common": (3.0, 5.0, 4.0)}.items()
        for lang, v in zip(("cs", "de", "all"), values, strict=True)
    ]
    told = headline(section("eurogest", make_rows(*made)))
    assert told[1] == "g_s of m is 1.600 (95% interval)."


def test_one_test_is_not_compared_with_both() -> None:
    """A masked model without a next-sentence head has StereoSet's first test only."""
    made = [
        {"model": m, "template": t, "measure": measure, "group": "all", "value": v, "low": v - 1, "high": v + 1, "n": 9}
        for m, t, v in (("whole", "intrasentence", 40.0), ("whole", "overall", 60.0), ("half", "intrasentence", 70.0))
        for measure in ("SS", "LMS")
    ]
    it = section("stereoset-en", make_rows(*made))
    assert [text.partition(" is ")[0] for text in headline(it)[1:]] == [
        "Over all templates: SS of whole",
        "Template intrasentence: SS of half",
    ]
    main = next(iter(overview(it)))
    assert main.chart is not None
    assert "params" not in main.chart
    (scatter,) = scatters(it)
    assert sorted(scatter.data.select("model", "template").iter_rows()) == [("half", "intrasentence"), ("whole", "overall")]
