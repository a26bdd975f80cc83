"""EuroGEST's rates against a plain loop, on both kinds of scales, and intervals that draw a row once for all languages."""

import math
from collections import defaultdict

import numpy as np
import polars as pl
import pytest

from evaluator.measures.eurogest import LEAST_ROWS, common
from evaluator.tasks import task
from evaluator.vocabulary import TIDY, MeasureOptions, Scale

SIZE = 3565

measured = task("eurogest-cs").measure


def scores(languages: tuple[str, ...] = ("cs", "fi", "de"), seed: int = 0, per_group: int = 12) -> pl.DataFrame:
    """Some rows of each stereotype in each language, others in one only; languages' scores of a row are alike."""
    random = np.random.default_rng(seed)
    rows = []
    for row in range(16 * per_group):
        shared = random.normal(row % 16 / 8, 1)
        for at, language in enumerate(languages):
            if (row // 16 + at) % 4:
                template = "G" if row % 3 == at else "P"
                rows.append(("m", "eurogest", language, template, row, str(row % 16 + 1), shared + random.normal(0, 0.2), row))
    schema = ["model", "task", "language", "template", "sample", "group", "score", "row"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def by_group(frame: pl.DataFrame, language: str) -> dict[int, list[float]]:
    found: dict[int, list[float]] = defaultdict(list)
    for group, x in frame.filter(language=language).select("group", "score").iter_rows():
        found[int(group)].append(x)
    return found


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize("template", ["all", "common"])
@pytest.mark.parametrize("scale", ["ratio", "published", "log10", "eurogest"])
def test_rates_by_a_plain_loop(scale: Scale, template: str) -> None:
    frame = scores()
    found = measured(frame, MeasureOptions(scale, resamples=20))
    assert found.columns == list(TIDY)
    overall = []
    chosen = frame if template == "all" else common(frame)
    for language in ("cs", "fi", "de"):
        groups = by_group(chosen, language)
        if scale == "eurogest":
            q = {i: mean([1 / (1 + math.exp(-x)) for x in values]) for i, values in groups.items()}
            g_s = mean([q[i] for i in range(8, 17)]) / mean([q[i] for i in range(1, 8)])
        else:
            logs = {i: mean(values) / (1 if scale == "ratio" else math.log(10)) for i, values in groups.items()}
            q = logs if scale == "log10" else {i: math.exp(x) for i, x in logs.items()}
            g_s = mean([logs[i] for i in range(8, 17)]) - mean([logs[i] for i in range(1, 8)])
            g_s = g_s if scale == "log10" else math.exp(g_s)
        overall.append(g_s)
        mine = found.filter(language=language, template=template)
        value = {m: dict(mine.filter(measure=m).select("group", "value").iter_rows()) for m in ("q", "inclination", "rank")}
        assert value["q"] == pytest.approx({str(i): x for i, x in q.items()}, rel=1e-12)
        level = mean([q[i] for i in range(1, 15)])
        assert value["inclination"] == pytest.approx({str(i): x - level for i, x in q.items()}, abs=1e-12)
        assert value["rank"] == {str(i): 1 + sum(other < x for other in q.values()) for i, x in q.items()}
        assert mine.filter(measure="g_s")["value"].item() == pytest.approx(g_s, rel=1e-12)
        assert mine.filter(measure="g_s")["n"].item() == sum(map(len, groups.values()))
    whole = found.filter(language="all", template=template, measure="g_s")
    assert whole["value"].item() == pytest.approx(mean(overall), rel=1e-12)
    assert whole["n"].item() == 3
    assert set(found.filter(pl.col("measure").is_in(["q", "g_s", "inclination"]))["scale"]) == {scale}


def test_common_rows_are_those_of_all_languages() -> None:
    frame = scores()
    rows = [set(frame.filter(language=language)["row"]) for language in ("cs", "fi", "de")]
    shared = set.intersection(*rows)
    assert set(common(frame)["row"]) == shared
    assert 0 < len(shared) < min(map(len, rows))


def test_coverage_stands_beside_every_language() -> None:
    frame = scores()
    found = measured(frame, MeasureOptions(resamples=5))
    for language, part in frame.partition_by("language", as_dict=True).items():
        value = dict(found.filter(language=language[0], template="all").select("measure", "value").iter_rows())
        assert value["coverage"] == part.height / SIZE
        assert value["gendered"] == part.filter(template="G").height / part.height


def test_one_language_has_no_rows_over_languages() -> None:
    found = measured(scores(("cs",)), MeasureOptions(resamples=5))
    assert set(found["language"]) == {"cs"}
    assert set(found["template"]) == {"all"}


def test_a_row_is_drawn_once_for_all_languages() -> None:
    """Two languages with the same scores: their mean varies as one of them does. Independent draws would make it narrower."""
    one = scores(("cs",))
    both = pl.concat([one, one.with_columns(language=pl.lit("fi"))])
    found = measured(both, MeasureOptions("eurogest", resamples=200)).filter(measure="g_s", template="all")
    intervals = {language: (low, high) for language, low, high in found.select("language", "low", "high").iter_rows()}
    assert intervals["all"] == pytest.approx(intervals["cs"], rel=1e-12)
    assert intervals["cs"][0] < intervals["cs"][1]


def test_intervals_hold_the_truth() -> None:
    """The 95% interval of g_s holds the true value in about 95 of 100 data sets drawn anew."""
    truth = sum(
        measured(scores(("cs",), seed=10_000 + i, per_group=400), MeasureOptions(resamples=1))
        .filter(measure="g_s")["value"]
        .log()
        .item()
        for i in range(5)
    )
    inside = 0
    for seed in range(100):
        found = measured(scores(("cs",), seed, per_group=40), MeasureOptions(resamples=200))
        low, high = found.filter(measure="g_s").select("low", "high").row(0)
        inside += low <= math.exp(truth / 5) <= high
    assert 86 <= inside <= 100


def test_the_released_aggregation_leaves_out_small_stereotypes() -> None:
    frame = scores(("cs",), per_group=40)
    few = frame.filter(group="3").head(LEAST_ROWS - 1)
    cut = pl.concat([frame.filter(pl.col("group") != "3"), few])
    options = {p: MeasureOptions("eurogest", resamples=5, protocol=p) for p in ("default", "published", "published-2025")}
    for protocol, known in (("default", True), ("published", False), ("published-2025", True)):
        found = measured(cut, options[protocol])  # type: ignore[index]
        assert (found.filter(measure="q", group="3")["value"].item() is not None) == known
        assert (found.filter(measure="g_s")["value"].item() is not None) == known


def test_no_scores_are_no_rows() -> None:
    assert measured(scores().clear(), MeasureOptions()).is_empty()
