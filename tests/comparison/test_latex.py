"""LaTeX of reports and comparisons compiles as it is and fits, whatever models are called and however wide the columns are."""

import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from evaluator.reports import latex
from evaluator.reports.paper import paper_table, whichs
from evaluator.reports.report import Report, Section
from evaluator.tasks import task
from evaluator.vocabulary import SCORES, MeasureOptions, plain_layout, tidy
from tests.comparison.conftest import invoke, make_run, scores
from tests.reports.test_undefined import NAMES
from tests.reports.test_undefined import scores as scores_of

NAME = "a_b%c&d#e$f~g^h{i}ü-Ž-Δρ"
LONG = "HuggingFaceTB/SmolLM2-135M-Instruct"

DOCUMENT = r"""\documentclass[%s]{article}
\usepackage[T1]{fontenc}
\usepackage{booktabs}
%s
\begin{document}
Text.
%s
\end{document}
"""
NARROW = r"\setlength{\columnsep}{17pt}\setlength{\textwidth}{455pt}"
"""The text's measures of ACL's style: columns of 219 pt."""


def every_task() -> Report:
    """A report of three models and all kinds of tasks."""
    options = MeasureOptions(resamples=20)
    sections = []
    for name in NAMES:
        scored = scores_of(name).cast(SCORES).with_columns(pl.col("model").replace({"one": LONG, "two": NAME}))  # type: ignore[arg-type]
        rows = tidy(task(name).measure(scored, options))
        sections.append(Section(name, rows, task(name).layout(options) or plain_layout(rows), ()))
    return Report(Path("run"), {"models": {}, "tasks": {}}, options, tuple(sections), pl.DataFrame())


@pytest.fixture(scope="module")
def texts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, str]:
    """All LaTeX that there is, by whether it is the long kind."""
    folder = tmp_path_factory.mktemp("latex")
    models = {NAME: scores(), "plain": scores(0.5, 0.3), LONG.rpartition("/")[2]: scores(-0.4, 0.2)}
    run = make_run(folder / "run", data, **models)
    made = {}
    for long in (False, True):
        format_ = "latex-long" if long else "latex"
        compared = invoke("compare", run, "--format", format_, "--permutations", 99)
        assert compared.exit_code == 0, compared.output
        made[long] = latex.render(every_task(), long=long) + compared.stdout
    return made


def test_a_table_a_task_with_a_row_a_model(texts: dict[bool, str]) -> None:
    tables = re.findall(r"\\begin\{(table\*?)\}.*?\\end\{\1\}", texts[False], re.DOTALL)
    assert len(tables) == len(NAMES) + 1
    assert r"\begin{longtable}" not in texts[False]
    assert r"\documentclass" not in texts[False]
    labels = re.findall(r"\\label\{(.*?)\}", texts[False])
    assert labels == [*(f"tab:{name}" for name in NAMES), "tab:gest-differences"]
    assert r"& \multicolumn{6}{c}{$g_s$} \\" in texts[False]
    assert not re.search(r"[a-z]\\_[a-z]", re.sub(r"a\\_\\hspace\{0pt\}b|a\\_b|%.*", "", texts[False]))
    for body, spec in zip(
        re.findall(r"\\midrule\n(.*?)\\bottomrule", texts[False], re.DOTALL),
        re.findall(r"\\begin\{tabular\}\{@\{\}(.*?)@\{\}\}\n", texts[False]),
        strict=True,
    ):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert {row.count(" & ") + 1 for row in rows} == {len(spec.replace("@{ }", ""))}


def test_groups_without_poles_have_their_own_columns() -> None:
    """No g_s, q_m, q_f: the groups' q and not the words' mass, in rows where they are too many."""
    whole = every_task().sections[NAMES.index("gest")]
    rows = whole.rows.filter(~pl.col("measure").is_in(["g_s", "q_f", "q_m", "q_family"]))
    for kept, spec in ((["1"], "@{}lr@{ }lr@{ }l@{}"), ([str(i) for i in range(1, 17)], "@{}llr@{ }l@{}")):
        made = Section("own", rows.filter(pl.col("group").is_null() | pl.col("group").is_in(kept)), whole.layout, ())
        text = latex.render(Report(Path("run"), {"models": {}, "tasks": {}}, MeasureOptions(), (made,), pl.DataFrame()))
        assert rf"\begin{{tabular}}{{{spec}}}" in text
        assert "mass" not in text


