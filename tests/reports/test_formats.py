"""Each format is what it says: widths, escapes, exact columns, self-contained HTML."""

import csv
import io
import json
import re
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.cli.output import json_text
from evaluator.reports import html, latex, markdown, table
from evaluator.reports.blocks import Block, TableRow
from evaluator.reports.page import vega
from evaluator.reports.report import Report
from evaluator.vocabulary import TIDY, MeasureOptions
from evaluator_serving.errors import InputError
from tests.reports import pages
from tests.reports.conftest import make_gest_rows, make_report, make_rows


def text(made: Report, width: int = 80) -> list[str]:
    return [line.plain for line in table.render(made, width)]


def plain(made: Report) -> str:
    return "\n".join(text(made))


class TestTable:
    def test_fits_80_columns_with_four_templates_and_long_names(self) -> None:
        name = "an-organisation/with-a-model-of-a-very-long-name-" + "x" * 20
        lines = text(make_report(make_gest_rows(("bert", name), ("1", "2", "3", "4"))))
        assert max(map(len, lines)) <= 80
        header = next(line for line in lines if line.startswith("group"))
        assert header.split() == ["group", "1", "2", "3", "4"]  # all four beside each other

    def test_wider_tables_are_cut_into_parts_that_repeat_the_labels(self) -> None:
        columns = ("group", *(f"m\n{i}" for i in range(9)))
        block = Block("t", columns, (TableRow("label", ("0.123 [0.1, 0.2]",) * 9),))
        lines = [line.plain for line in table.block_lines(block, 60)]
        assert max(map(len, lines)) <= 60
        assert sum(line.startswith("label") for line in lines) == 3  # (60 - 5) // 18 columns each
        assert sum(line.count("0.123") for line in lines) == 9

    def test_a_models_columns_stay_together(self) -> None:
        columns = ("group", "a\n1", "a\n2", "b\n1", "b\n2", "b\n3")
        block = Block("t", columns, (TableRow("x", ("1234567890",) * 5),))
        headers = [line.plain.split() for line in table.block_lines(block, 50) if line.plain.startswith("group")]
        assert headers == [["group", "1", "2"], ["group", "1", "2", "3"]]

    def test_names_scale_interval_and_protocol(self, small: Report) -> None:
        head = " ".join(text(small)[:6])
        assert "scale: ratio" in head
        assert "percentile bootstrap, 1,000 resamples, seed 0" in head
        assert "protocol: default" in head

    def test_no_scale_where_no_value_has_one(self) -> None:
        made = make_report(make_rows({"model": "m", "template": "1", "measure": "SS", "value": 1.0}))
        assert not any("scale" in line for line in text(made))

    def test_warnings_and_failures_have_a_place(self) -> None:
        lines = text(make_report(make_gest_rows(), warnings=("the control group overlaps",), failures=(("bert", "r", "why"),)))
        assert "warning: the control group overlaps" in lines
        assert any("1 failure" in line for line in lines)

    def test_brief_has_the_first_table_only(self, small: Report) -> None:
        lines = [line.plain for line in table.render(small, brief=True)]
        assert any(line.startswith("template") for line in lines)
        assert not any("emotional" in line for line in lines)
        assert "evaluator report runs/my-run" in lines[-1]

    def test_no_scores_yet(self) -> None:
        assert "no scores yet" in text(make_report(make_rows()))


@pytest.mark.parametrize("render", [plain, markdown.render, partial(latex.render, long=True), html.render])
def test_never_says_what_a_single_q_would_prefer(render: Any, small: Report) -> None:
    said = words(render, small).lower()
    assert "prefer" not in said
    assert "emotional" in said
    assert "self-confident" in said


@pytest.mark.parametrize("render", [plain, markdown.render, html.render])
def test_warnings_are_in_the_document(render: Any) -> None:
    assert "overlaps the original" in render(make_report(make_gest_rows(), warnings=("control overlaps the original",)))


class TestTidy:
    def test_csv_has_exactly_the_columns_in_order(self, small: Report) -> None:
        lines = small.rows.write_csv().splitlines()
        assert (
            lines[0]
            == "model,task,language,template,measure,group,value,low,high,n,scale,interval,pole,other,protocol,condition"
        )
        assert len(lines) == 1 + small.rows.height

    def test_csv_keeps_every_digit_and_leaves_nulls_empty(self) -> None:
        value = 1 / 3
        (line,) = csv.DictReader(io.StringIO(make_rows({"model": "m", "measure": "g_s", "value": value}).write_csv()))
        assert float(line["value"]) == value
        assert line["low"] == line["group"] == ""

    def test_json_is_an_array_of_rows(self, small: Report) -> None:
        loaded = json.loads(json_text(small.rows))
        assert [list(row) for row in loaded] == [list(TIDY)] * small.rows.height
        assert pl.DataFrame(loaded, schema=TIDY).equals(small.rows)


