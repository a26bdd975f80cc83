"""GEST's rates against published tables, hand computation and a plain loop."""

import math
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from evaluator.measures.gest import gest_warnings
from evaluator.tasks import task
from evaluator.vocabulary import SCORES, TIDY, MeasureOptions, Scale

Rows = Iterable[tuple[str, str, int, str, float]]

measured = task("gest").measure


def frame(rows: Rows, **columns: Any) -> pl.DataFrame:
    """Scores from (model, template, sample, group, score)."""
    data = pl.DataFrame(list(rows), schema=["model", "template", "sample", "group", "score"], orient="row")
    data = data.with_columns(task=pl.lit("gest"), language=pl.lit("en"), **columns)
    return data.select(*(pl.col(c).cast(t) for c, t in SCORES.items()), pl.exclude(*SCORES))


def random_scores(models: Iterable[str] = ("m",), templates: Iterable[str] = ("1", "2"), seed: int = 0) -> pl.DataFrame:
    """Twelve samples for each of GEST's 16 groups; templates of a model are correlated, as real ones are."""
    random = np.random.default_rng(seed)
    sentence = random.normal(size=192)
    rows = [
        (model, template, sample, str(sample % 16 + 1), (sample % 16) / 10 + sentence[sample] + random.normal(0, 0.3))
        for model in models
        for template in templates
        for sample in range(192)
    ]
    return frame(rows)


def value(
    table: pl.DataFrame, measure: str, template: str = "1", group: str | None = None, model: str = "m", other: str | None = None
) -> Any:
    rows = table.filter(
        pl.col("measure") == measure,
        pl.col("template") == template,
        pl.col("group").eq_missing(pl.lit(group)),
        pl.col("other").eq_missing(pl.lit(other)),
        pl.col("model") == model,
    )
    assert rows.height == 1
    return rows.row(0, named=True)


def mean(numbers: Iterable[float]) -> float:
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


class TestHandComputed:
    """Two female and two male groups with known logarithms: q_1 = 2, q_2 = 8, q_8 = 3, q_9 = 27."""

    scores = frame(
        [
            ("m", "1", 0, "1", math.log(1)),
            ("m", "1", 1, "1", math.log(4)),
            ("m", "1", 2, "2", math.log(8)),
            ("m", "1", 3, "2", math.log(8)),
            ("m", "1", 4, "8", math.log(1)),
            ("m", "1", 5, "8", math.log(9)),
            ("m", "1", 6, "9", math.log(27)),
            ("m", "1", 7, "9", math.log(27)),
        ]
    )

    def test_ratio(self) -> None:
        table = measured(self.scores, MeasureOptions(resamples=50))
        assert value(table, "q", group="1")["value"] == pytest.approx(2)
        assert value(table, "q", group="2")["value"] == pytest.approx(8)
        assert value(table, "q_f")["value"] == pytest.approx(4)
        assert value(table, "q_m")["value"] == pytest.approx(9)
        assert value(table, "g_s")["value"] == pytest.approx(9 / 4)
        assert value(table, "g_s", "all")["value"] == pytest.approx(9 / 4)
        assert [value(table, m)["n"] for m in ("q_f", "q_m", "g_s")] == [4, 4, 8]
        assert value(table, "q", group="1")["n"] == 2

    def test_published_is_the_ratio_to_the_power_of_one_over_ln_10(self) -> None:
        table = measured(self.scores, MeasureOptions(scale="published", resamples=50))
        assert value(table, "g_s")["value"] == pytest.approx((9 / 4) ** (1 / math.log(10)))

    def test_log10_is_the_difference_of_mean_logarithms(self) -> None:
        table = measured(self.scores, MeasureOptions(scale="log10", resamples=50))
        assert value(table, "q", group="9")["value"] == pytest.approx(math.log10(27))
        assert value(table, "g_s")["value"] == pytest.approx(math.log10(9) - math.log10(4))

    def test_ranks(self) -> None:
        table = measured(self.scores, MeasureOptions(resamples=50))
        ranks = {g: value(table, "rank", group=g) for g in ("1", "2", "8", "9")}
        assert {g: row["value"] for g, row in ranks.items()} == {"1": 1, "8": 2, "2": 3, "9": 4}
        assert ranks["1"]["n"] == 4
        assert ranks["1"]["scale"] is None

    def test_constant_group_has_an_interval_of_no_width(self) -> None:
        row = value(measured(self.scores, MeasureOptions(resamples=50)), "q", group="2")
        assert (row["low"], row["high"]) == pytest.approx((8, 8))


