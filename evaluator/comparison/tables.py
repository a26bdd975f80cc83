"""A comparison as tables: made once from its rows, set by each format in its own way."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from evaluator.comparison.build import Comparison
from evaluator.comparison.differences import largest_first
from evaluator.measures.intervals import BOOTSTRAPS
from evaluator.reports import beside
from evaluator.reports.blocks import (
    OVER_ALL,
    UNDEFINED,
    Block,
    TableRow,
    digits_for,
    explained,
    number,
    significant,
    with_interval,
)
from evaluator.reports.overall import compared
from evaluator.reports.paper import Column, PaperTable, main_measures
from evaluator.vocabulary import SCALES, Layout

LEVEL = 0.05
TOP = 10
"""Differences by group that are shown of each measure and model in brief tables."""
COLUMNS = ("difference [95%]", "value", "baseline", "p (Holm)", "detectable")
PAPER = {
    "Baseline": "baseline",
    "Value": "value",
    "Difference": "difference [95%]",
    "p_holm": "p (Holm)",
    "Detectable": "detectable",
}
"""Columns of the table for a paper, by their heads."""
NOTES = (
    "difference: value − baseline on the samples of both models. p (Holm): paired permutation test, Holm-adjusted "
    "over the models, templates and groups of a measure. detectable: minimum detectable effect down and up, the "
    "true difference that a single test at the 5% level finds with 80% power.",
)


def choices(comparison: Comparison) -> tuple[str, ...]:
    """Baseline, scale, interval and test in words, one per line."""
    options = comparison.options
    lines = [
        f"baseline: {comparison.baseline}",
        f"interval: 95%, {BOOTSTRAPS[options.interval]}, {options.resamples:,} resamples; "
        f"test: paired, {comparison.permutations:,} permutations; seed {options.seed}",
    ]
    if comparison.rows["scale"].is_not_null().any():
        lines.insert(1, f"scale: {options.scale} ({SCALES[options.scale]})")
    return tuple(lines)


def verdict(comparison: Comparison) -> str:
    """One sentence on how much was found."""
    tested = comparison.rows.drop_nulls("p_holm")
    found = tested.filter(pl.col("p_holm") <= LEVEL).height
    if tested.is_empty():
        return "No difference could be tested."
    if comparison.rows.drop_nulls("difference").filter(_differs()).is_empty():
        return f"No difference: all {tested.height:,} values are equal to the baseline's."
    if not found:
        return f"None of {tested.height:,} differences is significant after Holm's correction (p ≤ {LEVEL})."
    verb = "is" if found == 1 else "are"
    return f"{found:,} of {tested.height:,} differences {verb} significant after Holm's correction (p ≤ {LEVEL})."


def tables(comparison: Comparison, *, brief: bool = False) -> list[Block]:
    """One table per task with the measures over all groups, then one by group; `brief`: terminal width, and only the largest
    differences by group.
    """
    made = []
    for (task,), rows in comparison.rows.group_by("task", maintain_order=True):
        layout = comparison.layouts[str(task)]
        several = rows["language"].n_unique() > 1
        plain = pl.col("group").is_null() | (pl.col("group") == "all")
        order = {measure: place for place, measure in enumerate(layout.summary)}
        whole = rows.filter(plain).sort(
            pl.col("measure").replace_strict(_main_first(layout, order), default=len(order)),
            ~pl.col("template").is_in(OVER_ALL).fill_null(True),
            "measure",
            "template",
            maintain_order=True,
        )
        compared = set(rows["model"].unique())
        models = [name for name in comparison.models[1:] if name in compared]
        if whole.height:
            made.append(
                _block(f"{task}: differences from {comparison.baseline}", whole, models, layout, NOTES, several=several)
            )
        if (section := comparison.beside.get(str(task))) is not None:
            made += [block for block in [beside.table(section)] if block is not None]
        for measure in rows.filter(~plain)["measure"].unique(maintain_order=True):
            groups = largest_first(rows.filter(~plain, pl.col("measure") == measure))
            title = f"{task}: differences of {layout.shown(measure)} by group, largest first"
            shown = groups.filter(_differs()).group_by("model", maintain_order=True).head(TOP) if brief else groups
            if shown.is_empty():
                continue
            left = groups.height - shown.height
            notes = (f"{left:,} more: --format csv has all.",) if left else ()
            made.append(_block(title, shown, models, layout, notes, several=several))
    return list(map(without_baseline, made)) if brief else made


def _differs() -> pl.Expr:
    return pl.col("difference").ne_missing(0.0)


def _main_first(layout: Layout, order: dict[str, int]) -> dict[str, int]:
    """The layout's order of measures with the one that models are compared by in front."""
    return {**order, **{overview.measure: place - len(layout.overview) for place, overview in enumerate(layout.overview)}}


