r"""The report's tables as LaTeX: `\input` them in a document that loads booktabs and longtable."""

from collections.abc import Iterator, Sequence

from evaluator.reports.blocks import Block, blocks, by_model
from evaluator.reports.report import Report

PREAMBLE = "% needs \\usepackage{booktabs} and \\usepackage{longtable}"
"""The first line of every result."""

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "−": "$-$",
    "…": r"\dots{}",
    "·": r"\textperiodcentered{}",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "√": r"$\surd$",
    "\u0302": r"\textasciicircum{}",  # LaTeX sets an accent in front of its letter
    **{letter: rf"$\{name}$" for letter, name in zip("ΔΣβμρσ", ("Delta", "Sigma", "beta", "mu", "rho", "sigma"), strict=True)},
}
"""What pdfLaTeX doesn't set as it stands. Names in other scripts are left: LuaLaTeX and XeLaTeX set them."""


def render(report: Report) -> str:
    """A longtable a table, each with a caption; the choices behind the numbers are in the captions."""
    lines = [PREAMBLE]
    lines += [f"% {line}" for line in report.choices]
    lines += [f"% note: {text}" for text in report.notes]
    lines += [f"% warning: {text}" for text in report.warnings]
    for section in report.sections:
        for block in (part for whole in blocks(section) for part in by_model(whole)):
            if block.rows:
                lines += ["", *table(block, report.choices)]
    return "\n".join(lines) + "\n"


def table(block: Block, choices: Sequence[str]) -> Iterator[str]:
    """Lines of a longtable, whose caption says what choices are behind its numbers."""
    wide = len(block.columns)
    yield rf"\begin{{longtable}}{{l{'r' * (wide - 1)}}}"
    caption = " ".join([f"{block.title} ({'; '.join(choices)}).", *block.notes])
    yield rf"\caption{{{escape(caption)}}}\\"
    yield r"\toprule"
    yield " & ".join(escape(name.replace("\n", ", ")) for name in block.columns) + r" \\"
    yield r"\midrule"
    yield r"\endhead"
    for index, row in enumerate(block.rows):
        if row.heading:
            if index:
                yield r"\addlinespace"
            yield rf"\multicolumn{{{wide}}}{{l}}{{\textit{{{escape(row.label)}}}}} \\"
        else:
            # an opening bracket after \\ would be read as an argument
            yield " & ".join(map(escape, [row.label, *row.cells])) + r" \\"
    yield r"\bottomrule"
    yield r"\end{longtable}"


def escape(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return "".join(_SPECIAL.get(mark, mark) for mark in text)