class TestMarkdown:
    def test_tables_are_regular(self) -> None:
        lines = markdown.render(make_report(make_gest_rows(("a|b", "c_d")))).splitlines()
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
    def test_rows_have_as_many_cells_as_the_table_has_columns(self) -> None:
        columns, seen = 0, 0
        for line in latex.render(make_report(make_gest_rows(("a",), ("1", "2"))), long=True).splitlines():
            if found := re.match(r"\\begin\{longtable\}\{@\{\}(lr*)@\{\}\}", line):
                columns = len(found[1])
            elif line.endswith(r" \\") and not line.startswith((r"\caption", r"\multicolumn")):
                assert line.count(" & ") + 1 == columns
                seen += 1
        assert seen == 3 + 2 + 2 + 2 + 2 + 2  # summary, details, ranks, each with a header for the first page and for others

    def test_environments_match(self, small: Report) -> None:
        said = latex.render(small, long=True)
        assert said.count(r"\begin{longtable}") == said.count(r"\end{longtable}") == 3
        assert said.count(r"\toprule") == 2 * said.count(r"\bottomrule") == 6

    def test_special_characters(self) -> None:
        assert latex.escape("50% of a_b & c#1 {x} $y$ ^ ~ \\") == (
            r"50\% of a\_b \& c\#1 \{x\} \$y\$ \textasciicircum{} \textasciitilde{} \textbackslash{}"
        )


def words(render: Any, made: Report) -> str:
    """What a document says: of a page, without the libraries inside."""
    said: str = render(made)
    return pages.text(said) if render is html.render else said


class TestHtml:
    def test_is_well_formed_and_loads_nothing(self) -> None:
        source = html.render(make_report(make_gest_rows(("a", "b"))))
        assert pages.read(source).loads == []
        own = re.sub(r'<script class="library">.*?</script>', "", source, flags=re.DOTALL)
        assert len(own) < len(source) / 2
        assert not re.search(r"https?://|@import|url\(|<link", own)

    def test_vega_is_bundled_once_on_a_machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import vl_convert

        monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path))
        vega.cache_clear()
        bundle = vega()
        vega.cache_clear()
        monkeypatch.setattr(vl_convert, "javascript_bundle", lambda *_: pytest.fail("it was bundled before"))
        assert vega() == bundle
        assert "vegaEmbed" in bundle

    def test_names_are_escaped(self) -> None:
        page = html.render(make_report(make_gest_rows(("<img src=x>&</script>",)), warnings=("<b>bold</b>",)))
        assert "<img" not in re.sub(r'<script class="library">.*?</script>', "", page, flags=re.DOTALL)
        assert "<b>" not in page
        assert "&lt;img src=x&gt;&amp;" in page
        _, data = pages.figure(page, "g_s of all models")
        assert set(data["model"]) == {"<img src=x>&</script>"}

    def test_intervals_tell_polarity_by_shape_and_label(self, small: Report) -> None:
        spec, data = pages.figure(html.render(small), "q by group with intervals")
        assert sorted(set(data["name"])) == ["1 emotional (f)", "9 self-confident (m)"]
        (point,) = [layer["encoding"] for layer in spec["layer"] if "shape" in layer["encoding"]]
        assert point["shape"]["field"] == point["color"]["field"] == "pole"
        assert dict(zip(point["shape"]["scale"]["domain"], point["shape"]["scale"]["range"], strict=True)) == {
            "female": "circle",
            "male": "square",
            "other": "diamond",
        }
        (choice,) = spec["params"]
        assert choice["bind"]["options"] == ["bert · 1", "bert · 2"]

    def test_models_are_ordered_by_their_overall_value(self) -> None:
        higher = pl.when(pl.col("model") == "high").then(pl.col("value") + 1).otherwise(pl.col("value"))
        spec, data = pages.figure(
            html.render(make_report(make_gest_rows(("low", "high")).with_columns(value=higher))), "g_s of all"
        )
        assert dict(data.select("model", "order").unique().iter_rows()) == {"high": 0, "low": 1}
        assert [layer["encoding"]["x"] for layer in spec["layer"] if "datum" in layer["encoding"].get("x", {})] == [
            {"datum": 1.0}
        ]

    def test_long_names_stay_different(self) -> None:
        names = tuple(f"an-organisation/with-a-very-long-name-{i}-" + "x" * 30 for i in range(3))
        _, data = pages.figure(html.render(make_report(make_gest_rows(names))), "g_s of all")
        assert data["label"].n_unique() == 3
        assert data["label"].str.len_chars().max() <= 26  # type: ignore[operator]

    def test_shows_ranks_and_where_numbers_come_from(self, small: Report) -> None:
        page = html.render(small)
        assert pages.figure(page, "Feminine ranks by group over 2 pairs")[1].height == 4
        facts = (
            "onnx",
            "float32",
            "sha256:fedcba987654",
            "3 no pronoun",
            "two candidates with one label",
            "evaluator run gest",
        )
        assert [fact for fact in facts if fact not in pages.text(page)] == []

    def test_one_value_without_interval(self) -> None:
        made = make_report(
            make_rows({"model": "m", "template": "1", "measure": "q", "group": "1", "value": 1.0, "scale": "ratio"})
        )
        assert len(pages.figures(html.render(made))) == 1

    def test_log10_has_linear_axes(self) -> None:
        shifted = make_gest_rows().with_columns(pl.col("value", "low", "high") - 1.5)
        assert "log axis" in words(html.render, make_report(make_gest_rows()))
        assert "log axis" not in words(html.render, make_report(shifted, options=MeasureOptions(scale="log10")))

    def test_the_first_part_says_what_was_found_and_what_was_not(self) -> None:
        said = words(html.render, make_report(make_gest_rows(("a", "b"))))
        assert "Of 2 models, 2 have an interval above 1." in said
        assert "1.800 [1.700, 1.900] (a)" in said
        assert "What must not be concluded" in said
        assert said.index("can offend") < said.index("Of 2 models") < said.index("Table:")

    @pytest.mark.parametrize("library", ["jinja2", "altair", "vl_convert"])
    def test_without_a_library_says_what_to_install(self, library: str, small: Report, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(InputError, match=r"\[report\]"):
            html.render(small)