def test_models_of_other_templates_have_their_own_rows_and_columns_say_which() -> None:
    """A masked model has one part of StereoSet only: no row is all dashes, and the caption names the columns that fit."""
    whole = every_task().sections[NAMES.index("stereoset-en")]
    part = pl.col("template") == "intrasentence"
    rows = whole.rows.filter((pl.col("model") != "plain") & (pl.col("model") != NAME) | part)
    section = Section("stereoset-en", rows, whole.layout, ())
    table = paper_table(section)
    assert table is not None
    assert [column.measure for column in table.columns] == ["SS", "LMS"]
    assert [label for label in table.labels if label[0] != "three"] == [
        *((LONG, which) for which in ("overall", "intrasentence")),
        (NAME, "intrasentence"),
    ]
    assert all(any(column.cells[row] for column in table.columns) for row in range(len(table.labels)))
    assert table.caption.startswith("SS, LMS with ")
    assert list(whichs([("q", None, "7"), ("q", None, "8")])) == ["7", "8"]
    assert list(whichs([("g_s", "all", None), ("g_s", "3", None)])) == ["all templates", "template 3"]
    assert list(whichs([("SS", "overall", "all"), ("SS", "intrasentence", "all")])) == ["overall", "intrasentence"]
    assert list(whichs([("g_s", "all", None), ("q_f", "3", None)])) == ["", ""]


def test_measures_become_symbols() -> None:
    names = {"g_s", "q_family", "g_hat_s", "rho_ss", "cs_plus", "stereotype_rate", "LMS", "p_holm", "q"}
    assert latex.prose("g_s = q_family, g_hat_s; rho_ss cs_plus my_q_f", names) == (
        r"$g_s$ = $q_{\mathrm{family}}$, $\hat{g}_s$; $\rho_{\mathrm{ss}}$ $\mathit{cs}_+$ my\_q\_f"
    )
    assert latex.prose("stereotype_rate, LMS, p_holm, q", names) == r"stereotype rate, LMS, $p_{\mathrm{Holm}}$, $q$"
    assert latex.number("-0.12/+0.10 -1.5e-07 [-1, 2]") == r"$-$0.12/+0.10 $-$$1.5\times10^{-7}$ [$-$1, 2]"


@pytest.mark.parametrize(
    ("options", "preamble", "long"),
    [("", "", False), ("12pt", "", False), ("twocolumn", "", False), ("twocolumn,11pt", NARROW, False), ("", "", True)],
)
def test_pdflatex_sets_every_table_within_the_margins(
    texts: dict[bool, str], tmp_path: Path, options: str, preamble: str, long: bool
) -> None:
    if not shutil.which("pdflatex"):
        pytest.skip("needs TeX (pdflatex with booktabs)")
    needed = r"\usepackage{longtable}" if long else ""
    references = "".join(rf"\ref{{{label}}} " for label in re.findall(r"\\label\{(.*?)\}", texts[long]))
    (tmp_path / "results.tex").write_text(texts[long], encoding="utf8")
    document = DOCUMENT % (options, needed + preamble, r"\input{results}" + references)
    (tmp_path / "paper.tex").write_text(document, encoding="utf8")
    for _ in range(2):  # longtable finds its widths in the first pass, references their numbers
        subprocess.run(["pdflatex", "-interaction=nonstopmode", "paper.tex"], cwd=tmp_path, capture_output=True, timeout=300)
    log = (tmp_path / "paper.log").read_text(encoding="latin1")
    assert not re.findall(r"^! .*", log, re.M)
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
    tables = log.partition("results.tex")[2].partition("\n)")[0]
    assert max(map(float, re.findall(r"Overfull \\hbox \((.*?)pt too wide", tables)), default=0) < 2
    for fault in ("Missing character", "multiply defined", "undefined", "Float too large"):
        assert fault not in log
