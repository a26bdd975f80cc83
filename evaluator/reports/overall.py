"""Which of a measure's rows models are compared by: those over all templates or, where there are none, those of each. Pure."""

import polars as pl

from evaluator.reports.blocks import OVER_ALL
from evaluator.reports.report import Section


def compared() -> pl.Expr:
    """Of one measure's rows: whether models are compared by this one.

    That is the row over all templates of a model and language, where they have one; else each of their rows, for then a
    template is a measure of its own (a metric of sentence pairs, a split of WinoBias).
    """
    over_all = pl.col("template").is_in(OVER_ALL).fill_null(value=False)
    return over_all | ~over_all.any().over("model", "language")


def wholes(section: Section, measure: str) -> pl.DataFrame:
    """A measure's rows over all groups, with `overall`: whether the model is compared by it.

    Columns: model, language, template (empty where null), value, low, high, n, scale, interval, overall.
    """
    whole = pl.col("group").is_null() | (pl.col("group") == "all")
    columns = ("model", "language", pl.col("template").fill_null(""), "value", "low", "high", "n", "scale", "interval")
    return section.rows.filter(pl.col("measure") == measure, whole).select(columns).with_columns(overall=compared())


def choices(rows: pl.DataFrame) -> list[str]:
    """Of the rows that models are compared by: the templates of which one is looked at at a time; none where each model and
    language has one row."""
    if not rows.select("model", "language").is_duplicated().any():
        return []
    return rows["template"].unique(maintain_order=True).to_list()
