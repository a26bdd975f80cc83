"""Each format is what it says: widths, escapes, exact columns, self-contained HTML."""

import csv
import io
import json
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from evaluator.reports import html, latex, markdown, table, tidy
from evaluator.reports.blocks import Block, Row
from evaluator.reports.report import Report
from evaluator.vocabulary import TIDY, Layout, MeasureOptions, Overview
from evaluator_serving.errors import InputError


def text(made: Report, width: int = 80) -> list[str]:
    return [line.plain for line in table.render(made, width)]


def plain(made: Report) -> str:
    return "\n".join(text(made))


class TestTable:
    def test_fits_80_columns_with_four_templates_and_long_names(self, gest_rows: Any, report: Any) -> None:
        name = "an-organisation/with-a-model-of-a-very-long-name-" + "x" * 20
        lines = text(report(gest_rows(("bert", name), ("1", "2", "3", "4"))))
        assert max(map(len, lines)) <= 80
        header = next(line for line in lines if line.startswith("group"))
        assert header.split() == ["group", "1", "2", "3", "4"]  # all four beside each other

    def test_wider_tables_are_cut_into_parts_that_repeat_the_labels(self) -> None:
        columns = ("group", *(f"m\n{i}" for i in range(9)))
        block = Block("t", columns, (Row("label", ("0.123 [0.1, 0.2]",) * 9),))
        lines = [line.plain for line in table.block_lines(block, 60)]
        assert max(map(len, lines)) <= 60
        assert sum(line.startswith("label") for line in lines) == 3  # (60 - 5) // 18 columns each
        assert sum(line.count("0.123") for line in lines) == 9

    def test_a_models_columns_stay_together(self) -> None:
        columns = ("group", "a\n1", "a\n2", "b\n1", "b\n2", "b\n3")
        block = Block("t", columns, (Row("x", ("1234567890",) * 5),))
        headers = [line.plain.split() for line in table.block_lines(block, 50) if line.plain.startswith("group")]
        assert headers == [["group", "1", "2"], ["group", "1", "2", "3"]]

    def test_names_scale_interval_and_protocol(self, small: Report) -> None:
        head = " ".join(text(small)[:6])
        assert "scale: ratio" in head
        assert "percentile bootstrap, 1,000 resamples, seed 0" in head
        assert "protocol: default" in head

    def test_no_scale_where_no_value_has_one(self, rows: Any, report: Any) -> None:
        made = report(rows({"model": "m", "template": "1", "measure": "SS", "value": 1.0}))
        assert not any("scale" in line for line in text(made))

    def test_warnings_and_failures_have_a_place(self, gest_rows: Any, report: Any) -> None:
        lines = text(report(gest_rows(), warnings=("the control group overlaps",), failures=(("bert", "r", "why"),)))
        assert "warning: the control group overlaps" in lines
        assert any("1 failure" in line for line in lines)

    def test_brief_has_the_first_table_only(self, small: Report) -> None:
        lines = [line.plain for line in table.render(small, brief=True)]
        assert any(line.startswith("template") for line in lines)
        assert not any("emotional" in line for line in lines)
        assert "evaluator report runs/my-run" in lines[-1]

    def test_no_scores_yet(self, rows: Any, report: Any) -> None:
        assert "no scores yet" in text(report(rows()))


@pytest.mark.parametrize("render", [plain, markdown.render, latex.render, html.render])
def test_never_says_what_a_single_q_would_prefer(render: Any, small: Report) -> None:
    said = render(small).lower()
    assert "prefer" not in said.replace("prefers-color-scheme", "")
    assert "emotional" in said
    assert "self-confident" in said


@pytest.mark.parametrize("render", [plain, markdown.render, html.render])
def test_warnings_are_in_the_document(render: Any, gest_rows: Any, report: Any) -> None:
    assert "overlaps the original" in render(report(gest_rows(), warnings=("control overlaps the original",)))


class TestTidy:
    def test_csv_has_exactly_the_columns_in_order(self, small: Report) -> None:
        lines = tidy.csv_text(small.rows).splitlines()
        assert lines[0] == "model,task,language,template,measure,group,value,low,high,n,scale,interval,pole,other,protocol"
        assert len(lines) == 1 + small.rows.height

    def test_csv_keeps_every_digit_and_leaves_nulls_empty(self, rows: Any) -> None:
        value = 1 / 3
        (line,) = csv.DictReader(io.StringIO(tidy.csv_text(rows({"model": "m", "measure": "g_s", "value": value}))))
        assert float(line["value"]) == value
        assert line["low"] == line["group"] == ""

    def test_json_is_an_array_of_rows(self, small: Report) -> None:
        loaded = json.loads(tidy.json_text(small.rows))
        assert [list(row) for row in loaded] == [list(TIDY)] * small.rows.height
        assert pl.DataFrame(loaded, schema=TIDY).equals(small.rows)


class TestMarkdown:
    def test_tables_are_regular(self, gest_rows: Any, report: Any) -> None:
        lines = markdown.render(report(gest_rows(("a|b", "c_d")))).splitlines()
        for previous, line in pairwise(lines):
            if previous.startswith("|") and line.startswith("|"):
                assert len(re.findall(r"(?<!\\)\|", previous)) == len(re.findall(r"(?<!\\)\|", line))
        assert any(r"a\|b" in line for line in lines)

    def test_names_the_data_and_the_engine(self, small: Report) -> None:
        said = markdown.render(small)
        assert "onnx" in said
        assert "float32" in said
        assert "3 no pronoun" in said