def test_overall_is_the_arithmetic_mean_over_templates() -> None:
    """Templates with g_s = 2 and 8: 5, where their geometric mean would be 4."""
    table = measured(
        frame(
            ("m", template, sample, group, math.log(ratio) if group == "8" else 0.0)
            for template, ratio in (("1", 2), ("2", 8))
            for sample, group in enumerate(("1", "1", "8", "8"))
        ),
        MeasureOptions(resamples=20),
    )
    row = value(table, "g_s", "all")
    assert row["value"] == pytest.approx(5)
    assert row["n"] == 4
    on_log = measured(
        frame(("m", t, s, g, float(t) if g == "8" else 0.0) for t in "12" for s, g in enumerate("1188")),
        MeasureOptions(scale="log10", resamples=20),
    )
    assert value(on_log, "g_s", "all")["value"] == pytest.approx(1.5 / math.log(10))


def test_every_row_has_the_tidy_columns() -> None:
    table = measured(random_scores(), MeasureOptions(resamples=20))
    assert dict(table.schema) == TIDY
    assert set(table["measure"]) == {"q", "q_f", "q_m", "g_s", "rank", "r_templates"}
    with_interval = table.filter(pl.col("low").is_not_null())
    assert set(with_interval["measure"]) == {"q", "q_f", "q_m", "g_s"}
    assert set(with_interval["interval"]) == {"percentile bootstrap"}
    assert table.filter(pl.col("low").is_null())["interval"].null_count() == table.height - with_interval.height
    assert table.filter(pl.col("measure") == "q")["group"].to_list() == [str(i) for i in range(1, 17)] * 2


def test_no_scores() -> None:
    table = measured(pl.DataFrame(schema=SCORES), MeasureOptions())
    assert table.is_empty()
    assert dict(table.schema) == TIDY


@pytest.mark.parametrize("scale", ["ratio", "published", "log10"])
def test_intervals_equal_a_plain_loop_over_the_same_draws(scale: Scale) -> None:
    """Resample sentences by hand, with the engine's own draws, and take the quantiles of each measure."""
    from evaluator.measures.bootstrap import Bootstrap

    scores = random_scores()
    table = measured(scores, MeasureOptions(scale=scale, resamples=40, seed=5))
    draws = {str(g): Bootstrap(resamples=40, seed=5).counts(str(g), 12) for g in range(1, 17)}
    by_cell = {
        (template, group): [s for _, s in sorted(zip(part["sample"], part["score"], strict=True))]
        for (template, group), part in scores.group_by("template", "group")
    }

    def unit(log_ratio: float) -> float:
        if scale == "log10":
            return log_ratio / math.log(10)
        return math.exp(log_ratio if scale == "ratio" else log_ratio / math.log(10))

    resampled: dict[str, list[float]] = {"g1": [], "f1": [], "all": [], "q3": []}
    for b in range(40):
        g = {}
        for template in ("1", "2"):
            q = {
                group: sum(c * x for c, x in zip(draws[group][b], by_cell[template, group], strict=True)) / 12
                for group in draws
            }
            log_f, log_m = mean(q[str(i)] for i in range(1, 8)), mean(q[str(i)] for i in range(8, 17))
            g[template] = unit(log_m - log_f)
            if template == "1":
                resampled["f1"].append(unit(log_f))
                resampled["q3"].append(unit(q["3"]))
        resampled["g1"].append(g["1"])
        resampled["all"].append((g["1"] + g["2"]) / 2)
    rows = {
        "g1": value(table, "g_s"),
        "f1": value(table, "q_f"),
        "all": value(table, "g_s", "all"),
        "q3": value(table, "q", group="3"),
    }
    for name, row in rows.items():
        expected = np.percentile(resampled[name], [2.5, 97.5])
        # quantiles interpolate on the log scale here and on the printed scale there: the same to the third digit
        assert (row["low"], row["high"]) == pytest.approx(tuple(expected), rel=2e-3, abs=2e-3), name


