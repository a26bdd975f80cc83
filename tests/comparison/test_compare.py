"""`evaluator compare` from the command line: what it finds, refuses and exits with."""

import csv
import io
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scipy import stats

from evaluator.cli import compare as compare_command
from evaluator.comparison.build import build, select_sides, sides
from evaluator.comparison.differences import COMPARED, too_few_permutations
from evaluator.comparison.tables import verdict
from evaluator.store.files import write_json
from evaluator.store.run import Run
from evaluator.vocabulary import MeasureOptions
from evaluator_serving.errors import InputError
from tests.reports import pages

from .conftest import invoke, make_run, scores


def rows(*arguments: object) -> list[dict[str, str]]:
    """The csv of a comparison."""
    result = invoke("compare", *arguments, "--format", "csv")
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def row(found: list[dict[str, str]], measure: str, group: str = "", template: str = "3") -> dict[str, str]:
    """The only row of a measure, group and template."""
    (one,) = [r for r in found if (r["measure"], r["group"], r["template"]) == (measure, group, template)]
    return one


def test_copies_of_one_model_do_not_differ(run: Path) -> None:
    result = invoke("compare", run, "--model", "base", "--model", "copy", "--fail-if", "abs(delta(g_s)) > 0")
    assert result.exit_code == 0
    assert "No difference" in result.stdout
    found = rows(run, "--model", "base", "--model", "copy")
    assert {(r["difference"], r["low"], r["high"], r["p"], r["p_holm"]) for r in found} == {("0.0", "0.0", "0.0", "1.0", "1.0")}


def test_what_could_not_be_tested_is_not_called_equal(run: Path) -> None:
    """Differences of single samples, which no test can tell."""
    opened = Run.open(run)
    found = build(select_sides(sides([opened]), ["base", "tuned"], None), MeasureOptions(resamples=9), permutations=9)
    untested = replace(found, rows=found.rows.with_columns(p=None, p_holm=None))
    assert verdict(untested) == "No difference could be tested."
    one = found.rows.filter(measure="g_s", template="3").with_columns(difference=0.0, p=1.0, p_holm=1.0)
    mixed = replace(found, rows=pl.concat([one, untested.rows.select(one.columns).cast(one.schema)]))
    assert verdict(mixed) == "None of 1 differences is significant after Holm's correction (p ≤ 0.05)."


def test_differences_are_those_of_the_scores(run: Path) -> None:
    """q of stereotype 9 at template 3 by hand: 20 sentences; its p is near the paired t-test's, far from the unpaired one's."""
    found = row(rows(run, "--model", "base", "--model", "tuned"), "q", "9")
    base, tuned = ([x * math.log(10) for i, x in enumerate(s) if i % 16 == 8] for s in (scores(), scores(0.5, 0.3)))
    q = [math.exp(statistics.mean(x)) for x in (base, tuned)]
    assert float(found["baseline_value"]) == pytest.approx(q[0], rel=1e-6)
    assert float(found["difference"]) == pytest.approx(q[1] - q[0], rel=1e-6)
    assert found["n"] == "20"
    assert float(found["low"]) < q[1] - q[0] < float(found["high"])
    assert stats.ttest_rel(base, tuned).pvalue < 1e-4
    assert float(found["p"]) < 5e-4
    error = statistics.stdev(b - a for a, b in zip(base, tuned, strict=True)) / math.sqrt(20)
    for name, sign in (("detectable_low", -1), ("detectable_high", 1)):
        assert float(found[name]) == pytest.approx(q[0] * math.expm1(sign * (1.959964 + 0.841621) * error), rel=1e-4)


def test_only_the_compared_models_are_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(run, "--model", "base", "--model", "copy")  # the whole run's rates are kept from now on
    read: set[str] = set()
    plain = Run.imported_scores

    def imported_scores(self: Run, task: str, model: str, entry: Any) -> Any:
        read.add(model)
        return plain(self, task, model, entry)

    monkeypatch.setattr(Run, "imported_scores", imported_scores)
    rows(run, "--model", "base", "--model", "copy")
    assert read == {"base", "copy"}


def test_holm_counts_all_tests_of_a_measure(run: Path) -> None:
    found = rows(run, "--baseline", "base", "--permutations", "999")
    family = sorted(float(r["p"]) for r in found if r["measure"] == "g_s")
    assert len(family) == 6  # two models, two templates and the mean over them
    smallest = min(float(r["p_holm"]) for r in found if r["measure"] == "g_s")
    assert smallest == pytest.approx(6 * family[0])
    sizes = [abs(float(r["difference"])) for r in found if r["measure"] == "q"]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("g_s > 1.3", 3),
        ("g_s > 100", 0),
        ("delta(g_s) > 0.05", 3),
        ("low(delta(g_s)) <= 0", 0),
        ("abs(delta(q[1])) >= 50", 0),
        ("p(g_s) < 0.05", 3),
        ("high(g_s) < -1e3", 0),
    ],
)
def test_checks_of_releases(run: Path, expression: str, code: int) -> None:
    result = invoke("compare", run, "--model", "tuned", "--baseline", "base", "--fail-if", expression, "--permutations", "999")
    assert result.exit_code == code, result.stderr
    assert (f"evaluator: failed: {expression}: tuned has" in result.stderr) == (code == 3)


