"""What a task is: pure functions between frames. I/O, engines and models are elsewhere.

The data's way: `load` (data set → samples) → `render` (samples → requests) → [engines] → `score` (answers → per-sample
scores of one model) → `measure` (scores of all models → tidy rows).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import polars as pl

from evaluator_serving.requests import Request

Protocol_ = Literal["default", "published"]
Scale = Literal["ratio", "published", "log10"]
Interval = Literal["percentile", "bca", "published"]

TIDY: dict[str, pl.DataType] = {
    "model": pl.String(),
    "task": pl.String(),
    "language": pl.String(),
    "template": pl.String(),
    "measure": pl.String(),
    "group": pl.String(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "n": pl.Int64(),
    "scale": pl.String(),
    "interval": pl.String(),
    "pole": pl.String(),
}
"""Columns and types of every report row; null where a column does not apply.

`interval` says how `low` and `high` were made (names in `evaluator.measures.intervals`), null where there are none; `pole` is
the name of the pole that a GEST-like measure's group, or its rate over groups (q_f, q_m, q_family), belongs to.
"""


def tidy(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with exactly the columns TIDY, in their order and types; a column that they lack is null.

    Every number is finite or null: a value that isn't (a mean over nothing, the exponential of too much) is not defined and
    becomes null with its interval, a bound that isn't becomes null alone.
    """
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in TIDY.items() if name not in rows.columns]
    rows = rows.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in TIDY.items())
    defined = pl.col("value").is_null() | pl.col("value").is_finite()
    numbers = [pl.when(defined & pl.col(c).is_finite()).then(c).alias(c) for c in ("value", "low", "high")]
    whole = pl.col("low").is_not_null() & pl.col("high").is_not_null()
    return rows.with_columns(numbers).with_columns(pl.when(whole).then("interval").alias("interval"))


SCORES: dict[str, pl.DataType] = {
    "model": pl.String(),
    "task": pl.String(),
    "language": pl.String(),
    "template": pl.String(),
    "sample": pl.Int64(),
    "group": pl.String(),
    "score": pl.Float64(),
}
"""Columns and types of per-sample scores (natural log). A task may carry further columns behind these."""


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where and how data sets are read.

    Attributes:
        folder: --data or EVALUATOR_DATA, in the layout of the public files; None for the cache.
        protocol: whose rules choose and draw the samples, where the released code's differ (`prepare.load_tasks` sets it).
    """

    folder: Path | None = None
    protocol: Protocol_ = "default"


@dataclass(frozen=True, slots=True)
class Samples:
    """A loaded data set.

    Attributes:
        frame: one row a sample, with a column `sample` (row of the data set from 0) and the task's own columns.
        sha256: file name → sha256 of each file it was read from (written into run.json).
        dropped: reason → count of rows left out on purpose, with nothing hidden.
        failures: (sample or example id, reason) of rows that are wrong and were skipped; they are listed in the report.
        whole: samples of the data set where `frame` may hold only those that a limit takes.
    """

    frame: pl.DataFrame
    sha256: Mapping[str, str]
    dropped: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[tuple[str, str], ...] = ()
    whole: int | None = None

    @property
    def size(self) -> int:
        """Samples of the data set, with a limit or without."""
        return self.frame.height if self.whole is None else self.whole


@dataclass(frozen=True, slots=True)
class Rendered:
    """Requests for the samples of one task.

    Attributes:
        table: a row for each sample × template × request with columns `sample, language, template, group, request` and
            whatever the task's `score` needs; stored as RUN/samples/TASK.parquet.
        requests: id → request, every id in `table` present.
    """

    table: pl.DataFrame
    requests: Mapping[str, Request]


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Choices made when a report is written, never when a model is asked.

    Attributes:
        scale: units of the values (method.md §0); a task without a scale ignores it and leaves the column null.
        interval: how intervals are made; `percentile` bootstrap is the default. Shares have Wilson's interval, or Agresti and
            Coull's where it is `published`. None but `published` leaves the range of a measure.
        resamples: bootstrap resamples.
        seed: seed of the resampling; same seed, same numbers.
        protocol: the protocol that the run was scored with (some published shares differ in what is printed).
        extra: task-specific settings (e.g. path of a word-count file).
    """

    scale: Scale = "ratio"
    interval: Interval = "percentile"
    resamples: int = 1000
    seed: int = 0
    protocol: Protocol_ = "default"
    extra: Mapping[str, str] = field(default_factory=dict)


class Task(Protocol):
    """A measure of a model: which data, which requests, which numbers. Instances are immutable.

    Samples that can't be asked of a model (a word unknown to its tokenizer, a text longer than its context) are left out; where
    they are many the model isn't asked the task at all, unless it has `skips_unaskable = True`: then it expects that. `strata`
    names the columns of its samples over which a limit is spread, outermost first (see `evaluator.tasks.limit`).
    """

    @property
    def name(self) -> str:
        """The task's name in commands, run folders and reports."""

    @property
    def heads(self) -> frozenset[str]:
        """Request heads the task can use: `masked`, `causal`, `seq2seq`, `pair`; a model needs at least one of them."""

    def load(self, data: DataSource) -> Samples:
        """Read and validate the data set. Raises InputError naming file, line and remedy."""

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """Requests for a model that has these heads, pure and tokenizer-free."""

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """Per-sample scores of one model.

        `table` is Rendered.table; `answers` has a row a request × candidate with columns `request, candidate` (index from
        0), `tokens` (list of int) and `logprobs` (list of float, natural log, one a token). Samples whose request has no
        answer are left out. Returns the columns `language, template, sample, group, score` and any further ones that
        `measure` needs; model and task are added by the caller.
        """

    def measure(self, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """Tidy rows (columns TIDY) from the scores (columns SCORES and `score`'s further ones) of all models of a run."""