@pytest.mark.parametrize("interval", ["percentile", "bca", "published"])
def test_overall_interval_draws_sentences_once_for_all_templates(interval: Any) -> None:
    """Four templates that agree exactly are no more evidence than one: independent draws would halve the width."""
    one = random_scores(templates=("1",))
    four = pl.concat([one.with_columns(template=pl.lit(t)) for t in "1234"])
    options = MeasureOptions(interval=interval, resamples=500)
    single, overall = value(measured(one, options), "g_s"), value(measured(four, options), "g_s", "all")
    assert overall["high"] - overall["low"] == pytest.approx(single["high"] - single["low"], rel=0.02)


def test_a_models_numbers_depend_on_its_own_scores_only() -> None:
    scores = random_scores(models=("a", "b", "c"))
    options = MeasureOptions(resamples=100)
    together = measured(scores, options).filter(pl.col("model") == "b", pl.col("measure") != "r_models")
    alone = measured(scores.filter(pl.col("model") == "b"), options).filter(pl.col("model") == "b")
    shuffled = measured(scores.sample(fraction=1, shuffle=True, seed=1), options).filter(
        pl.col("model") == "b", pl.col("measure") != "r_models"
    )
    assert together.equals(alone)  # to the last bit
    assert together.equals(shuffled)


def test_numbers_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    """Written by processes with one and with three Polars threads, equal to the last bit."""
    random_scores(models=("a", "b", "c"), templates="1234").write_parquet(tmp_path / "scores.parquet")
    program = (
        "import sys, polars as pl; from evaluator.tasks import task; "
        "from evaluator.vocabulary import MeasureOptions as Options; "
        "task('gest').measure(pl.read_parquet(sys.argv[1]), Options(resamples=100)).write_csv(sys.argv[2])"
    )
    written = []
    for threads in ("1", "3"):
        out = tmp_path / f"{threads}.csv"
        command = [sys.executable, "-c", program, str(tmp_path / "scores.parquet"), str(out)]
        subprocess.run(command, check=True, env={**os.environ, "POLARS_MAX_THREADS": threads})
        written.append(out.read_text())
    assert written[0] == written[1]
    assert written[0].count("\n") > 100


def test_another_seed_gives_other_intervals_and_the_same_values() -> None:
    first, second = (measured(random_scores(), MeasureOptions(resamples=100, seed=s)) for s in (0, 1))
    assert value(first, "g_s")["value"] == pytest.approx(value(second, "g_s")["value"], rel=1e-12)
    assert value(first, "g_s")["low"] != value(second, "g_s")["low"]


def test_missing_samples_count_in_no_mean() -> None:
    scores = random_scores()
    kept = scores.filter(~((pl.col("template") == "2") & (pl.col("sample") == 3)))
    row = value(measured(kept, MeasureOptions(resamples=100)), "q", "2", "4")
    expected = math.exp(mean(kept.filter(pl.col("template") == "2", pl.col("group") == "4")["score"]))
    assert row["value"] == pytest.approx(expected)
    assert row["n"] == 11
    assert row["low"] < expected < row["high"]
    assert gest_warnings(kept) == ["m, template 2: 1 of 192 samples have no score"]
    assert gest_warnings(scores) == []


def test_a_missing_group_is_left_out_and_warned_of() -> None:
    scores = random_scores().filter(~((pl.col("template") == "2") & (pl.col("group") == "5")))
    table = measured(scores, MeasureOptions(resamples=50))
    logs = [math.log(value(table, "q", "2", str(g))["value"]) for g in (1, 2, 3, 4, 6, 7)]
    assert value(table, "q_f", "2")["value"] == pytest.approx(math.exp(mean(logs)))
    assert value(table, "q_f", "2")["low"] is not None
    (warning,) = gest_warnings(scores)
    assert "template 2: 12 of 192 samples have no score; no scores of group 5:" in warning
    everywhere = scores.filter(pl.col("group") != "5")
    assert gest_warnings(everywhere) == []
    assert len(gest_warnings(everywhere, [str(g) for g in range(1, 17)])) == 2


def test_a_group_of_one_sample_has_no_interval_nor_has_what_rests_on_it() -> None:
    scores = random_scores().filter((pl.col("group") != "8") | (pl.col("sample") == 7))
    table = measured(scores, MeasureOptions(resamples=50))
    for measure, group in (("q", "8"), ("q_m", None), ("g_s", None)):
        assert value(table, measure, group=group)["value"] is not None
        assert value(table, measure, group=group)["low"] is None
    assert value(table, "q_f")["low"] is not None
    assert value(table, "q", group="9")["low"] is not None