def _block(
    title: str, rows: pl.DataFrame, models: Sequence[str], layout: Layout, notes: tuple[str, ...], *, several: bool
) -> Block:
    """`several`: whether the task has several languages, which labels name then."""
    largest = _largest(rows)
    table: list[TableRow] = []
    for model in models:
        mine = rows.filter(pl.col("model") == model)
        if mine.height:
            table.append(TableRow(model))
            table += [_row(row, layout, digits_for(largest[row["measure"]]), several) for row in mine.iter_rows(named=True)]
    return explained(Block(title, ("", *COLUMNS), tuple(table), notes))


def without_baseline(block: Block) -> Block:
    """The table without the column of the baseline's values, which are value − difference: then it fits a terminal."""
    if block.columns[1:] != COLUMNS:
        return block
    place = COLUMNS.index("baseline")
    rows = tuple(TableRow(row.label, (*row.cells[:place], *row.cells[place + 1 :])) for row in block.rows)
    return replace(block, columns=("", *(name for name in COLUMNS if name != "baseline")), rows=rows)


def _row(row: dict[str, Any], layout: Layout, digits: int, several: bool) -> TableRow:
    group = None if row["group"] in (None, "all") else layout.named(row["group"])
    parts = [group or layout.shown(row["measure"]), row["language"] if several else None, row["template"]]
    difference = {"value": row["difference"], **{name: row[name] for name in ("low", "high", "n", "interval")}}
    cells = [with_interval(difference, digits)]
    cells += [_number(row[name], digits) for name in ("value", "baseline_value")]
    cells += [probability(row["p_holm"]), _detectable(row["detectable_low"], row["detectable_high"], digits)]
    return TableRow(" · ".join(part for part in parts if part), tuple(cells))


def _detectable(low: float | None, high: float | None, digits: int) -> str:
    """`-0.110/+0.121`, or `±0.115` where both are equal in size."""
    down, up = (_number(size, min(digits, _places(size))) for size in (low, high))
    if UNDEFINED in (down, up) or down.removeprefix("-") == up:
        return up if up == UNDEFINED else f"±{up}"
    return f"{down}/+{up}"


def _places(value: float | None) -> int:
    """Decimals that leave a value three digits that count."""
    return 2 - math.floor(math.log10(min(abs(value), 100))) if value else 0


def paper(comparison: Comparison) -> Iterator[PaperTable]:
    """One table per task for a paper: how each model's main rates differ from the baseline's."""
    for (task,), rows in comparison.rows.group_by("task", maintain_order=True):
        layout = comparison.layouts[str(task)]
        plain = rows.filter(pl.col("group").is_null() | (pl.col("group") == "all"))
        main = main_measures(layout, plain)
        shown = plain.filter(pl.col("measure").is_in(main)).filter(compared())
        if shown.is_empty():
            continue
        shown = shown.sort(
            pl.col("model").replace_strict({name: place for place, name in enumerate(comparison.models)}), maintain_order=True
        )
        several = shown["language"].n_unique() > 1
        largest = _largest(shown)
        made = [_row(row, layout, digits_for(largest[row["measure"]]), several) for row in shown.iter_rows(named=True)]
        single = len({row.label for row in made}) == 1
        labels = tuple((model,) if single else (model, row.label) for model, row in zip(shown["model"], made, strict=True))
        columns = tuple(Column(head, "", tuple(row.cells[COLUMNS.index(name)] for row in made)) for head, name in PAPER.items())
        interval = BOOTSTRAPS[comparison.options.interval]
        caption = (
            f"{', '.join(map(layout.shown, main))} against {comparison.baseline} on the same samples, with 95% intervals "
            f"({interval}). p_holm: paired permutation test, Holm-adjusted. Detectable: effects that a test at 5% finds with "
            "80% power."
        )
        symbols = frozenset({*rows["measure"], "p_holm"})
        heads = ("Model",) if single else ("Model", "")
        yield PaperTable(str(task), caption, symbols, heads, labels, columns, "differences")


def _largest(rows: pl.DataFrame) -> dict[str, float | None]:
    """Measure → its largest value, without its sign."""
    return dict(rows.group_by("measure").agg(pl.max_horizontal(pl.col("value", "baseline_value").abs()).max()).iter_rows())


def _number(value: float | None, digits: int) -> str:
    return UNDEFINED if value is None else number(value, significant([value], digits))


def probability(p: float | None) -> str:
    """A p with two digits that count; what is below 0.001 with one."""
    if p is None:
        return UNDEFINED
    return f"{p:.1g}" if p < 0.001 else f"{p:.{2 - math.floor(math.log10(p)) - 1}f}" if p < 0.1 else f"{p:.2f}"


def lines(comparison: Comparison) -> Iterator[str]:
    """What stands above the tables: how much was found, the choices, notes."""
    if comparison.rows.height:
        yield verdict(comparison)
    yield from choices(comparison)
    yield from (f"note: {text}" for text in comparison.notes)
