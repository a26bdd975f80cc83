"""References beside a run's models: where a value lies among them, what isn't compared, and that no test counts them."""

import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

import evaluator
from evaluator.cli import cli
from evaluator.datasets.registry import published_run
from evaluator.imports.gest_predictions import Kind, import_predictions
from evaluator.reports.beside import reference_ranks, sources, table, with_references
from evaluator.reports.export import svg
from evaluator.reports.figures import section_figures
from evaluator.reports.html import render
from evaluator.reports.report import Report, Section, build_report
from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.tasks.stored import task_entry
from evaluator.vocabulary import DataSource, MeasureOptions, Protocol_
from tests.made_up_runs import write_gest, write_predictions
from tests.reports.pages import figure, text

ROWS = 64
"""Four sentences of each stereotype."""
PUBLISHED = {"low": -1.0, "near": 0.6, "high": 2.0, "lower": 0.2}
"""Model → log10 of its g_s: the score of male stereotypes less that of female ones."""
MINE = 0.5


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EVALUATOR_DATA", raising=False)


@pytest.fixture
def data(tmp_path: Path) -> DataSource:
    return DataSource(write_gest(tmp_path / "data", ROWS))


def scores(log10: float, row: int) -> float:
    """Half of the distance up for male stereotypes (from the 8th on), half down for female ones, and a little that cancels."""
    return (log10 / 2 if row % 16 >= 7 else -log10 / 2) + (0.01 if row // 16 % 2 else -0.01)


def publish(tmp_path: Path, data: DataSource, models: Mapping[str, float], kind: Kind = "glm", templates: int = 2) -> Run:
    folder = tmp_path / f"files-{kind}-{templates}"
    for model, log10 in models.items():
        write_predictions(folder, model, *[[scores(log10, i) for i in range(ROWS)]] * templates)
    return import_predictions([folder], kind, data, published_run())


def own(
    path: Path, data: DataSource, models: Mapping[str, float], protocol: Protocol_ = "published", kind: str = "causal"
) -> Run:
    run = Run.create_or_open(path, protocol=protocol, provenance={"made": "here"})
    gest = task("gest")
    samples = gest.load(data)
    with run.locked():
        for model, log10 in models.items():
            frames = [
                samples.frame.select(
                    pl.lit("en").alias("language"),
                    pl.lit(template).alias("template"),
                    "sample",
                    "group",
                    pl.Series("score", [scores(log10, i) * math.log(10) for i in range(ROWS)]),
                    "polarity",
                    "family",
                    pl.lit("masked" if kind == "masked" else "causal").alias("head"),
                )
                for template in (("1", "2", "3", "4") if kind == "masked" else ("3", "4"))
            ]
            run.add_imported("gest", task_entry(gest, samples), model, pl.concat(frames), "made up", part="all", kind=kind)
    return run


def report(run: Run, *, published: bool = True, beside: tuple[Path, ...] = ()) -> Report:
    options = MeasureOptions(resamples=50, protocol=run.protocol)
    return with_references(build_report(run, options), run, sources(published, beside, [run.path]))


def told(section: Section) -> list[str]:
    """The section's warnings but that on its few sentences."""
    return [warning for warning in section.warnings if "too narrow" not in warning]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_a_value_has_its_place_among_references(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, PUBLISHED)
    found = report(own(tmp_path / "run", data, {"mine": MINE}))
    (section,) = found.sections
    (place,) = reference_ranks(section)
    assert (place.higher, place.of, place.nearest, place.kind) == (2, 4, "near", "generative")
    assert place.value == pytest.approx(10**MINE)
    assert place.nearest_value == pytest.approx(10**0.6)
    assert told(section) == []
    block = table(section)
    assert block is not None
    assert [row.label for row in block.rows] == [
        "generative",
        *("high (published)", "near (published)", "mine", "lower (published)", "low (published)"),
    ]
    assert [row.cells[1] for row in block.rows if not row.heading] == ["", "", "2 of 4", "", ""]
    page = text(render(found), charts=False)
    assert "g_s is higher than 2 of 4 published generative models; nearest: near (3.981)." in page


def test_a_table_for_a_paper_marks_them(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, {"near": 0.6})
    own(tmp_path / "run", data, {"mine": MINE})
    table = invoke("report", tmp_path / "run", "--published", "--format", "latex", "--resamples", 20).stdout
    assert [line.partition(" & ")[0] for line in table.splitlines() if " & " in line][-2:] == ["mine", "near (published)"]
    assert "near" not in invoke("report", tmp_path / "run", "--format", "latex", "--resamples", 20).stdout


def test_references_change_no_row_of_the_run(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, PUBLISHED)
    run = own(tmp_path / "run", data, {"mine": MINE, "other": 0.1})
    alone, both = report(run, published=False), report(run)
    assert both.rows.equals(alone.rows)  # among them the correlations between models
    assert "source" not in alone.listed.columns
    listed = both.listed
    assert listed.filter(pl.col("source").is_null()).drop("source").equals(alone.rows)
    assert set(listed.filter(source="published")["model"]) == set(PUBLISHED)


def test_the_figure_has_references_as_muted_marks(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, PUBLISHED)
    found = report(own(tmp_path / "run", data, {"mine": MINE}))
    spec, drawn = figure(render(found), "g_s of all models")
    references = drawn.filter("reference")
    assert sorted(references["model"]) == [f"{name} (published)" for name in sorted(PUBLISHED)]
    assert set(references["together"]) == {"4 published generative"}
    assert drawn.filter(~pl.col("reference"))["model"].unique().to_list() == ["mine"]
    (choice,) = spec["params"]
    assert choice["bind"]["options"] == ["together", "by name"]
    (first, *_) = section_figures(found.sections[0])
    assert first.chart is not None
    together = svg(first)
    assert "4 published generative" in together
    assert ">near<" not in together
    apart = svg(replace(first, chart={**first.chart, "params": [{**first.chart["params"][0], "value": "by name"}]}))
    assert ">near<" in apart
    assert "4 published generative" not in apart


def test_other_kinds_templates_and_data_are_not_compared_and_the_report_says_why(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, {"near": 0.6})
    publish(tmp_path, data, {"mlm": 0.3}, "mlm", templates=4)
    publish(tmp_path, data, {"half": 0.4}, templates=1)
    run = own(tmp_path / "run", data, {"mine": MINE})
    (section,) = report(run).sections
    assert [place.of for place in reference_ranks(section)] == [1]
    assert told(section) == [
        "2 of 3 published models are not compared, because their settings differ: 1 masked, templates 1, 2, 3, 4; "
        "1 generative, templates 3",
    ]
    own(tmp_path / "masked", data, {"bert": 0.1}, kind="masked")
    (section,) = report(Run.open(tmp_path / "masked")).sections
    assert [(place.kind, place.higher, place.of) for place in reference_ranks(section)] == [("masked", 0, 1)]

    (tmp_path / "data/gest/gest.csv").write_text((tmp_path / "data/gest/gest.csv").read_text().replace("Sentence 0", "Other"))
    (section,) = report(own(tmp_path / "other", data, {"mine": MINE})).sections
    assert reference_ranks(section) == []
    assert told(section) == ["published scores of gest are not compared: they are of another version of the data"]


def test_another_protocol_has_a_caveat_and_a_limit_is_not_compared(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, PUBLISHED)
    run = own(tmp_path / "run", data, {"mine": MINE}, protocol="default")
    (section,) = report(run).sections
    assert [place.higher for place in reference_ranks(section)] == [2]
    (caveat,) = told(section)
    assert caveat.startswith(
        "published scores follow the protocol published, this run the protocol default: both give the same scores"
    )
    record = run.record
    record["models"]["mine"]["asked"] = {"gest": {"limit": 16, "seed": 0}}
    (run.path / "run.json").write_text(json.dumps(record))
    (section,) = report(run).sections
    assert reference_ranks(section) == []
    assert told(section)[0] == "mine is not compared with references: only 16 of 64 samples were scored (limit)"


def test_runs_stand_beside_in_the_same_way(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, PUBLISHED)
    own(tmp_path / "archive", data, {"first": 0.3, "second": 0.7})
    run = own(tmp_path / "run", data, {"mine": MINE})
    (section,) = report(run, beside=(tmp_path / "archive",)).sections
    assert [(p.source, p.higher, p.of, p.nearest) for p in reference_ranks(section)] == [
        ("published", 2, 4, "near"),
        ("archive", 1, 2, "second"),
    ]
    rates = evaluator.open(run.path).rates(beside=[tmp_path / "archive"], resamples=20)
    overall = rates.filter(measure="g_s", template="all")
    assert dict(overall.select("model", "source").iter_rows()) == {"mine": None, "first": "archive", "second": "archive"}


def test_wrong_references_end_in_a_line(tmp_path: Path, data: DataSource) -> None:
    run = own(tmp_path / "run", data, {"mine": MINE})
    result = invoke("report", run.path, "--published")
    assert "the published scores are not in the cache: run `evaluator data fetch published`" in str(result.exception)
    assert "is the run itself" in str(invoke("report", run.path, "--beside", run.path).exception)


def test_compare_tests_only_what_was_measured(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, PUBLISHED)
    own(tmp_path / "a", data, {"mine": MINE})
    own(tmp_path / "b", data, {"mine": 0.1})
    options = ("--resamples", 20, "--permutations", 50, "--format", "csv")
    alone = invoke("compare", tmp_path / "a", tmp_path / "b", *options)
    both = invoke("compare", tmp_path / "a", tmp_path / "b", "--published", *options)
    assert both.exit_code == alone.exit_code == 0, both.output
    assert both.stdout == alone.stdout
    near = "published generative models; nearest:"
    assert f"note: g_s of a:mine is higher than 2 of 4 {near} near (3.981)." in both.stderr
    assert f"note: g_s of b:mine is higher than 1 of 4 {near} lower (1.585)." in both.stderr
    shown = invoke("compare", tmp_path / "a", tmp_path / "b", "--published", *options[:-1], "table")
    assert "near (published)" in shown.stdout


def test_sentences_say_how_many_references_score_them_lower(tmp_path: Path, data: DataSource) -> None:
    publish(tmp_path, data, PUBLISHED)
    run = own(tmp_path / "run", data, {"mine": MINE})
    folder = ("--data", tmp_path / "data", "--format", "csv")
    listed = pl.read_csv(io.StringIO(invoke("samples", run.path, "--published", "--top", 100, *folder).stdout))
    male = pl.col("sample_group") >= 8
    assert set(listed["references"]) == {4}
    assert set(listed.filter(male)["lower"]) == {2}  # of a female stereotype the order is the other way round
    assert set(listed.filter(~male)["lower"]) == {2}
    against = invoke("samples", run.path, "--published", "--against", "high", "--top", 3, *folder)
    differences = pl.read_csv(io.StringIO(against.stdout))
    assert set(differences["against"]) == {"high (published)"}
    expected = (MINE - 2.0) / 2 * math.log(10)
    assert differences["difference"].abs().to_list() == pytest.approx([abs(expected)] * differences.height)
