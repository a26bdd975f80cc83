"""Tables as text cells: made once from a report's rows, set by each format in its own way."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import Any

import polars as pl

from evaluator.measures.correlations import LEAST_POINTS
from evaluator.measures.intervals import BOOTSTRAPS, Z95
from evaluator.reports.report import Report, Section

UNDEFINED = "not defined"
"""What stands for a value that is null."""
_WHY = (
    f"{UNDEFINED}: the value cannot be computed (an empty group, a single sample, a correlation over fewer than "
    f"{LEAST_POINTS} points, or constant values)."
)

OVER_ALL = ("all", "overall")
"""Templates that stand for all of a model's."""
MANY_GROUPS = 24
"""Of more groups than this only those that the layout names are shown; all are in CSV and JSON."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table; a heading spans the whole width and has no cells."""

    label: str
    cells: tuple[str, ...] = ()

    @property
    def heading(self) -> bool:
        """Whether it is a heading."""
        return not self.cells


@dataclass(frozen=True, slots=True)
class Block:
    """A table: `columns` begins with the header of the labels; `headings` says what the headings among the rows are."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    headings: str = "model"


def number(value: float | None, digits: int | None) -> str:
    """A value for human readers with this many decimals, or (None) as a power of ten."""
    if value is None:
        return UNDEFINED
    text = f"{value:.2e}" if digits is None and value else f"{value:.{digits or 0}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def digits_for(largest: float | None) -> int:
    """Decimals of a column: 3, or 2 for percentages, or so many that the largest value has 3 that count (at most 6)."""
    if largest is None or largest == 0 or 0.1 <= largest < 10:
        return 3
    return 2 if largest >= 10 else min(6, 2 - math.floor(math.log10(largest)))


def significant(numbers: Sequence[float | None], digits: int) -> int | None:
    """Decimals of a cell (value, and the bounds of its interval) in a column of so many `digits`: those of the column where
    they say something, none for thousands, more for what is small; None (a power of ten) for what is smaller or larger still.

    What counts is the value's size or, where the interval holds 0, the interval's.
    """
    value, *bounds = (abs(x) for x in numbers if x is not None)
    signs = {math.copysign(1, x) if x else 0 for x in numbers if x is not None}
    size = value if len(signs) == 1 and 0 not in signs else max(value, *bounds, 0.0)
    if size == 0 or 10.0 ** (1 - digits) <= size < 1e3:
        return digits
    if 1e3 <= size < 1e7:
        return 0
    return min(2, digits - 1) - math.floor(math.log10(size)) if 1e-4 <= size < 1 else None


def with_interval(row: Mapping[str, Any] | None, digits: int, style: str = "{} [{}, {}]") -> str:
    """`1.24 [1.22, 1.27]` or another `style`; the value alone where there is no interval; empty where there is no row."""
    if row is None:
        return ""
    numbers = [row["value"], row["low"], row["high"]]
    if row["value"] is None:
        return UNDEFINED if row["n"] is None else f"{UNDEFINED} (n = {row['n']})"
    if row["low"] is None or row["high"] is None:
        return number(row["value"], significant(numbers[:1], digits))
    decimals = significant(numbers, digits)
    bounds = _steady(row, decimals)
    return style.format(number(row["value"], decimals), *(number(x, bounds) for x in numbers[1:]))


RESAMPLES = 1000
"""Of a report by default; more make the bounds steadier than they are shown."""
_LEVEL_ERROR = math.sqrt(0.025 * 0.975) / 0.05845
"""Standard error of a normal distribution's 2.5% quantile from one resample, in standard deviations."""


def _steady(row: Mapping[str, Any], decimals: int | None) -> int | None:
    """Decimals of an interval's bounds; of a bootstrap's so few that its Monte-Carlo error is at most 1.5 units of the last."""
    kind = row.get("interval") or ""
    if decimals is None or not kind.startswith((BOOTSTRAPS["percentile"], BOOTSTRAPS["bca"])):
        return decimals
    error = (row["high"] - row["low"]) / (2 * Z95) * _LEVEL_ERROR / math.sqrt(RESAMPLES)
    return decimals if error <= 0 else max(0, min(decimals, math.floor(-math.log10(error / 1.5))))


def correlation(row: Mapping[str, Any]) -> str:
    """`0.95 [0.81, 0.99] (n = 11)`: a correlation over n models."""
    if row["value"] is None:
        return f"{UNDEFINED} (n = {row['n']})"
    interval = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['value']:.2f}{interval} (n = {row['n']})"


