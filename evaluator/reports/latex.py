r"""A report's tables as LaTeX, to be `\input`: one for a paper's results section a task, or all of them as long tables."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from evaluator.reports.beside import section_blocks, with_reference_rows
from evaluator.reports.blocks import Block, by_model, interval_kinds
from evaluator.reports.figure import slug
from evaluator.reports.paper import GAP, LABEL, PAGE, PaperTable, paper_table, points, split
from evaluator.reports.report import Report

PREAMBLE = "% needs \\usepackage{booktabs}"
PREAMBLE_LONG = "% needs \\usepackage{booktabs} and \\usepackage{longtable}"
"""The first line of every result, and of one with long tables."""
TALL = 45
"""Rows that a page holds."""
NARROWEST = 40.0
"""Points that a broken name of a model takes at least."""

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
    "±": r"$\pm$",
    "×": r"$\times$",
    "…": r"\dots{}",
    "·": r"\textperiodcentered{}",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "√": r"$\surd$",
    "\u0302": r"\textasciicircum{}",  # LaTeX sets an accent in front of its letter
    **{letter: rf"$\{name}$" for letter, name in zip("ΔΣβμρσ", ("Delta", "Sigma", "beta", "mu", "rho", "sigma"), strict=True)},
}
"""What pdfLaTeX doesn't set as it stands. Names in other scripts are left: LuaLaTeX and XeLaTeX set them."""

_WORD = re.compile(r"(?<![\w-])[A-Za-z]\w*(?![\w-])")
_MARKS = {"rho": r"\rho", "mu": r"\mu", "plus": "+", "holm": r"\mathrm{Holm}"}
_POWER = re.compile(r"([\d.]+)e([+-]\d+)")
_MINUS = re.compile(r"(?<!\w)-(?=[\d.])")


def render(report: Report, *, long: bool = False) -> str:
    """One table per task, one row per model; or (`long`) all tables. Options and notes are written as comments."""
    lines = [PREAMBLE_LONG if long else PREAMBLE]
    lines += [f"% {line}" for line in report.choices]
    lines += [f"% note: {text}" for text in report.notes]
    lines += [f"% warning: {text}" for text in report.warnings]
    for section in report.sections:
        if long:
            symbols = frozenset(section.rows["measure"])
            made = (part for whole in section_blocks(section) for part in by_model(whole) if part.rows)
            lines += long_tables(section.task, made, symbols)
        elif (table := paper_table(with_reference_rows(section))) is not None:
            lines += ["", *(f"% {line}" for line in interval_kinds(section.rows)), *paper(table)]
    return "\n".join(lines) + "\n"


def paper(table: PaperTable) -> Iterator[str]:
    """Lines of a `table`, or of a `table*` where a narrow column wouldn't hold it; of very many rows several."""
    parts = [range(start, min(start + TALL, len(table.labels))) for start in range(0, len(table.labels), TALL)]
    for number, rows in enumerate(parts, 1):
        which = f"{number} of {len(parts)}" if len(parts) > 1 else None
        yield from _float(table, rows, which)


def _float(table: PaperTable, rows: range, part: str | None) -> Iterator[str]:
    environment = "table*" if table.wide else "table"
    split_cells = [[split(cell) for cell in column.cells] for column in table.columns]
    double = [any(interval for _, interval in cells) for cells in split_cells]
    yield rf"\begin{{{environment}}}"
    yield r"\centering"
    yield r"\small"
    yield rf"\setlength{{\tabcolsep}}{{{GAP / 2:g}pt}}"
    yield rf"\begin{{tabular}}{{@{{}}{'l' * len(table.heads)}{''.join('r@{ }l' if two else 'r' for two in double)}@{{}}}}"
    yield r"\toprule"
    yield from _heads(table, double)
    yield r"\midrule"
    room = max(table.room, NARROWEST)
    previous = ""
    for row in rows:
        first, *others = table.labels[row]
        if len(others) and previous and first != previous:
            yield r"\addlinespace"
        shown = "" if first == previous and others else _broken(first, room) if points(first) > room else escape(first)
        previous = first
        cells = [shown, *(prose(other, table.symbols) for other in others)]
        for column, two in zip(split_cells, double, strict=True):
            value, interval = column[row]
            cells += [number(value), *([rf"{{\scriptsize {number(interval)}}}" if interval else ""] if two else [])]
        yield " & ".join(cells) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    yield rf"\caption{{{escape(table.name)}{f' ({part})' if part else ''}: {prose(table.caption, table.symbols)}}}"
    yield rf"\label{{tab:{slug(table.name, table.kind, part)}}}"
    yield rf"\end{{{environment}}}"


def _heads(table: PaperTable, double: Sequence[bool]) -> Iterator[str]:
    """The heads: measures, and below those that have several columns which of them each is."""
    widths = [2 if two else 1 for two in double]
    texts = [prose(column.measure, table.symbols) for column in table.columns]
    if any(column.which for column in table.columns):
        upper, rules, at = [""] * len(table.heads), "", len(table.heads) + 1
        for measure, group in groupby(zip(texts, widths, strict=True), key=itemgetter(0)):
            wide = sum(width for _, width in group)
            upper.append(_over(wide, measure))
            rules += rf"\cmidrule(lr){{{at}-{at + wide - 1}}}"
            at += wide
        yield " & ".join(upper) + r" \\"
        yield rules
        texts = [escape(column.which) for column in table.columns]
    yield " & ".join([*map(escape, table.heads), *map(_over, widths, texts)]) + r" \\"


