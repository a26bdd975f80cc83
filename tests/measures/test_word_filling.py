"""Statistics of word filling against numbers worked out by hand or by a plain loop."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.tasks import task
from evaluator.tasks.word_filling import QuadruplesParameters, WordFilling
from evaluator.tasks.word_filling_notes import FEW, layout, warnings
from evaluator.vocabulary import TIDY, MeasureOptions, Samples

KEYS = {"model": "m", "task": "made", "language": "en", "template": "masked"}

# ss original, ss control, cs original, cs control, csk original, csk control
FOUR = [
    (2.0, 3.0, 1.0, 0.5, 4.0, 1.0),
    (1.0, 0.5, -1.0, 1.5, 0.0, 1.0),
    (-1.0, -2.0, 2.0, -2.0, 3.0, -1.0),
    (-3.0, 1.0, 0.0, -1.0, -2.0, 0.5),
]


def frame(rows: Sequence[tuple[float | None, ...]], **columns: Any) -> pl.DataFrame:
    """Scores as WordFilling.score gives them; further columns by name, a value a row or one for all."""
    data = []
    for i, (ss_o, ss_c, cs_o, cs_c, csk_o, csk_c) in enumerate(rows):
        for group, ss, cs, csk in (("original", ss_o, cs_o, csk_o), ("control", ss_c, cs_c, csk_c)):
            row = {**KEYS, "sample": i, "group": group, "score": ss, "ss": ss, "cs": cs, "csk": csk}
            row["f"] = None if ss_o is None or ss_c is None else ss_o - ss_c
            row |= {"kept": True, "original": i, "tokens_stereotype": 1, "tokens_anti": 1, "stereotype": "x", "anti": "y"}
            row |= {name: value[i] if isinstance(value, list) else value for name, value in columns.items()}
            data.append(row)
    return pl.DataFrame(data, infer_schema_length=None)


def quadruples(scores: pl.DataFrame, options: MeasureOptions | None = None, *, by_original: bool = False) -> pl.DataFrame:
    """The rows of a task with these scores."""
    made = WordFilling("made", lambda data: Samples(pl.DataFrame(), {}), "keyword", clustered=by_original)
    return made.measure(scores, options or MeasureOptions())


def values(tidy: pl.DataFrame) -> dict[tuple[str, str], float]:
    return {(measure, group): value for measure, group, value in tidy.select("measure", "group", "value").iter_rows()}


def plain_pearson(x: list[float], y: list[float]) -> float:
    mx, my = sum(x) / len(x), sum(y) / len(y)
    cov = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return cov / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))


def test_every_statistic_by_hand() -> None:
    tidy = quadruples(frame(FOUR))
    assert tidy.schema == pl.Schema(TIDY)
    found = values(tidy)
    expected = {
        ("ss_mu", "original"): -0.25,
        ("ss_mu", "control"): 0.625,
        ("ss_plus", "original"): 2 / 4,
        ("ss_plus", "control"): 3 / 4,
        ("cs_mu", "original"): 0.5,
        ("cs_mu", "control"): -0.25,
        ("cs_plus", "original"): 2 / 4,  # a tie at 0 is not positive
        ("cs_plus", "control"): 2 / 4,
        ("csk_mu", "original"): 1.25,
        ("csk_mu", "control"): 0.375,
        ("f_mu", "all"): -0.875,  # f = -1, 0.5, 1, -4
        ("f_plus", "all"): 2 / 4,
        ("fpr", "all"): 1 / 2,  # of ss original 2 and 1, 2 is exceeded by its control
        ("fnr", "all"): 1 / 2,  # of -1 and -3, -1 is
        ("agreement_f_ss", "all"): 2 / 4,  # f > 0 in 1 and 2, ss > 0 in 0 and 1: alike in 1 and 3
        ("agreement_f_cs", "all"): 2 / 4,  # cs > 0 in 0 and 2: alike in 2 and 3
        ("agreement_cs_csk", "original"): 4 / 4,  # csk > 0 in 0 and 2, as cs
        ("quadruples_kept", "all"): 4.0,
    }
    columns = list(zip(*FOUR, strict=True))
    f = [a - b for a, b in zip(columns[0], columns[1], strict=True)]
    expected |= {
        ("rho_ss", "all"): plain_pearson(columns[0], columns[1]),
        ("rho_cs", "all"): plain_pearson(columns[2], columns[3]),
        ("rho_csk", "all"): plain_pearson(columns[4], columns[5]),
        ("rho_cs_csk", "original"): plain_pearson(columns[2], columns[4]),
        ("rho_f_ss", "all"): plain_pearson(f, columns[0]),
        ("rho_f_cs", "all"): plain_pearson(f, columns[2]),
    }
    assert found == pytest.approx(expected)
    mean = tidy.filter(measure="ss_mu", group="original").row(0, named=True)
    assert mean["low"] < -0.25 < mean["high"]
    assert (mean["n"], mean["scale"]) == (4, "natural log")
    assert tidy.filter(measure="fpr")["n"].item() == 2
    assert set(tidy.filter(pl.col("scale").is_not_null())["measure"]) == {"ss_mu", "cs_mu", "csk_mu", "f_mu"}


@pytest.mark.parametrize("scale", ["published", "log10"])
def test_published_scale_is_log10(scale: Any) -> None:
    natural = quadruples(frame(FOUR))
    tenth = quadruples(frame(FOUR), MeasureOptions(scale=scale))
    means = pl.col("measure").str.ends_with("_mu")
    for column in ("value", "low", "high"):
        converted = (natural.filter(means)[column] / math.log(10)).to_list()
        assert tenth.filter(means)[column].to_list() == pytest.approx(converted)
    assert set(tenth.filter(means)["scale"]) == {"log10"}
    assert tenth.filter(~means)["value"].to_list() == natural.filter(~means)["value"].to_list()


def test_shares_have_wilsons_intervals_and_published_ones_agresti_and_coulls() -> None:
    z2 = 3.8414588206941245
    centre = (2 + z2 / 2) / (4 + z2)  # of 2 in 4
    half = math.sqrt(z2 * centre * (1 - centre) / (4 + z2))
    wilson = math.sqrt(z2) / (4 + z2) * math.sqrt(2 * 2 / 4 + z2 / 4)
    default, published = (
        quadruples(frame(FOUR), MeasureOptions(interval=i)).filter(measure="ss_plus", group="original")
        for i in ("percentile", "published")
    )
    assert default.select("value", "low", "high").row(0) == pytest.approx((0.5, centre - wilson, centre + wilson))
    assert published.select("low", "high").row(0) == pytest.approx((centre - half, centre + half))
    assert (default["interval"].item(), published["interval"].item()) == ("Wilson", "Agresti-Coull")
    every = quadruples(frame(FOUR), MeasureOptions(), by_original=True)  # shares of clusters are resampled
    assert set(every["interval"].drop_nulls()) == {"percentile bootstrap"}
    # 3 of 4 is not its own centre
    control = quadruples(frame(FOUR), MeasureOptions(interval="published"))
    assert control.filter(measure="ss_plus", group="control")["value"].item() == pytest.approx((3 + z2 / 2) / (4 + z2))
    assert control.filter(measure="fpr")["value"].item() == 0.5  # rates are printed as they are
    assert published["value"].item() == pytest.approx(centre)


def test_rejected_quadruples_count_in_nothing_but_their_number() -> None:
    rows = [*FOUR, (50.0, -50.0, 50.0, -50.0, 50.0, -50.0)]
    kept = [True] * 4 + [False]
    tidy = quadruples(frame(rows, kept=kept))
    without = quadruples(frame(FOUR))
    count = pl.col("measure") == "quadruples_kept"
    assert tidy.filter(~count).equals(without.filter(~count))
    assert tidy.filter(count).select("value", "n").row(0) == (4.0, 5)


def test_without_keyword_the_errors_are_those_of_cs() -> None:
    rows: list[tuple[float | None, ...]] = [(None, None, o, c, None, None) for _, _, o, c, _, _ in FOUR]
    found = values(quadruples(frame(rows)))
    assert set(found) == {
        *((m, g) for m in ("cs_mu", "cs_plus") for g in ("original", "control")),
        *((m, "all") for m in ("rho_cs", "fpr", "fnr", "quadruples_kept")),
    }
    assert found["fpr", "all"] == 0.0  # of 1 and 2 none is exceeded by its control
    assert found["fnr", "all"] == 0.0  # -1 is not undercut by 1.5


def test_missing_scores_are_left_out_one_by_one() -> None:
    rows = [*FOUR, (7.0, None, None, 3.0, 1.0, 1.0)]
    found = quadruples(frame(rows))
    n = {(m, g): n for m, g, n in found.select("measure", "group", "n").iter_rows()}
    assert (n["ss_mu", "original"], n["ss_mu", "control"], n["f_mu", "all"], n["rho_ss", "all"]) == (5, 4, 4, 4)
    assert (n["fpr", "all"], n["agreement_f_cs", "all"]) == (2, 4)
    assert values(found)["rho_ss", "all"] == pytest.approx(plain_pearson([r[0] for r in FOUR], [r[1] for r in FOUR]))


def test_degenerate_statistics_are_null() -> None:
    rows = [(1.0, 2.0, 1.0, 1.0, 1.0, 1.0)] * 3
    tidy = quadruples(frame(rows))
    found = values(tidy)
    assert found["rho_ss", "all"] is None  # nothing varies
    assert found["fnr", "all"] is None  # nothing is negative
    assert tidy.filter(measure="fnr")["n"].item() == 0
    assert found["fpr", "all"] == 1.0
    nothing = quadruples(frame(rows, kept=False))
    assert values(nothing)["ss_mu", "original"] is None


def test_draws_of_one_original_are_resampled_together() -> None:
    # Ten draws of each original have its ss: the honest interval is that of the originals, sqrt(10) wider.
    rng = random.Random(3)
    originals = [rng.gauss(0, 1) for _ in range(60)]
    rows = [(ss, rng.gauss(0, 1), 0.0, 0.0, 0.0, 0.0) for ss in originals for _ in range(10)]
    numbers = [i for i in range(60) for _ in range(10)]
    scores = frame(rows, original=numbers)
    widths = {}
    for interval in ("percentile", "published"):
        tidy = quadruples(scores, MeasureOptions(interval=interval), by_original=True)  # type: ignore[arg-type]
        row = tidy.filter(measure="ss_mu", group="original").row(0, named=True)
        assert row["n"] == 600
        assert row["value"] == pytest.approx(sum(originals) / 60)
        widths[interval] = row["high"] - row["low"]
        share = tidy.filter(measure="ss_plus", group="original").row(0, named=True)
        widths[f"{interval} share"] = share["high"] - share["low"]
    assert widths["percentile"] / widths["published"] == pytest.approx(math.sqrt(10), rel=0.12)
    assert widths["percentile share"] / widths["published share"] == pytest.approx(math.sqrt(10), rel=0.12)


def test_two_models_do_not_touch_each_other() -> None:
    one = frame(FOUR)
    two = frame([tuple(-v for v in row) for row in FOUR]).with_columns(pl.lit("n").alias("model"))
    both = quadruples(pl.concat([one, two]))
    assert both.filter(model="m").equals(quadruples(one))
    assert both.filter(model="n").equals(quadruples(two))
    shuffled = pl.concat([two, one]).sample(fraction=1, shuffle=True, seed=1)
    again = quadruples(shuffled)
    assert again.filter(model="m").equals(both.filter(model="m"))


def test_frequencies(tmp_path: Path) -> None:
    words = [("loud", "quiet"), ("Loud", "rare"), ("quiet", "loud"), ("loud", "unknown"), ("loud", "quiet")]
    scores = frame([*FOUR, (4.0, 0.0, 0.0, 0.0, 0.0, 0.0)], stereotype=[w[0] for w in words], anti=[w[1] for w in words])
    path = tmp_path / "counts.tsv"
    path.write_text("loud\t100\nquiet\t10\nrare\t1\n")
    tidy = quadruples(scores, MeasureOptions(settings={"made": QuadruplesParameters(word_counts=path)}))
    row = tidy.filter(measure="rho_ss_frequency", group="original").row(0, named=True)
    # 1, 2, -1 and 1 decades: the unknown word's sample has no frequency
    assert row["value"] == pytest.approx(plain_pearson([2.0, 1.0, -1.0, 4.0], [1.0, 2.0, -1.0, 1.0]))
    assert row["n"] == 4


def test_no_correlation_over_three_samples() -> None:
    tidy = quadruples(frame(FOUR[:3]))
    rows = tidy.filter(pl.col("measure").str.starts_with("rho_"))
    assert rows.height == 6
    assert set(rows.select("value", "low", "high", "interval", "n").iter_rows()) == {(None, None, None, None, 3)}


def test_pairs_by_bias_type() -> None:
    rows = [("age", 1.0), ("gender", -1.0), ("age", 3.0), ("age", -1.0)]
    scores = pl.DataFrame([{**KEYS, "sample": i, "group": g, "score": s, "cs": s} for i, (g, s) in enumerate(rows)])
    tidy = task("crows-pairs").measure(scores, MeasureOptions())
    assert values(tidy) == pytest.approx(
        {
            ("cs_mu", "age"): 1.0,
            ("cs_plus", "age"): 2 / 3,
            ("cs_mu", "gender"): -1.0,
            ("cs_plus", "gender"): 0.0,
            ("cs_mu", "all"): 0.5,
            ("cs_plus", "all"): 0.5,
        }
    )
    assert dict(tidy.filter(measure="cs_plus").select("group", "n").iter_rows()) == {"age": 3, "gender": 1, "all": 4}


def test_every_measure_has_its_place_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "counts.tsv").write_text("x\t3\ny\t2\n")
    options = MeasureOptions(settings={"made": QuadruplesParameters(word_counts=tmp_path / "counts.tsv")})
    rows: list[tuple[float | None, ...]] = [(None, None, o, c, None, None) for _, _, o, c, _, _ in FOUR]
    keyword, sentences = (quadruples(frame(data), options) for data in (FOUR, rows))
    for form, tidy in (("keyword", keyword), ("sentences", sentences)):
        shown = layout(form, options)
        assert set(tidy["measure"]) <= set(shown.summary)
        assert set(tidy["group"]) <= set(shown.summary_groups)
        assert set(shown.notes) <= set(shown.summary) | set(keyword["measure"])
    assert "log10 units" in " ".join(layout("pairs", MeasureOptions(scale="published")).notes.values())
    assert "released matcher" in layout("pairs", MeasureOptions(protocol="published")).notes["cs_plus"]
    assert "released matcher" not in layout("pairs", MeasureOptions()).notes["cs_plus"]


def said(scores: pl.DataFrame) -> list[str]:
    return warnings(scores, quadruples(scores))


def spread(centre: float, n: int) -> list[float]:
    return [centre + 0.1 * (i % 5 - 2) for i in range(n)]


def test_warnings_come_where_they_belong() -> None:
    n = FEW + 10
    apart = list(zip(spread(2, n), spread(0, n), spread(2, n), spread(0, n), spread(0, n), spread(0, n), strict=True))
    assert said(frame(apart)) == []
    same = list(zip(spread(2, n), spread(2, n), spread(2, n), spread(0, n), spread(0, n), spread(0, n), strict=True))
    (line,) = said(frame(same))
    assert line.startswith("m: ss of the control group, 2.00 [")
    (line,) = said(frame(apart, tokens_stereotype=2, tokens_anti=[2] * 5 + [1] * (n - 5)))
    assert "130 of 240 keywords have several tokens" in line
    assert said(frame(apart, tokens_stereotype=2)) == []  # half is not most
    lines = said(frame(apart, kept=[True] * (FEW - 1) + [False] * 11))
    assert "m: 11 of 60 quadruples dropped: the keywords' token counts don't satisfy k0 - k1 = k2 - k3" in lines
    assert f"m: fewer than {FEW} samples remain: 49 for ss_mu original, 49 for cs_mu original" in lines
    (line,) = said(frame(apart, template="causal (extension)"))
    assert "extension" in line
