"""A table of models as values: its columns, its models, and their main numbers, ranked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from evaluator.measures.bootstrap import Array
from evaluator.ranking.ranks import ranks

VALUES: dict[str, pl.DataType] = {
    "entry": pl.Int64(),
    "column": pl.Int64(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "way": pl.String(),
    "partial": pl.String(),
}
"""One row per model and column that has a value. `entry` and `column` are places in the board's lists; `way` are the
model's settings: values are ranked among models with the same settings; `partial` is why a value is not ranked, else null."""

RANKED: dict[str, pl.DataType] = {
    **VALUES,
    "rank": pl.Int64(),
    "of": pl.Int64(),
    "rank_low": pl.Int64(),
    "rank_high": pl.Int64(),
    "swaps": pl.Float64(),
}
"""`rank` of `of`, the central 95% of the ranks over resamples, and how often the next lower model is not lower
(`evaluator.ranking.ranks.Ranks`); null where a value isn't ranked, or resampling tells nothing."""


@dataclass(frozen=True, slots=True)
class BoardColumn:
    """A main number: `name` is that of its columns in the CSV file, `shown` its heading."""

    name: str
    shown: str
    language: str = ""
    neutral: float | None = None
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A model of a run with what is known of it; `date` (YYYY-MM-DD) is its release, else the run's."""

    model: str
    run: str
    family: str = ""
    parameters: float | None = None
    tuned: bool | None = None
    date: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """What is written.

    Attributes:
        title: of the page.
        columns, entries: main numbers and models.
        values: columns VALUES.
        draws: [rows of `values`, resamples], each row's value in each resample, NaN where unknown; None without resamples.
        choices: scale, interval and seed in words, one per line.
    """

    title: str
    columns: tuple[BoardColumn, ...]
    entries: tuple[BoardRow, ...]
    values: pl.DataFrame
    draws: Array | None = None
    choices: tuple[str, ...] = field(default=())

    def ranked(self) -> pl.DataFrame:
        """The values with their ranks (columns RANKED), in the order of `values`."""
        rows = self.values.with_row_index("row")
        made = {name: np.full(rows.height, np.nan) for name in RANKED if name not in VALUES}
        fit = rows.filter(pl.col("partial").is_null() & pl.col("value").is_not_null())
        for part in fit.partition_by("column", "way", maintain_order=True):
            at = part["row"].to_numpy()
            found = ranks(part["value"].to_numpy(), None if self.draws is None else self.draws[at])
            made["rank"][at], made["of"][at] = found.rank, part.height
            for name, column in (("rank_low", found.low), ("rank_high", found.high)):
                made[name][at] = np.where(column > 0, column, np.nan)
            made["swaps"][at] = found.swaps
        added = [pl.Series(name, column).fill_nan(None).cast(RANKED[name]) for name, column in made.items()]
        return self.values.with_columns(added)

    def wide(self, ranked: pl.DataFrame) -> pl.DataFrame:
        """One row per model: its facts, then of each column value, interval, rank and how the model was asked."""
        facts: Mapping[str, list[object]] = {
            name: [getattr(entry, name) for entry in self.entries] for name in BoardRow.__dataclass_fields__
        }
        kinds = {"parameters": pl.Float64(), "tuned": pl.Boolean()}
        table = pl.DataFrame(facts, schema={name: kinds.get(name, pl.String()) for name in facts}).with_row_index("entry")
        table = table.with_columns(pl.col("entry").cast(pl.Int64))
        for at, column in enumerate(self.columns):
            mine = ranked.filter(column=at).drop("column")
            mine = mine.rename({name: f"{column.name}.{name}" for name in RANKED if name not in ("entry", "column")})
            table = table.join(mine, on="entry", how="left", maintain_order="left")
        return table.drop("entry")