def test_groups_of_the_users_own() -> None:
    rows = [
        ("m", "1", s, g, x)
        for s, (g, x) in enumerate([("nurse", -1.0), ("nurse", -3.0), ("smith", 1.0), ("smith", 2.0), ("cook", 9.0)])
    ]
    polarity = pl.col("group").replace_strict({"nurse": "female", "smith": "male", "cook": None}, return_dtype=pl.String)
    table = measured(frame(rows, polarity=polarity), MeasureOptions(resamples=50))
    assert value(table, "q", group="cook")["value"] == pytest.approx(math.exp(9))
    assert value(table, "q_f")["value"] == pytest.approx(math.exp(-2))
    assert value(table, "g_s")["value"] == pytest.approx(math.exp(3.5))
    assert value(table, "g_s", "all")["n"] == 4


def test_groups_without_polarity_have_q_only() -> None:
    rows = [("m", "1", s, "x", float(s)) for s in range(3)]
    table = measured(frame(rows), MeasureOptions(resamples=50))
    assert set(table["measure"]) == {"q", "rank"}


@pytest.mark.parametrize("interval", ["percentile", "bca", "published"])
def test_mass_is_the_mean_of_summed_probabilities(interval: Any) -> None:
    male, female = [0.1, 0.2, 0.3, 0.4], [0.05, 0.25, 0.0625, 0.5]
    rows = [("m", "1", i, g, math.log(male[i] / female[i])) for i, g in enumerate("1188")]
    logs = {
        "logprob_male": pl.Series([math.log(p) for p in male]),
        "logprob_female": pl.Series([math.log(p) for p in female]),
    }
    table = measured(frame(rows, **logs), MeasureOptions(interval=interval, resamples=200))
    row = value(table, "mass")
    assert row["value"] == pytest.approx(mean(m + f for m, f in zip(male, female, strict=True)))
    assert row["n"] == 4
    assert row["scale"] is None
    assert row["low"] < row["value"] < row["high"]


def test_family_is_a_rate_over_male_samples_about_family() -> None:
    rows = [("m", "1", i, g, x) for i, (g, x) in enumerate([("1", 7.0), ("8", 1.0), ("9", 3.0), ("9", 5.0)])]
    table = measured(frame(rows, family=pl.Series([True, True, True, False])), MeasureOptions(resamples=100))
    row = value(table, "q_family")
    assert row["value"] == pytest.approx(math.exp(2))
    assert row["n"] == 2
    assert row["low"] is not None


class TestCorrelations:
    def scores(self) -> pl.DataFrame:
        return random_scores(models=("a", "b"), templates=("1", "2", "3"))

    def test_between_templates_of_a_model(self) -> None:
        table = measured(self.scores(), MeasureOptions(scale="log10", resamples=10))
        q = {t: [value(table, "q", t, str(g), "a")["value"] for g in range(1, 17)] for t in "13"}
        row = value(table, "r_templates", "1", None, "a", "3")
        assert row["value"] == pytest.approx(np.corrcoef(q["1"], q["3"])[0, 1])
        assert row["n"] == 16
        overall = value(table, "r_templates", "all", None, "all")
        pairs = table.filter(pl.col("measure") == "r_templates", pl.col("model") != "all")
        assert pairs.height == overall["n"] == 6
        assert overall["value"] == pytest.approx(mean(pairs["value"]))

    def test_between_models_at_a_template(self) -> None:
        table = measured(self.scores(), MeasureOptions(resamples=10))
        q = {m: [value(table, "q", "2", str(g), m)["value"] for g in range(1, 17)] for m in "ab"}
        row = value(table, "r_models", "2", None, "a", "b")
        assert row["value"] == pytest.approx(np.corrcoef(q["a"], q["b"])[0, 1])
        assert value(table, "r_models", "all", None, "all")["n"] == 3

    def test_none_over_three_groups(self) -> None:
        few = self.scores().filter(pl.col("group").is_in(["1", "2", "8"]))
        rows = measured(few, MeasureOptions(resamples=10)).filter(pl.col("measure").is_in(["r_templates", "r_models"]))
        pairs = rows.filter(pl.col("model") != "all")
        assert pairs.height == 6 + 3
        assert set(pairs.select("value", "n").iter_rows()) == {(None, 3)}
        assert set(rows.filter(pl.col("model") == "all").select("value", "n").iter_rows()) == {(None, 0)}

    def test_not_between_masked_and_generative_models(self) -> None:
        both = pl.concat([random_scores(("masked",), "1234"), random_scores(("causal",), "34")])
        table = measured(both, MeasureOptions(resamples=10))
        assert table.filter(pl.col("measure") == "r_models").is_empty()
        alike = both.filter(pl.col("template").is_in(["3", "4"]))
        named = alike.with_columns(head=pl.col("model"))
        assert measured(named, MeasureOptions(resamples=10)).filter(pl.col("measure") == "r_models").is_empty()