def _over(columns: int, text: str) -> str:
    return rf"\multicolumn{{{columns}}}{{c}}{{{text}}}" if columns > 1 else text


def _broken(name: str, room: float) -> str:
    """A name in a box so wide, which may be broken behind its marks, or anywhere where that isn't enough."""
    parts = [piece for part in re.split(r"(?<=[\W_])", name) for piece in ([part] if points(part) < room else part)]
    text = r"\hspace{0pt}".join(map(escape, parts))
    return rf"\parbox[t]{{{room / 10:.1f}em}}{{\raggedright\strut {text}\strut}}"


def long_tables(name: str, made: Iterable[Block], symbols: Collection[str]) -> Iterator[str]:
    """Lines of all these tables of a task or comparison, their notes as comments; their labels have a letter each."""
    for letter, block in enumerate(made):
        yield ""
        yield from (f"% {note}" for note in block.notes)
        yield from _long_table(block, symbols, f"{slug(name)}-{_letters(letter)}")


def _letters(index: int) -> str:
    """a to z, then aa, ab and so on."""
    return (_letters(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def _long_table(block: Block, symbols: Collection[str], label: str) -> Iterator[str]:
    """Lines of a longtable, or of several that repeat the labels where a page isn't wide enough for all columns."""
    first = min(LABEL, max(points(text) for text in (block.columns[0], *(row.label for row in block.rows if row.cells))))
    for part, columns in enumerate(_parts(block, PAGE - first)):
        wide = len(columns) + 1
        yield r"\begingroup\small\setlength{\tabcolsep}{3pt}"
        yield rf"\begin{{longtable}}{{@{{}}l{'r' * len(columns)}@{{}}}}"
        yield rf"\caption{{{prose(block.title, symbols)}{' (continued)' if part else ''}.}}\label{{tab:{label}{part or ''}}}\\"
        yield r"\toprule"
        heads = [block.columns[0], *(block.columns[i].replace("\n", ", ") for i in columns)]
        for end in ("endfirsthead", "endhead"):  # the caption once, the heads on each page
            yield from ([r"\toprule"] if end == "endhead" else [])
            yield " & ".join(prose(head, symbols) for head in heads) + r" \\"
            yield r"\midrule"
            yield rf"\{end}"
        for index, row in enumerate(block.rows):
            if row.heading:
                if index:
                    yield r"\addlinespace"
                yield rf"\multicolumn{{{wide}}}{{@{{}}l}}{{\textit{{{escape(row.label)}}}}} \\"
            else:
                shown = _broken(row.label, first) if points(row.label) > LABEL else prose(row.label, symbols)
                # an opening bracket after \\ would be read as an argument
                yield " & ".join([shown, *(number(row.cells[i - 1]) for i in columns)]) + r" \\"
        yield r"\bottomrule"
        yield r"\end{longtable}"
        yield r"\endgroup"


def _parts(block: Block, room: float) -> Iterator[list[int]]:
    """Which columns of a block stand beside each other in so many points, at least one."""
    part: list[int] = []
    used = 0.0
    for index, head in enumerate(block.columns[1:], 1):
        width = max(points(text) for text in (head, *(row.cells[index - 1] for row in block.rows if row.cells))) + GAP
        if part and used + width > room:
            yield part
            part, used = [], 0.0
        part.append(index)
        used += width
    if part:
        yield part


def symbol(measure: str) -> str:
    """A measure's name as papers write it: `$g_s$`, `$\\hat{g}_s$`, `$q_{\\mathrm{family}}$`, `stereotype rate`."""
    base, *below = measure.split("_")
    if len(base) > (3 if below else 1) or not base.islower():
        return measure.replace("_", " ")
    head = _MARKS.get(base, base if len(base) == 1 else rf"\mathit{{{base}}}")
    if "hat" in below:
        head = rf"\hat{{{head}}}"
    marks = [_MARKS.get(part, part if len(part) == 1 else rf"\mathrm{{{part}}}") for part in below if part != "hat"]
    under = ",".join(marks)
    return f"${head}{'_' if marks else ''}{under if len(under) < 2 else '{' + under + '}'}$"


def prose(text: str, symbols: Collection[str]) -> str:
    """Text that LaTeX sets as it is, but for the names of measures, which become symbols."""
    parts = (_WORD.split(text), _WORD.findall(text))
    made = [escape(parts[0][0])]
    for word, between in zip(parts[1], parts[0][1:], strict=True):
        made += [symbol(word) if word in symbols else escape(word), escape(between)]
    return "".join(made)


def number(cell: str) -> str:
    """A cell with its minus signs and powers of ten."""
    signed = _MINUS.sub("$-$", escape(cell))
    return _POWER.sub(lambda found: rf"${found[1]}\times10^{{{int(found[2])}}}$", signed)


def escape(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return "".join(_SPECIAL.get(mark, mark) for mark in text)