def by_model(block: Block) -> list[Block]:
    """A table whose columns have two-line headers (model, template) as one table per model."""
    parts = []
    columns = enumerate(block.columns[1:])
    for model, group in groupby(columns, key=lambda column: column[1].partition("\n")[0]):
        chosen = list(group)
        if not all("\n" in name for _, name in chosen):
            return [block]
        names = (block.columns[0], *(name.partition("\n")[2] for _, name in chosen))
        rows = (TableRow(row.label, tuple(row.cells[i] for i, _ in chosen) if row.cells else ()) for row in block.rows)
        parts.append(Block(f"{block.title}, {model}", names, tuple(rows), block.notes))
    return parts or [block]


def blocks(section: Section) -> list[Block]:
    """All tables of a section in reading order."""
    made = [_summary(section), *(_detail(section, m) for m in section.layout.details)]
    made += [_by_language(section, overview.measure) for overview in section.layout.by_language]
    made += [_language_ranks(section, m) for m in section.layout.language_ranks]
    made += [_ranks(section, m) for m in section.layout.ranks]
    made.append(_pairs(section))
    return [explained(block) for block in made if block is not None]


def explained(block: Block) -> Block:
    """The block, with a note if any of its values isn't defined."""
    if any(cell.startswith(UNDEFINED) for row in block.rows for cell in row.cells):
        return replace(block, notes=(*block.notes, _WHY))
    return block


