"""Figures hold the numbers of the rows that they are drawn from, and every one of them can be drawn."""

import io
import json
import math
import re
from pathlib import Path

import polars as pl
import pytest

from evaluator.reports import html, latex, markdown
from evaluator.reports.export import svg, write_figures, write_picture
from evaluator.reports.facts import ModelFacts
from evaluator.reports.figure import Figure
from evaluator.reports.figures import report_figures, section_figures
from evaluator.reports.page.palette import LIGHT
from evaluator.reports.report import Report, Section
from evaluator.tasks import task
from evaluator.tasks.gest_layout import rates_layout
from evaluator.tasks.stereoset import icat_line
from evaluator.vocabulary import MeasureOptions, Scale
from evaluator_serving.errors import InputError
from tests.reports import pages
from tests.reports.conftest import GROUPS, POLARITY, make_gest_rows, make_report, make_rows
from tests.reports.test_undefined import NAMES, measured, section

SIZES = {
    "base": ModelFacts(1e9, "owl", tuned=False, series="owl training", step=1),
    "tuned": ModelFacts(1e9, "owl", tuned=True, base="base", series="owl training", step=2),
    "other": ModelFacts(7e9, "elk"),
    "unknown": ModelFacts(),
}


def named(figures: list[Figure], name: str) -> Figure:
    (found,) = [figure for figure in figures if figure.name == name]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_every_kind_of_task_can_be_drawn(name: str) -> None:
    """As SVG: the compiler of Vega-Lite and Vega's drawing take them, and what is drawn is what they say."""
    figures = section_figures(section(name, measured(name)))
    assert len({figure.name for figure in figures}) == len(figures) > 0
    for figure in figures:
        if figure.name.endswith("-r_templates"):  # of two templates: a number
            assert figure.chart is None
            continue
        assert figure.chart is not None, figure.title
        drawn = svg(figure)
        assert drawn.count("<path") > 2, figure.title
        assert "NaN" not in drawn, figure.title


@pytest.mark.parametrize("name", NAMES)
def test_a_figures_numbers_are_those_of_the_rows(name: str) -> None:
    """Of every figure with columns value, low, high: all of them stand so in the rows, to the last digit."""
    whole = measured(name)
    known = {row[:3] for row in whole.select("value", "low", "high").iter_rows()}
    means = {f"{name}-r_templates"}
    for figure in section_figures(section(name, whole)):
        data = pl.read_csv(io.StringIO(figure.csv), infer_schema_length=None)
        if figure.name not in means and {"value", "low", "high"} <= set(data.columns):
            numbers = data.select(pl.col("value", "low", "high").cast(pl.Float64))
            assert set(numbers.iter_rows()) <= known, figure.name


def test_one_number_in_every_format() -> None:
    """g_s of one model over all templates: page, figure, csv, JSON, Markdown and LaTeX have it alike."""
    rows = make_gest_rows(("a", "b")).with_columns(
        pl.when(pl.col("model") == "b").then(pl.col("value", "low", "high") * 1.2345).otherwise(pl.col("value", "low", "high"))
    )
    made: Report = make_report(rows)
    row = made.rows.filter(model="b", measure="g_s", template="all").row(0, named=True)
    page = html.render(made)
    _, drawn = pages.figure(page, "g_s of all models")
    assert drawn.filter(model="b", template="all").select("value", "low", "high").row(0) == (
        row["value"],
        row["low"],
        row["high"],
    )
    csv = pl.read_csv(io.StringIO(made.rows.write_csv())).filter(model="b", measure="g_s", template="all")
    assert csv.select("value", "low", "high").row(0) == (row["value"], row["low"], row["high"])
    shown = f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    assert shown == "2.222 [2.099, 2.346]"
    assert shown in pages.text(page)
    assert shown in markdown.render(made).replace("\\", "")
    assert "2.222" in latex.render(made)


def sized() -> Section:
    return Section("gest", make_gest_rows(tuple(SIZES)), rates_layout(GROUPS, POLARITY, "ratio"), (), models=SIZES)


def test_models_by_their_parameters() -> None:
    figure = named(section_figures(sized()), "gest-g_s-parameters")
    shown = figure.data.select("model", "parameters", "family", "kind", "pair").rows()
    assert shown == [
        ("base", 1e9, "owl", "base model", "base"),
        ("tuned", 1e9, "owl", "instruction-tuned", "base"),
        ("other", 7e9, "elk", "unknown", "other"),
    ]
    assert "1 models are omitted" in figure.caption
    assert "1B" in svg(figure)


def test_checkpoints_of_one_training() -> None:
    figure = named(section_figures(sized()), "gest-g_s-checkpoints")
    assert figure.data.select("series", "step").rows() == [("owl training", 1), ("owl training", 2)]


@pytest.mark.parametrize("scale", ["ratio", "log10"])
def test_what_has_no_level_is_shown_against_its_mean(scale: Scale) -> None:
    """q of 1.25 and 2.25: against their geometric mean on the ratio scale, less their mean on the logarithmic one."""
    made = Section("gest", make_gest_rows(("a", "b")), rates_layout(GROUPS, POLARITY, scale), ())
    data = named(section_figures(made), "gest-q-heat").data
    q = (1.25, 2.25)
    expected = [x / math.sqrt(math.prod(q)) if scale == "ratio" else x - sum(q) / 2 for x in q]
    for model in ("a", "b"):
        assert data.filter(model=model, template="1")["relative"].to_list() == pytest.approx(expected)


