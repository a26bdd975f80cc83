"""`evaluator samples` and the sentences of `evaluator scores --text`."""

import csv
import io
import json
import math
import re
import statistics
from pathlib import Path

import polars as pl
import pytest

from evaluator.comparison.samples import Rate, drivers, ends, main_rate
from evaluator.datasets.texts import texts
from evaluator.measures.drivers import moves
from evaluator.measures.gest import sampled
from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.tasks.stored import scores_of, task_entry
from evaluator.vocabulary import DataSource, Layout, MeasureOptions
from tests.made_up_runs import write_gest
from tests.reports import pages
from tests.tiny_models import tiny_model

from .conftest import ROWS, invoke, scores


def rows(*arguments: object) -> list[dict[str, str]]:
    """The csv of `evaluator samples`."""
    result = invoke("samples", *arguments, "--format", "csv")
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_moves_of_q_by_hand(run: Path, data: Path) -> None:
    """q of stereotype 7 without each of its 20 sentences."""
    found = rows(run, "--model", "base", "--stereotype", 7, "--template", 3, "--data", data, "--top", 20)
    values = {i: x * math.log(10) for i, x in enumerate(scores()) if i % 16 == 6}
    assert len(found) == len(values) == 20
    for row in found:
        rest = [x for i, x in values.items() if i != int(row["sample"])]
        assert float(row["rate"]) == pytest.approx(math.exp(statistics.mean(values.values())), rel=1e-6)
        assert float(row["without"]) == pytest.approx(math.exp(statistics.mean(rest)), rel=1e-6)
        assert float(row["move"]) == pytest.approx(float(row["without"]) - float(row["rate"]), abs=1e-9)
        assert float(row["score"]) == pytest.approx(values[int(row["sample"])], rel=1e-5)
        assert row["text"] == f"Sentence {row['sample']}."
        assert (row["measure"], row["group"], row["sample_group"]) == ("q", "7", "7")


def test_what_drives_g_s_up_and_down(run: Path, data: Path) -> None:
    """High scores of male groups and low ones of female groups drive it up."""
    found = rows(run, "--model", "base", "--data", data, "--top", 3)
    assert {row["measure"] for row in found} == {"g_s"}
    templates = [[row for row in found if row["template"] == name] for name in ("3", "4")]
    assert [*templates[0], *templates[1]] == found
    up = templates[0][:3]
    for mine in templates:
        for part, sign in ((mine[:3], 1), (mine[3:], -1)):
            assert all(sign * float(row["move"]) < 0 for row in part)
            assert all((float(row["score"]) > 0) == ((int(row["sample_group"]) > 7) == (sign > 0)) for row in part)
    assert {(row["first"], row["second"]) for row in found} == {("male", "female")}
    shown = invoke("samples", run, "--model", "base", "--data", data, "--top", "3").stdout
    assert "these drive g_s up most under 3" in shown
    assert "these drive g_s up most under 4" in shown
    assert f"Sentence {up[0]['sample']}." in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_two_words_probabilities_and_their_mass() -> None:
    scored = pl.DataFrame(
        {"model": "m", "task": "gest", "language": "en", "template": "3", "sample": [0, 1, 2], "group": ["1", "1", "8"]}
    ).with_columns(score=pl.Series([1.0, 2.0, 0.0]), logprob_male=pl.lit(-1.0), logprob_female=pl.lit(-2.0))
    found = moves(sampled(scored, "ratio"), "mass", [None])
    assert found["rate"].to_list() == pytest.approx([math.exp(-1) + math.exp(-2)] * found.height)
    assert moves(sampled(scored, "ratio"), "q", ["1"]).sort("unit")["without"].to_list() == pytest.approx(
        [math.exp(2), math.exp(1)]
    )
    with pytest.raises(LookupError, match="q"):
        moves(sampled(scored, "ratio"), "q", ["5"])


def test_the_sentences_on_which_two_models_differ_most(run: Path, data: Path) -> None:
    found = rows(run, "--model", "tuned", "--against", "base", "--template", "3", "--data", data, "--top", 4)
    gaps = [(b - a) * math.log(10) for a, b in zip(scores(), scores(0.5, 0.3), strict=True)]
    order = sorted(range(ROWS), key=lambda i: -gaps[i])
    assert [int(row["sample"]) for row in found] == order[:4] + order[:-5:-1]
    assert float(found[0]["difference"]) == pytest.approx(gaps[order[0]], rel=1e-5)
    as_json = json.loads(
        invoke("samples", run, "--model", "tuned", "--against", "base", "--data", data, "--format", "json", "--top", 1).stdout
    )
    assert [row["template"] for row in as_json] == ["3", "3", "4", "4"]
    assert as_json[0]["against"] == "base"


