"""LaTeX of reports and comparisons compiles as it is, whatever models are called."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.comparison.conftest import invoke, make_run, scores

NAME = "a_b%c&d#e$f~g^h{i}ü-Ž-Δρ"

DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{booktabs}
\usepackage{longtable}
\begin{document}
%s
\end{document}
"""


def test_pdflatex_sets_every_table(data: Path, tmp_path: Path) -> None:
    if not shutil.which("pdflatex"):
        pytest.skip("needs TeX (pdflatex with booktabs)")
    run = make_run(tmp_path / "run", data, **{NAME: scores(), "plain": scores(0.5, 0.3)})
    made = [invoke("report", run, "--format", "latex"), invoke("compare", run, "--format", "latex", "--permutations", 99)]
    for result in made:
        assert result.exit_code == 0, result.output
    tables = sum(result.stdout.count(r"\begin{longtable}") for result in made)
    assert tables > 3
    (tmp_path / "paper.tex").write_text(DOCUMENT % "\n".join(result.stdout for result in made), encoding="utf8")
    for _ in range(2):  # longtable finds its widths in the first pass
        subprocess.run(["pdflatex", "-interaction=nonstopmode", "paper.tex"], cwd=tmp_path, capture_output=True, timeout=300)
    log = (tmp_path / "paper.log").read_text(encoding="latin1")
    assert not re.findall(r"^! .*", log, re.M)
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
    assert "Missing character" not in log