def test_pairs_of_models_once_each_and_of_templates_both_ways() -> None:
    whole = measured("gest")
    rows = whole.filter(pl.col("measure") == "r_templates", pl.col("model") != "all")
    third = rows.with_columns(other=pl.lit("5"), value=pl.col("value") / 2)
    figures = section_figures(section("gest", pl.concat([whole, third])))
    models = named(figures, "gest-r_models").data
    assert models.group_by("template").len()["len"].to_list() == [3, 3]  # of three models
    templates = named(figures, "gest-r_templates").data
    assert sorted(templates.select("template", "other").rows()) == [("3", "4"), ("3", "5"), ("4", "3"), ("5", "3")]
    mean = rows["value"].mean()
    assert templates.filter(pl.col("other") == "4")["value"].to_list() == pytest.approx([mean])
    assert templates.filter(pl.col("other") == "5")["value"].to_list() == pytest.approx([mean / 2])  # type: ignore[operator]


def test_a_single_correlation_is_a_number() -> None:
    whole = measured("gest").filter(pl.col("measure") == "r_templates", pl.col("model") != "all")
    single = named(section_figures(section("gest", measured("gest"))), "gest-r_templates")
    assert single.chart is None
    assert single.caption.startswith(f"3 and 4: {whole['value'].mean():.2f} (mean of 3 models).")
    pair = {"measure": "r_models", "model": "a", "other": "b", "n": 2}
    made = pl.concat(
        [make_gest_rows(("a", "b")), make_rows(pair | {"template": "1", "value": 0.5}, pair | {"template": "2", "value": 0.25})]
    )
    single = named(section_figures(section("gest", made)), "gest-r_models")
    assert single.chart is None
    assert single.caption.startswith("a and b: 0.50 (template 1), 0.25 (template 2).")


def test_a_colour_stands_for_the_same_pole_in_all_figures() -> None:
    """Drawn: the cell of the male group is bluer than red, that of the female one redder, as the points by group are."""
    figures = section_figures(Section("gest", make_gest_rows(("a", "b")), rates_layout(GROUPS, POLARITY, "ratio"), ()))
    heat = svg(named(figures, "gest-q-heat"))
    fills = re.findall(
        r'aria-roledescription="rect mark".*?fill="rgb\((\d+), (\d+), (\d+)\)"|fill="rgb\((\d+), (\d+), (\d+)\)"', heat
    )
    cells = [tuple(int(x) for x in found if x) for found in fills]
    female, male = cells[0], cells[1]
    assert female[0] > female[2]
    assert male[2] > male[0]
    points = named(figures, "gest-q-intervals").chart
    assert '["female", "male", "other"]' in json.dumps(points)  # in the categories' first colours:
    assert (LIGHT["c1"], LIGHT["c2"]) == ("#d55e00", "#0072b2")


def test_ranks_of_few_pairs_are_points() -> None:
    layout = rates_layout(GROUPS, POLARITY, "ratio")
    for models, mark in ((("a", "b"), "point"), (("a", "b", "c"), "boxplot")):
        figure = named(section_figures(Section("gest", make_gest_rows(models), layout, ())), "gest-rank")
        assert figure.chart is not None
        assert figure.chart["mark"]["type"] == mark


def test_icat_is_the_same_along_a_line() -> None:
    for ss, lms in icat_line(60.0).points:
        assert lms * min(ss, 100 - ss) / 50 == pytest.approx(60.0)
        assert 0 <= ss <= 100
        assert lms <= 100 + 1e-9


def test_two_tasks_against_each_other() -> None:
    sections = tuple(section(name, measured(name)) for name in ("gest", "winobias"))
    made = Report(Path("runs/made"), {"models": {}, "tasks": {}}, MeasureOptions(), sections, pl.DataFrame())
    figures = [figure for figure in report_figures(made) if figure.name.startswith("gest-winobias")]
    assert [figure.name for figure in figures] == ["gest-winobias-type1-dev", "gest-winobias-type1-test"]
    rows = {row["model"]: row for row in measured("gest").filter(measure="g_s", template="all").iter_rows(named=True)}
    for model, x, low in figures[0].data.select("model", "x", "x_low").iter_rows():
        assert (x, low) == (rows[model]["value"], rows[model]["low"])
    assert "not defined (n = 3)" in figures[0].caption
    assert svg(figures[0])


def test_files(tmp_path: Path) -> None:
    figures = section_figures(sized())
    written = write_figures(figures, tmp_path / "new" / "figures")
    assert {path.name for path in written} == {f"{figure.name}.{kind}" for figure in figures for kind in ("svg", "png", "csv")}
    first = figures[0]
    folder = tmp_path / "new" / "figures"
    assert (folder / f"{first.name}.csv").read_text() == first.csv
    assert (folder / f"{first.name}.svg").read_text().startswith("<svg")
    assert (folder / f"{first.name}.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't write figures"):
        write_figures(figures, tmp_path / "file" / "below")
    write_picture(figures[:2], tmp_path / "two.pdf")
    assert (tmp_path / "two.pdf").read_bytes().startswith(b"%PDF")


def test_a_layout_names_no_measure_that_isnt_there() -> None:
    """Of scatters and heat maps: a misspelt one would draw nothing."""
    for name in NAMES:
        made = task(name)
        layout = made.layout(MeasureOptions())
        assert layout is not None
        wanted = {measure for each in layout.scatters for measure in (each.x, each.y)} | set(layout.relative)
        assert wanted <= set(measured(name)["measure"]), name