def test_a_page_has_the_sentences_only_where_they_are_wanted(run: Path, data: Path, tmp_path: Path) -> None:
    """Those of `evaluator samples`, of each model; the two words' probabilities and their sum by hand."""
    few = ("report", run, "--resamples", "9", "--format")
    assert "Sentence" not in pages.text(invoke(*few, "html").stdout)
    made = invoke(*few, "html", "--samples", "--data", data)
    assert made.exit_code == 0, made.output
    shown = pages.text(made.stdout)
    assert "These sentences express stereotypes and can offend" in shown
    for model in ("base", "tuned"):
        found = rows(run, "--model", model, "--data", data, "--top", 10)
        wanted = [(row["text"], f"{float(row['move']):.4g}") for row in found]
        listed = re.findall(
            rf"<td>{model}</td><td>(?:up|down) \d+</td><td>(Sentence \d+\.)</td>.*?([^>]+)</td></tr>", made.stdout
        )
        assert listed == wanted
    for other in ("table", "csv", "json", "markdown", "latex"):
        assert f"--samples belongs to --format html, not {other}" in str(invoke(*few, other, "--samples").exception)
    assert "differs from the data that" in str(invoke(*few, "html", "--samples", "--data", other_data(tmp_path)).exception)

    gest = task("gest")
    samples = gest.load(DataSource(data))
    made_up = scores_of(Run.open(run), "gest").filter(pl.col("model") == "base", pl.col("template") == "3")
    made_up = made_up.drop("model", "task").with_columns(
        logprob_male=pl.lit(math.log(0.25)), logprob_female=pl.lit(math.log(0.125))
    )
    words = Run.create_or_open(tmp_path / "words", protocol="published", provenance={})
    words.add_imported(gest.name, task_entry(gest, samples), "both", made_up, {})
    page = invoke("report", words.path, "--resamples", "9", "--format", "html", "--samples", "--data", data).stdout
    assert page.count('<td class="n">0.25</td><td class="n">0.125</td><td class="n">0.375</td>') == 20


def other_data(folder: Path) -> Path:
    """A data folder with as many other sentences."""
    return write_gest(folder / "data", [(f"Other {i}.", i % 16 + 1) for i in range(ROWS)])


def test_wrong_questions(run: Path, data: Path, tmp_path: Path) -> None:
    def said(*arguments: object) -> str:
        return str(invoke("samples", run, *arguments).exception)

    assert "has 3 models: name one with --model (base, copy, tuned)" in said("--data", data)
    assert "has no model 'none'" in said("--model", "none", "--data", data)
    assert "has no group '99': it has 1, 2," in said("--model", "base", "--stereotype", 99, "--data", data)
    assert "has no scale eurogest" in said("--model", "base", "--scale", "eurogest", "--data", data)
    assert "has no rate nonsense on gest" in said("--model", "base", "--measure", "nonsense", "--data", data)
    other = other_data(tmp_path)
    assert "differs from the data that" in said("--model", "base", "--data", other)
    assert "remove it" in said("--model", "base", "--data", data, "--samples", other / "gest" / "gest.csv")


def test_scores_with_text(run: Path, data: Path) -> None:
    result = invoke("scores", run, "--text", "--data", data)
    assert result.exit_code == 0, result.output
    found = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [*found[0]][-4:] == ["score", "id", "text", "group_name"]
    assert (found[6]["text"], found[6]["group"], found[6]["group_name"]) == ("Sentence 6.", "7", "beautiful")
    plain = invoke("scores", run).stdout.splitlines()
    assert [",".join(list(row.values())[:-2]) for row in found] == plain[1:]


def test_texts_of_every_kind_of_data_set() -> None:
    kinds = [
        ({"sentence": "A b."}, "A b."),
        ({"masculine": "A.", "feminine": "B."}, "A. / B."),
        ({"more": "A.", "less": "B.", "group": "race"}, "A. / B."),
        ({"context": "C.", "sentences": ["x", "y", "z"]}, "C. / x / y / z"),
        ({"s0": "a", "s2": "b"}, "a / b"),
        ({"s0": "a", "s1": "b", "s2": "c", "s3": "d"}, "a / b / c / d"),
        (
            {"parts": ["The nurse said that ", " works."], "male": ["he"], "female": ["she"]},
            "The nurse said that [he/she] works.",
        ),
        ({"prefix": "I ", "male_word": "m", "female_word": "f", "suffix": "."}, "I [m/f]."),
        ({"one": "u", "two": "v"}, "u / v"),
    ]
    for columns, expected in kinds:
        frame = pl.DataFrame([{"sample": 3, **columns}])
        assert texts(frame).row(0) == (3, expected)


def test_pairs_of_ones_own_are_read_again(tmp_path: Path) -> None:
    """A run of one's own pairs keeps their definition; the file is given again, and only that one is taken."""
    mine, other = tmp_path / "mine.csv", tmp_path / "other.csv"
    for path, end in ((mine, "."), (other, "!")):
        path.write_text(
            "sent_more,sent_less,stereo_antistereo,bias_type\n"
            + "".join(f"She is tired {i}{end},He is tired {i}{end},stereo,gender\n" for i in range(6))
        )
    model = tiny_model("gpt2", tmp_path / "model")
    out = tmp_path / "run"
    done = invoke("run", "pairs", "--samples", mine, "--model", model, "--out", out, "--engine", "transformers")
    assert done.exit_code == 0, done.output
    found = rows(out, "--samples", mine, "--top", "1", "--template", "sum")
    assert {row["text"] for row in found} <= {f"She is tired {i}. / He is tired {i}." for i in range(6)}
    assert "was made from a custom file: give it with --samples" in str(invoke("samples", out).exception)
    page = pages.text(invoke("report", out, "--resamples", "9", "--format", "html", "--samples").stdout)
    assert "This task uses a custom file: evaluator samples" in page
    wrong = str(invoke("samples", out, "--samples", other).exception)
    assert "differs from the data that" in wrong
    assert "give that file with --samples (a custom file) or --data" in wrong