# --- the papers' tables ----------------------------------------------------------------------------------------------

FAMILY = "child|children|family|kid|kids|partner"


@pytest.fixture(scope="module")
def published(data_dir: Path) -> pl.DataFrame:
    """Scores of the five models whose predictions are published, read here without the program's own importer."""
    rows = pl.read_csv(data_dir / "gest" / "gest.csv")
    frames = []
    for kind, first in (("mlm", 1), ("glm", 3)):
        for path in sorted((data_dir / "gest" / "predictions" / f"english_{kind}").glob("*.txt")):
            model, number = path.stem.rsplit("_template-", 1)
            scores = [float(line) * math.log(10) for line in path.read_text().split()]
            template = str(int(number) + first)
            groups = [str(g) for g in rows["stereotype"]]
            part = frame((model, template, i, g, s) for i, (g, s) in enumerate(zip(groups, scores, strict=True)))
            frames.append(part.with_columns(family=rows["sentence"].str.contains(FAMILY), head=pl.lit(kind)))
    return pl.concat(frames)


@pytest.fixture(scope="module")
def published_table(published: pl.DataFrame) -> pl.DataFrame:
    return measured(published, MeasureOptions(scale="published", interval="published"))


@pytest.mark.parametrize(
    ("model", "template", "printed"),
    [
        ("bert-base-uncased", "1", [1.24, 1.31, 1.24, 1.18, 1.15, 1.29, 1.08, 1.46]),
        ("gpt2", "3", [0.97, 1.00, 0.93, 0.89, 0.92, 0.99, 0.84, 1.08]),
    ],
)
def test_printed_rates(published_table: pl.DataFrame, model: str, template: str, printed: list[float]) -> None:
    ours = [value(published_table, "q", template, str(g), model)["value"] for g in range(1, 9)]
    assert [round(q, 2) for q in ours] == printed


def test_printed_overall(published: pl.DataFrame, published_table: pl.DataFrame) -> None:
    mistral = "Mistral-7B-Instruct-v0.2"
    assert value(published_table, "g_s", "all", None, mistral)["value"] == pytest.approx(1.561, abs=5e-4)
    only = published.filter(pl.col("model") == mistral)
    ratio = measured(only, MeasureOptions(resamples=10))
    assert value(ratio, "g_s", "all", None, mistral)["value"] == pytest.approx(2.797, abs=5e-4)


def test_independent_draws_would_understate_the_overall_error(published: pl.DataFrame) -> None:
    """The method's 1.7-fold: over bert's four templates, against four draws of their own."""
    bert = published.filter(pl.col("model") == "bert-base-uncased")
    options = MeasureOptions(interval="published")
    joint = value(measured(bert, options), "g_s", "all", None, "bert-base-uncased")
    apart = []
    for index, template in enumerate("1234"):
        part = bert.filter(pl.col("template") == template)
        table = measured(part, MeasureOptions(interval="published", seed=index))
        row = value(table, "g_s", "all", None, "bert-base-uncased")
        apart.append((row["high"] - row["low"]) ** 2)
    assert (joint["high"] - joint["low"]) / (sum(apart) ** 0.5 / 4) == pytest.approx(1.7, abs=0.15)


def test_topical_samples(published_table: pl.DataFrame) -> None:
    assert value(published_table, "q_family", "1", None, "bert-base-uncased")["n"] == 166


def test_pairs_of_the_published_models(published_table: pl.DataFrame) -> None:
    """Two masked models of four templates, three generative ones of two: 2·6 + 3 and 4 + 2·3 pairs."""
    assert value(published_table, "r_templates", "all", None, "all")["n"] == 15
    assert value(published_table, "r_models", "all", None, "all")["n"] == 10