def _lookup(rows: pl.DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
    keys = ("model", "language", "template", "measure", "group")
    return {tuple(row[k] for k in keys): row for row in rows.iter_rows(named=True)}


def _cells(rows: pl.DataFrame) -> list[tuple[str, str | None, str | None]]:
    """Model, language and template of each column or row, in the rows' order."""
    return rows.select("model", "language", "template").unique(maintain_order=True).rows()


def _place(language: str | None, template: str | None, several: bool) -> str:
    """The label of a cell of one model; the language only where there are several."""
    parts = [language if several else None, template]
    return " ".join(part for part in parts if part) or "all"


def _notes(section: Section, measures: Sequence[str]) -> tuple[str, ...]:
    return tuple(section.layout.notes[m] for m in measures if m in section.layout.notes)


def interval_kinds(rows: pl.DataFrame) -> tuple[str, ...]:
    """How the rows' intervals are made, where not all are the bootstrap that the report's first lines name."""
    kinds: dict[str, list[str]] = {}
    for kind, measure in rows.drop_nulls("interval").select("interval", "measure").unique(maintain_order=True).iter_rows():
        kinds.setdefault(kind, []).append(measure)
    if set(kinds) <= set(BOOTSTRAPS.values()):
        return ()
    return ("95% intervals: " + "; ".join(f"{kind} ({', '.join(measures)})" for kind, measures in kinds.items()) + ".",)


def _summary(section: Section) -> Block | None:
    layout = section.layout
    wanted = [g for g in layout.summary_groups if g is not None]
    rows = section.rows.filter(
        pl.col("measure").is_in(layout.summary),
        pl.col("group").is_in(wanted) | (pl.col("group").is_null() & (None in layout.summary_groups)),
    )
    if rows.is_empty():
        return None
    main = [overview.measure for overview in layout.overview]
    present = set(rows["measure"])
    measures = [m for m in dict.fromkeys((*main, *layout.summary)) if m in present]
    found = _lookup(rows)
    several = rows["language"].n_unique() > 1
    # a row for each group only where a place and measure has more than one of the summary's groups
    apart = rows.group_by("model", "language", "template", "measure").len()["len"].max() != 1
    kinds = [(g,) for g in layout.summary_groups] if apart else [layout.summary_groups]
    largest = dict(rows.group_by("measure").agg(pl.col("value").abs().max()).iter_rows())

    def text(measure: str, keys: list[tuple[Any, ...]]) -> str:
        return with_interval(found[keys[0]] if keys else None, digits_for(largest[measure]))

    table: list[TableRow] = []
    for model, places in groupby(_cells(rows), key=lambda cell: cell[0]):
        table.append(TableRow(model))
        for cell, kind in product(sorted(places, key=_main_first), kinds):
            candidates = [[(*cell, m, g) for g in kind if (*cell, m, g) in found] for m in measures]
            if any(candidates):
                place = _place(cell[1], cell[2], several)
                label = f"{place} {kind[0]}" if apart and kind[0] else place
                table.append(TableRow(label, tuple(map(text, measures, candidates))))
    notes = (*_notes(section, measures), *interval_kinds(rows))
    return Block(section.task, ("template", *map(layout.shown, measures)), tuple(table), notes)


def _main_first(cell: tuple[str, str | None, str | None]) -> bool:
    """Orders the places of a model: what is over all its templates comes first."""
    return cell[2] not in OVER_ALL


def _detail(section: Section, measure: str) -> Block | None:
    layout = section.layout
    rows = section.rows.filter(pl.col("measure") == measure, pl.col("group").is_not_null(), ~pl.col("group").is_in(["all"]))
    if rows.is_empty():
        return None
    groups, left_out = detail_groups(section, rows)
    notes = (*_notes(section, [measure]), *interval_kinds(rows))
    if left_out:
        notes = (*notes, f"{left_out} {'more ' if groups else ''}groups of {measure} are in the csv and json formats.")
    cells = _cells(rows)
    found = _lookup(rows)
    several = rows["language"].n_unique() > 1
    columns = [f"{model}\n{_place(language, template, several)}" for model, language, template in cells]
    negative = rows.select((pl.col("value", "low") < 0).any()).row(0)
    style = "{} [{},{}]" if any(negative) else "{} {}–{}"
    table: list[TableRow] = []
    previous = None
    for group in groups:
        polarity = layout.polarity.get(group)
        if layout.polarity and polarity != previous:
            table.append(TableRow(f"{polarity or 'other'} groups"))
            previous = polarity
        keys = [(model, language, template, measure, group) for model, language, template in cells]
        table.append(TableRow(layout.named(group), tuple(with_interval(found.get(key), 2, style) for key in keys)))
    return Block(f"{section.task}: {measure} by group", ("group", *columns), tuple(table), notes, "pole")


def detail_groups(section: Section, rows: pl.DataFrame) -> tuple[list[str], int]:
    """The groups that are shown, and how many are not: of very many only those that the layout names."""
    groups = ordered_groups(section, rows)
    if len(groups) <= MANY_GROUPS:
        return groups, 0
    named = [g for g in groups if g in section.layout.groups]
    return named, len(groups) - len(named)


def ordered_groups(section: Section, rows: pl.DataFrame) -> list[str]:
    """Groups in the layout's order, those of the second pole before those of the first before others."""
    present = rows["group"].unique(maintain_order=True).to_list()
    known = [g for g in section.layout.groups if g in set(present)]
    ordered = known + [g for g in present if g not in section.layout.groups]
    return sorted(ordered, key=lambda g: ("second", "first", "other").index(section.layout.side(g)))


def _ranks(section: Section, measure: str) -> Block | None:
    rows = section.rows.filter(pl.col("measure") == measure)
    places = rows.select("model", "language", "template").n_unique() if rows.height else 0
    if places < 2:
        return None
    values = rows.group_by("group").agg(
        pl.col("value").median().alias("median"), pl.col("value").min().alias("low"), pl.col("value").max().alias("high")
    )
    found = {row["group"]: row for row in values.iter_rows(named=True)}
    table = [
        TableRow(section.layout.named(g), tuple(number(found[g][k], 1) for k in ("median", "low", "high")))
        for g in ordered_groups(section, rows)
    ]
    title = f"{section.task}: {section.layout.shown(measure)} over {places} pairs of model and template"
    return Block(title, ("group", "median", "lowest", "highest"), tuple(table), _notes(section, [measure]))


def _by_language(section: Section, measure: str) -> Block | None:
    """Languages as rows, models as columns; beside each language how much of the data it has."""
    rows = section.rows.filter(pl.col("measure") == measure, pl.col("template") == "all")
    if rows.is_empty():
        return None
    models = rows["model"].unique(maintain_order=True).to_list()
    extent = language_extent(section)
    found = {(row["language"], row["model"]): row for row in rows.iter_rows(named=True)}
    digits = digits_for(rows.select(pl.col("value").abs().max()).item())
    table = [
        TableRow(
            language, (extent.get(language, ""), *(with_interval(found.get((language, model)), digits) for model in models))
        )
        for language in rows["language"].unique(maintain_order=True)
    ]
    notes = (
        "Coverage: share of the data set's sentences; in brackets, the share of these that are pairs.",
        *_notes(section, [measure]),
    )
    title = f"{section.task}: {section.layout.shown(measure)} by language"
    return Block(title, ("language", "coverage (pairs)", *models), tuple(table), notes)


def language_extent(section: Section) -> dict[str, str]:
    """Language → its coverage and share of pairs, `51% (87%)`: the largest over the models."""
    rows = section.rows.filter(pl.col("measure").is_in(["coverage", "gendered"]))
    largest = {
        (language, m): v for language, m, v in rows.group_by("language", "measure").agg(pl.col("value").max()).iter_rows()
    }
    languages = {language for language, _ in largest}
    return {lang: f"{largest[lang, 'coverage']:.0%} ({largest[lang, 'gendered']:.0%})" for lang in languages}


APART = 4
"""Ranks by which a language must differ from the median of its model's languages to be named."""


def _language_ranks(section: Section, measure: str) -> Block | None:
    """How a group's rank differs over the languages of a model: those where it is the same everywhere are stable."""
    rows = section.rows.filter(
        pl.col("measure") == measure, pl.col("template") == "all", pl.col("language") != "all", pl.col("value").is_not_null()
    )
    if rows["language"].n_unique() < 2:
        return None
    median = pl.col("value").median().over("model", "group")
    rows = rows.with_columns(apart=pl.col("value") - median)
    table: list[TableRow] = []
    for (model,), part in rows.partition_by("model", as_dict=True, maintain_order=True).items():
        table.append(TableRow(str(model)))
        for group in ordered_groups(section, part):
            mine = part.filter(group=group)
            values = mine["value"]
            own = mine.filter(pl.col("apart").abs() >= APART).sort(pl.col("apart").abs(), "language", descending=[True, False])
            named = ", ".join(f"{language} {value:.0f}" for language, value in own.select("language", "value").iter_rows())
            numbers = (values.median(), values.min(), values.max(), values.std())
            cells = tuple(number(v, 1) for v in numbers)  # type: ignore[arg-type]
            table.append(TableRow(section.layout.named(group), (*cells, named)))
    title = f"{section.task}: {section.layout.shown(measure)} over the languages"
    note = (
        f"Outlying languages: those whose rank differs from the median of the model's languages by {APART} or more, with "
        "their rank."
    )
    columns = ("group", "median", "lowest", "highest", "deviation", "outlying languages")
    return Block(title, columns, tuple(table), (*_notes(section, [measure]), note))


def _pairs(section: Section) -> Block | None:
    rows = section.rows.filter(pl.col("measure").is_in(section.layout.pairs))
    single = rows.filter(pl.col("model") != "all")
    if single.is_empty():
        return None
    table, undefined = [], []
    for measure in (m for m in section.layout.pairs if m in set(single["measure"])):
        pairs = single.filter(pl.col("measure") == measure)
        values = pairs["value"].drop_nulls()
        whole = rows.filter(pl.col("measure") == measure, pl.col("model") == "all")
        numbers = (whole["value"].mean(), values.min(), values.max())
        cells = [number(v, 2) for v in numbers] if len(values) else [UNDEFINED] * 3  # type: ignore[arg-type]
        table.append(TableRow(measure, (*cells, str(len(values)))))
        if without := pairs.height - len(values):
            (fewest,) = pairs.filter(pl.col("value").is_null()).select(pl.col("n").min()).row(0)
            undefined.append(
                f"{measure} is {UNDEFINED} for {without} of {pairs.height} pairs: fewer than {LEAST_POINTS} groups "
                f"in common (minimum n = {fewest}) or constant values."
            )
    title = f"{section.task}: correlations"
    notes = (*_notes(section, section.layout.pairs), *undefined)
    return Block(title, ("", "mean", "lowest", "highest", "pairs"), tuple(table), notes)


def facts(report: Report) -> list[Block]:
    """Where the numbers come from: models (engine, dtype, revision), data (rows, what was dropped), failures."""
    models = [
        TableRow(
            name,
            (
                "imported" if entry.get("imported") else str(entry.get("engine", "")),
                str(entry.get("dtype", "as published")),
                _short(entry.get("revision", "")),
                str(report.failures.filter(pl.col("model") == name).height),
            ),
        )
        for name, entry in report.record["models"].items()
    ]
    data = []
    for name, entry in report.record["tasks"].items():
        dropped = ", ".join(f"{count} {reason}" for reason, count in entry.get("dropped", {}).items()) or "0"
        files = ", ".join(f"{file} {digest[:12]}" for file, digest in entry.get("sha256", {}).items())
        data.append(TableRow(name, (str(entry.get("samples", "")), dropped, str(len(entry.get("failures", []))), files)))
    return [
        Block("models", ("model", "engine", "dtype", "revision", "failures"), tuple(models)),
        Block("data", ("task", "samples", "dropped", "wrong rows", "sha256"), tuple(data)),
    ]


def _short(revision: Any) -> str:
    if isinstance(revision, Mapping):
        return f"{len(revision)} files"
    text = str(revision)
    prefix, colon, digest = text.rpartition(":")
    return f"{prefix}{colon}{digest[:12]}"