def word_filling(kind: str) -> pl.DataFrame:
    """Scores of three original pairs of two samples each; numbers of pairs are no numbers of their samples."""
    rows = [
        {"sample": sample, "group": group, "original": sample // 2, "ss": ss, "cs": cs, "csk": 0.0, "f": float(sample**2)}
        for sample in range(6)
        for group, ss, cs in (("original", 10.0 + sample, 1.0 + sample), ("control", -10.0 - sample, -1.0 - sample**2))
    ]
    constant = {"model": "m", "task": kind, "language": "en", "template": "masked", "stereotype": "x", "anti": "y"}
    counts = {"tokens_stereotype": 1, "tokens_anti": 1, "kept": True}
    frame = pl.DataFrame(rows).with_columns(pl.lit(each).alias(name) for name, each in {**constant, **counts}.items())
    if not kind.startswith("crows"):
        return frame.with_columns(score="ss")
    return frame.with_columns(score="cs", ss=pl.lit(None, pl.Float64), f=pl.lit(None, pl.Float64))


def test_samples_that_a_rate_loses_together_are_named_by_their_own_sentences() -> None:
    scores = word_filling("stereoset-race-control")
    texts_of = pl.DataFrame({"sample": range(6), "text": [f"text {i}" for i in range(6)]})
    made = task("stereoset-race-control")
    rate = main_rate(made.layout(MeasureOptions()) or Layout(()), None, None, None)
    assert rate.measure == "f_mu"
    found = drivers(made, scores, texts_of, rate, MeasureOptions()).sort("sample")
    assert found["sample"].to_list() == [0, 2, 4]
    assert found["text"].to_list() == ["text 0", "text 2", "text 4"]
    assert found["score"].to_list() == [10.5, 12.5, 14.5]  # ss of the original group, means of two samples
    assert found["without"].to_list() == pytest.approx([(4 + 9 + 16 + 25) / 4, (0 + 1 + 16 + 25) / 4, (0 + 1 + 4 + 9) / 4])


def test_a_sample_is_shown_in_the_group_of_the_rate() -> None:
    scores = word_filling("crows-negation")
    texts_of = pl.DataFrame({"sample": range(6), "text": [f"text {i}" for i in range(6)]})
    rate = Rate("cs_mu", whole=("original", "control"))
    found = drivers(task("crows-negation"), scores, texts_of, rate, MeasureOptions()).sort("group", "sample")
    shown = [(g, s, x) for g, s, x in found.select("sample_group", "sample", "score").iter_rows()]
    assert shown == [
        *(("control", 0, -1.5), ("control", 2, -7.5), ("control", 4, -21.5)),
        *(("original", 0, 1.5), ("original", 2, 3.5), ("original", 4, 5.5)),
    ]


def test_sentences_of_a_rate_over_templates_have_their_scores() -> None:
    """EuroGEST's rates are over all templates; its sentences have one each."""
    scores = pl.DataFrame(
        {
            "model": ["m"] * 4,
            "task": ["eurogest-cs"] * 4,
            "language": ["cs"] * 4,
            "sample": [5, 6, 7, 8],
            "row": [5, 6, 7, 8],
            "template": ["G", "P", "P", "G"],
            "group": ["1", "1", "8", "8"],
            "score": [0.1, 0.2, 0.3, 0.4],
        }
    )
    texts_of = pl.DataFrame({"sample": [5, 6, 7, 8], "text": list("abcd")})
    found = drivers(task("eurogest-cs"), scores, texts_of, Rate("g_s"), MeasureOptions()).sort("sample")
    assert found.select("sample", "sample_group", "score", "text").rows() == [
        (5, "1", 0.1, "a"),
        (6, "1", 0.2, "b"),
        (7, "8", 0.3, "c"),
        (8, "8", 0.4, "d"),
    ]


@pytest.mark.parametrize(("column", "values"), [("difference", [2.3, 1.0, 0.01, 0.0]), ("move", [None, -0.2, -0.1, 0.0])])
def test_no_sample_is_named_for_a_direction_that_it_does_not_have(column: str, values: list[float | None]) -> None:
    rows = pl.DataFrame({"sample": [0, 1, 2, 3], column: values})
    first, last = ends(rows, 2)
    assert first["sample"].to_list() == [0, 1]
    assert last.is_empty()
    other = ends(rows.reverse().with_columns(-pl.col(column)), 2)[1]
    assert set(other["sample"]) == ({0, 1} if column == "difference" else {1, 2})
