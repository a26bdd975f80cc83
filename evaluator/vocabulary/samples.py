"""Data sources, samples, and the requests made from samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.vocabulary.options import Protocol_
from evaluator_serving.requests import Request

ORDER = "order"
"""Column with a sample's rank (from 0) in the order in which limits select samples: a limit N selects ranks below N."""


@dataclass(frozen=True, slots=True)
class DataSource:
    """Location of the data sets, and the protocol for reading them.

    Attributes:
        folder: --data or EVALUATOR_DATA, in the layout of the public files; None for the cache.
        protocol: rules for selecting and drawing samples, where the released code differs (set by `prepare.load_tasks`).
    """

    folder: Path | None = None
    protocol: Protocol_ = "default"


@dataclass(frozen=True, slots=True)
class ExistingAnswers:
    """Existing answers of one system, scored by a task that runs no model.

    Attributes:
        system: name in results.
        part: the part of the system's answers (a language).
        answers: input of `Task.score`, with a column `request` that refers to the task's table.
        source: provenance (a sha256, a detector), recorded in run.json.
        failures: missing answers that may be added later, one per line.
        left_out: samples without an answer for good, a line each: not failures, but reported with every number.
    """

    system: str
    part: str
    answers: pl.DataFrame
    source: Mapping[str, Any]
    failures: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Samples:
    """A loaded data set.

    Attributes:
        frame: one row per sample, with a column `sample` (row of the data set, from 0), the task's columns and, if the data
            set has its own ids, `id`.
        sha256: file name → sha256 of each file that was read (recorded in run.json).
        dropped: reason → number of rows skipped on purpose (reported).
        failures: (sample or example id, reason) of invalid rows, which were skipped (listed in the report).
        facts: further facts on the data for the task's entry in run.json (see `reports.notes`).
        whole: number of samples in the data set, if `frame` may hold only those selected by a limit.
    """

    frame: pl.DataFrame
    sha256: Mapping[str, str]
    dropped: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[tuple[str, str], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    whole: int | None = None

    @property
    def size(self) -> int:
        """Number of samples in the data set, regardless of a limit."""
        return self.frame.height if self.whole is None else self.whole


@dataclass(frozen=True, slots=True)
class Rendered:
    """Requests for the samples of one task.

    Attributes:
        table: one row per sample × template × request, with columns `sample, language, template, group, request` and
            those that the task's `score` needs; stored as RUN/samples/TASK.parquet.
        requests: id → request, for every id in `table`; empty if existing answers are scored.
    """

    table: pl.DataFrame
    requests: Mapping[str, Request]