class TestLatex:
    def test_rows_have_as_many_cells_as_the_table_has_columns(self, gest_rows: Any, report: Any) -> None:
        columns, seen = 0, 0
        for line in latex.render(report(gest_rows(("a",), ("1", "2")))).splitlines():
            if found := re.match(r"\\begin\{longtable\}\{(l r*|lr*)\}", line):
                columns = len(found[1])
            elif line.endswith(r" \\") and not line.startswith((r"\caption", r"\multicolumn")):
                assert line.count(" & ") + 1 == columns
                seen += 1
        assert seen == 3 + 1 + 2 + 1 + 2 + 1  # summary, details, ranks, each with a header

    def test_environments_match(self, small: Report) -> None:
        said = latex.render(small)
        assert said.count(r"\begin{longtable}") == said.count(r"\end{longtable}") == 3
        assert said.count(r"\toprule") == said.count(r"\bottomrule") == 3

    def test_special_characters(self) -> None:
        assert latex.escape("50% of a_b & c#1 {x} $y$ ^ ~ \\") == (
            r"50\% of a\_b \& c\#1 \{x\} \$y\$ \textasciicircum{} \textasciitilde{} \textbackslash{}"
        )


class _Page(HTMLParser):
    """Collects what a page would load from elsewhere, and checks that its elements are closed."""

    void = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.void:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "data", "action") and not (value or "").startswith("#"):
                self.loads.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def pictures(made: Report) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html.render(made), re.DOTALL)]


def picture(made: Report, label: str) -> ET.Element:
    (found,) = [p for p in pictures(made) if label in p.get("aria-label", "")]
    return found


class TestHtml:
    def test_is_well_formed_and_loads_nothing(self, gest_rows: Any, report: Any) -> None:
        source = html.render(report(gest_rows(("a", "b"))))
        page = _Page()
        page.feed(source)
        assert page.open == []
        assert page.loads == []
        assert not re.search(r"https?://|@import|url\(|<script|<link", source)

    def test_names_are_escaped(self, gest_rows: Any, report: Any) -> None:
        page = html.render(report(gest_rows(("<img src=x>&",)), warnings=("<b>bold</b>",)))
        assert "<img" not in page
        assert "<b>" not in page
        assert "&lt;img src=x&gt;&amp;" in page

    def test_interval_plot_tells_polarity_by_shape_and_label(self, small: Report) -> None:
        plot = picture(small, "q of bert")
        texts = [t.text or "" for t in plot.iter("text")]
        assert "1 emotional (f)" in texts
        assert "9 self-confident (m)" in texts
        assert texts.count("template 1") == texts.count("template 2") == 1
        circles, squares = list(plot.iter("circle")), list(plot.iter("rect"))
        assert len(circles) == len(squares) == 2  # a group each in two panels
        assert {c.get("class") for c in circles} == {"second"}
        assert {s.get("class") for s in squares} == {"first"}

    def test_interval_plot_puts_larger_values_further_right(self, small: Report) -> None:
        plot = picture(small, "q of bert")
        circle, square = next(plot.iter("circle")), next(plot.iter("rect"))
        line = next(line for line in plot.iter("line") if line.get("class") == "second-line")
        low, high = (float(line.get(end, "nan")) for end in ("x1", "x2"))
        assert low < float(circle.get("cx", "nan")) < high
        assert float(square.get("x", "nan")) > high  # 2.25 against 1.25 ± 0.1
        assert "1.250 [1.150, 1.350], n = 100" in (circle.findtext("title") or "")

    def test_overview_orders_models_by_their_overall_value(self, gest_rows: Any, report: Any) -> None:
        higher = pl.when(pl.col("model") == "high").then(pl.col("value") + 1).otherwise(pl.col("value"))
        plot = picture(report(gest_rows(("low", "high")).with_columns(value=higher)), "of all models")
        texts = [t.text for t in plot.iter("text")]
        assert texts.index("high") < texts.index("low")
        assert [line.get("class") for line in plot.iter("line")].count("neutral") == 1

    def test_overview_stands_letters_for_long_template_names(self, rows: Any, report: Any) -> None:
        place = {"model": "m", "measure": "SS", "group": "all"}
        table_ = rows(
            *(
                place | {"template": t, "value": v}
                for t, v in (("intersentence", 52.0), ("intrasentence", 61.0), ("overall", 57.0))
            )
        )
        made = report(table_, layout=Layout(summary=("SS",), overview=(Overview("SS", 50.0),)))
        texts = [t.text for t in picture(made, "SS of all models").iter("text")]
        assert [t for t in texts if t in ("a", "b")] == ["a", "b"]
        assert "a intersentence, b intrasentence" in html.render(made)

    def test_shows_ranks_and_where_numbers_come_from(self, small: Report) -> None:
        assert picture(small, "distribution of rank") is not None
        page = html.render(small)
        facts = (
            "onnx",
            "float32",
            "sha256:fedcba987654",
            "3 no pronoun",
            "two candidates with one label",
            "evaluator run gest",
        )
        assert [fact for fact in facts if fact not in page] == []

    def test_one_value_without_interval(self, rows: Any, report: Any) -> None:
        made = report(rows({"model": "m", "template": "1", "measure": "q", "group": "1", "value": 1.0, "scale": "ratio"}))
        assert len(pictures(made)) == 1

    def test_log10_has_linear_axes(self, gest_rows: Any, report: Any) -> None:
        shifted = gest_rows().with_columns(pl.col("value", "low", "high") - 1.5)
        assert "log axis" in html.render(report(gest_rows()))
        assert "log axis" not in html.render(report(shifted, options=MeasureOptions(scale="log10")))

    def test_without_jinja2_says_what_to_install(self, small: Report, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jinja2", None)
        with pytest.raises(InputError, match=r"\[report\]"):
            html.render(small)
