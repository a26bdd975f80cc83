"""A task's main result in plain words: what its main measure says, and what was found, with intervals."""

from typing import Any

import polars as pl

from evaluator.reports.beside import sentences
from evaluator.reports.blocks import OVER_ALL, UNDEFINED, digits_for, with_interval
from evaluator.reports.overall import wholes
from evaluator.reports.report import Section
from evaluator.vocabulary import Overview


def headline(section: Section) -> tuple[str, ...]:
    """What the main measure means and what the models' values are, a sentence or two each; empty without a main measure.

    Values of different templates (metrics of pairs, splits, one test against both) have sentences of their own.
    """
    main = next(iter((*section.layout.overview, *section.layout.by_language)), None)
    if main is None:
        return ()
    meaning = (f"{main.meaning}.",) if main.meaning else ()
    parts = _values(section, main).partition_by("template", as_dict=True, maintain_order=True)
    lines = (
        (f"{_called(str(template))}: " if len(parts) > 1 else "") + _extremes(section.layout.shown(main.measure), main, rows)
        for (template,), rows in parts.items()
    )
    return (*meaning, *lines, *sentences(section))


def _values(section: Section, main: Overview) -> pl.DataFrame:
    """The rows that models are compared by; over all languages where there are such rows, else of each."""
    rows = wholes(section, main.measure).filter("overall")
    return rows.filter(language="all") if "all" in rows["language"] else rows


def _called(template: str) -> str:
    return "Over all templates" if template in OVER_ALL else f"Template {template}" if template else "Without a template"


def _extremes(measure: str, main: Overview, rows: pl.DataFrame) -> str:
    known = rows.drop_nulls("value")
    several = known["language"].n_unique() > 1
    digits = digits_for(known["value"].abs().max())  # type: ignore[arg-type]

    def value_of(row: dict[str, Any]) -> str:
        return f"{with_interval(row, digits)} ({row['model']}{', ' + row['language'] if several else ''})"

    if known.is_empty():
        return f"{measure} is {UNDEFINED} for any model."
    if rows.height == 1:
        (row,) = known.iter_rows(named=True)
        side = _side(row, main.neutral)
        return f"{measure} of {row['model']} is {with_interval(row, digits)} (95% interval)" + (f": {side}." if side else ".")
    lowest, highest = (known.row(at, named=True) for at in (known["value"].arg_min(), known["value"].arg_max()))
    what = "pairs of model and language" if several else "models"
    ends = f"The highest {measure} is {value_of(highest)}, the lowest {value_of(lowest)}, with 95% intervals."
    absent = f" It is {UNDEFINED} for {rows.height - known.height} of them." if known.height < rows.height else ""
    if main.neutral is None:
        return f"{rows.height} {what}. {ends}{absent}"
    above, below = known.filter(pl.col("low") > main.neutral).height, known.filter(pl.col("high") < main.neutral).height
    rest = known.height - above - below
    counts = ((above, "above"), (below, "below"), (rest, "that includes"))
    found = (f"{n} {'has' if n == 1 else 'have'} an interval {where} {main.neutral:g}" for n, where in counts if n)
    return f"Of {rows.height} {what}, {', '.join(found)}. {ends}{absent}"


def _side(row: dict[str, Any], neutral: float | None) -> str:
    """Where a value lies, as far as its interval tells."""
    if neutral is None or row["low"] is None or row["high"] is None:
        return ""
    if row["low"] > neutral:
        return f"above {neutral:g}"
    return f"below {neutral:g}" if row["high"] < neutral else f"the interval includes {neutral:g}"
