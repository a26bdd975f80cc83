"""The report as Markdown (GitHub's tables)."""

from collections.abc import Iterator

from evaluator.reports.beside import section_blocks
from evaluator.reports.blocks import Block, by_model, facts
from evaluator.reports.report import Report


def render(report: Report) -> str:
    """A document with one section per task, then where the numbers come from."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield from ("# Report", "")
    yield from (f"- {line}" for line in report.choices)
    yield ""
    yield from (f"> **Note:** {escape(text)}\n" for text in report.notes)
    for section in report.sections:
        yield from (f"## {section.task}", "")
        yield from (f"> **Warning:** {escape(text)}\n" for text in section.warnings)
        made = [part for block in section_blocks(section) for part in by_model(block)]
        if not made:
            yield from ("No scores yet.", "")
        for block in made:
            if block.title != section.task:
                yield from (f"### {block.title.removeprefix(f'{section.task}: ')}", "")
            yield from table(block)
    yield from ("## Provenance", "")
    for block in facts(report):
        yield from table(block)


def table(block: Block) -> Iterator[str]:
    """Lines of a table and its notes."""
    if block.rows:
        yield _row(name.replace("\n", ", ") for name in block.columns)
        yield "|" + " --- |" + " ---: |" * (len(block.columns) - 1)
        for row in block.rows:
            if row.heading:
                yield _row([f"**{escape(row.label)}**", *[""] * (len(block.columns) - 1)], escaped=True)
            else:
                yield _row([row.label, *row.cells])
        yield ""
    yield from (f"{note}\n" for note in map(escape, block.notes))


def _row(cells: Iterator[str] | list[str], *, escaped: bool = False) -> str:
    return "| " + " | ".join(cell if escaped else escape(cell) for cell in cells) + " |"


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    for mark in "\\`*_[]<>|":
        text = text.replace(mark, "\\" + mark)
    return text.replace("\n", " ")