def test_one_model_is_enough_for_a_threshold(run: Path) -> None:
    assert invoke("compare", run, "--model", "tuned", "--fail-if", "g_s > 1.3").exit_code == 3
    result = invoke("compare", run, "--model", "tuned", "--fail-if", "delta(g_s) > 1.3")
    assert "two or more models" in str(result.exception)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("g_s", "write one comparison"),
        ("g_s >", "not an expression"),
        ("g_s > x", "the right side must be a number"),
        ("g_s > True", "the right side must be a number"),
        ("1 < g_s < 2", "write one comparison"),
        ("mean(g_s) > 1", "unknown function"),
        ("delta(g_s, 2) > 1", "takes one argument"),
        ("q[1:2] > 1", "a group's name"),
        ("__import__('os').system('true') > 1", "takes one argument"),
        ("nonsense > 1", "no model has a rate nonsense: there are"),
        ("q[99] > 1", "no model has a rate q[99]"),
        ("(" * 500 + "g_s" + ")" * 500 + " > 1", "not an expression"),
    ],
)
def test_expressions_that_mean_nothing(run: Path, expression: str, says: str) -> None:
    result = invoke("compare", run, "--fail-if", expression, "--permutations", "9")
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_check_of_what_is_not_defined_is_no_pass(data: Path, tmp_path: Path) -> None:
    """A model whose female groups have no scores has no g_s."""
    out = make_run(tmp_path / "run", data, base=scores(), other=scores(0.1))
    for part in (out / "imported" / "gest").glob("*other*"):
        frame = pl.read_parquet(part)
        frame.with_columns(score=pl.when(~pl.col("group").is_in(list("1234567"))).then("score")).write_parquet(part)
    result = invoke("compare", out, "--baseline", "base", "--fail-if", "delta(g_s) > 1")
    assert result.exit_code != 0
    assert "no model has a rate g_s" in str(result.exception)
    found = rows(out)
    assert {r["measure"] for r in found} >= {"q", "q_m"}
    assert "have no counterpart" in invoke("compare", out).stdout


def test_runs_of_other_dtypes_protocols_and_data_are_refused(run: Path, data: Path, tmp_path: Path) -> None:
    out = make_run(tmp_path / "other", data, another=scores(0.1, 0.1))
    record = Run.open(out).record
    assert record["protocol"] == "published"  # what was imported is what the papers asked
    assert invoke("compare", run, out, "--model", "base", "--model", "another", "--permutations", "9").exit_code == 0
    record["protocol"] = "default"
    write_json(out / "run.json", record)
    refused = invoke("compare", run, out, "--model", "base", "--model", "another")
    assert "another against base can't be compared on gest: protocol published against default: --allow protocol" in str(
        refused.exception
    )
    allowed = invoke("compare", run, out, "--model", "base", "--model", "another", "--allow", "protocol", "--permutations", "9")
    assert allowed.exit_code == 0
    assert "protocol published against default (--allow protocol)" in " ".join(allowed.stdout.split())
    record["tasks"]["gest"]["sha256"] = {"gest.csv": "0" * 64}
    write_json(out / "run.json", record)
    refused = invoke("compare", run, out, "--model", "base", "--model", "another", "--allow", "protocol")
    assert "the files of gest differ" in str(refused.exception)


def test_names_that_two_runs_have(run: Path, data: Path, tmp_path: Path) -> None:
    out = make_run(tmp_path / "later", data, base=scores(0.2, 0.1))
    found = rows(run, out, "--baseline", "both:base", "--model", "later:base", "--permutations", "9")
    assert {(r["model"], r["baseline"]) for r in found} == {("later:base", "both:base")}
    assert "write both:base or later:base" in str(invoke("compare", run, out, "--baseline", "base").exception)
    assert "choose from both:base, copy, tuned, later:base" in str(invoke("compare", run, out, "--model", "nobody").exception)
    assert "given twice" in str(invoke("compare", run, run).exception)


def test_a_run_without_anything(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "empty"
    Run.create_or_open(out, protocol="default", provenance={})
    assert "empty has no models: score some first" in str(invoke("compare", out).exception)
    assert "empty has no models: score some first" in str(invoke("compare", run, out).exception)
    for format_ in ("table", "csv", "json", "markdown", "latex", "html"):
        assert "empty holds no scores: score some models first" in str(invoke("report", out, "--format", format_).exception)
    assert "is not a run" in str(invoke("compare", tmp_path / "none").exception)


@pytest.mark.parametrize("format_", ["table", "csv", "json", "markdown", "latex", "html"])
def test_a_model_without_any_score(format_: str, data: Path, tmp_path: Path) -> None:
    """Rows that hold probabilities but no score: nothing to compare, told in one line; a report says so."""
    out = make_run(tmp_path / "run", data, one=scores(), two=scores(0.1))
    parts = list((out / "imported" / "gest").glob("*one*"))
    for part in parts:
        frame = pl.read_parquet(part)
        frame.with_columns(
            score=pl.lit(None, pl.Float64), logprob_male=pl.lit(-1.0), logprob_female=pl.lit(-2.0)
        ).write_parquet(part)
    assert parts
    refused = invoke("compare", out, "--format", format_, "--permutations", "9")
    assert isinstance(refused.exception, InputError)
    assert "one, two have no scored samples in common on gest" in str(refused.exception)
    made = invoke("report", out, "--format", format_, "--resamples", "9")
    assert made.exit_code == 0, made.exception
    assert "one: no sample has a score" in made.output
    assert "one has no rate g_s on gest" in str(invoke("samples", out, "--model", "one", "--data", data).exception)


def test_every_format_holds_the_same_numbers(run: Path) -> None:
    options = (run, "--model", "base", "--model", "tuned", "--permutations", "999")
    found = row(rows(*options), "g_s", template="all")
    as_json = json.loads(invoke("compare", *options, "--format", "json").stdout)
    assert [set(each) for each in as_json] == [set(COMPARED)] * len(as_json)
    (same,) = [r for r in as_json if (r["measure"], r["template"]) == ("g_s", "all")]
    assert same["difference"] == float(found["difference"])
    shown = f"{same['difference']:.3f} [{same['low']:.1f}, {same['high']:.1f}]"
    table = " ".join(invoke("compare", *options).stdout.split())
    assert "p (Holm) detectable" in table
    assert f" {same['detectable_low']:.3f}/+{same['detectable_high']:.3f} " in table
    assert shown in invoke("compare", *options).stdout
    assert shown in invoke("compare", *options, "--format", "markdown").stdout.replace("\\", "")
    assert shown in invoke("compare", *options, "--format", "latex-long").stdout
    assert (
        f"{same['difference']:.3f} & {{\\scriptsize [{same['low']:.1f}"
        in invoke("compare", *options, "--format", "latex").stdout
    )
    assert all(len(line) <= 80 for line in invoke("compare", *options).stdout.splitlines())
    page = invoke("compare", *options, "--format", "html").stdout
    assert pages.read(page).loads == []
    assert shown in pages.text(page)
    _, drawn = pages.figure(page, "g_s: difference from base")
    assert drawn.select("difference", "low", "high").rows() == [(same["difference"], same["low"], same["high"])]


def test_figures_hold_the_differences(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    found = rows(run, "--permutations", "999", "--figures", folder)
    assert {path.suffix for path in folder.iterdir()} == {".svg", ".png", ".csv"}
    drawn = pl.read_csv(folder / "gest-g_s-difference.csv")
    assert drawn["template"].to_list() == ["all", "all"]
    by_group = pl.read_csv(
        folder / "gest-q-by-group-difference.csv", schema_overrides={"template": pl.String, "group": pl.String}
    )
    assert by_group.height == 2 * 2 * 16
    for each in [*drawn.iter_rows(named=True), *by_group.iter_rows(named=True)]:
        (same,) = [
            r
            for r in found
            if r["measure"] == ("q" if each["group"] else "g_s")
            and (r["model"], r["template"], r["group"] or None) == (each["model"], each["template"], each["group"])
        ]
        assert [float(same[name]) for name in ("difference", "low", "high")] == [each[n] for n in ("difference", "low", "high")]
        assert (each["verdict"] == "significant after Holm's correction") == (float(same["p_holm"]) <= 0.05)


def test_two_runs_of_one_command_agree(run: Path) -> None:
    assert rows(run, "--permutations", "99", "--seed", "5") == rows(run, "--permutations", "99", "--seed", "5")


def test_too_few_permutations_for_so_many_tests() -> None:
    tests = pl.DataFrame({"task": ["t"] * 100, "language": None, "measure": "q", "p": 0.5})
    assert too_few_permutations(tests, 1999) is None
    assert "use --permutations 1999 or more" in str(too_few_permutations(tests, 1000))


def test_progress_is_told_now_and_then(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "compared" not in invoke("compare", run, "--permutations", "9").stderr
    monkeypatch.setattr(compare_command, "EVERY", 0)
    assert "compared 1 of 2 pairs" in invoke("compare", run, "--permutations", "9").stderr
