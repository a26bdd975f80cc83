"""A data set on its way to the models: where it is, its samples, the requests that they became."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.vocabulary.options import Protocol_
from evaluator_serving.requests import Request

ORDER = "order"
"""Column of a sample's place in the order in which limits take samples, from 0: a limit N takes the places below N."""


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
class Inputs:
    """What a user gives a task besides data sets; which of it a task takes is said by `Task.takes`, in these names.

    Attributes:
        samples: a file of sentences or pairs.
        templates: a file of templates and groups.
        encoding: of the samples, or the translations; None for Unicode's (see `text_file`).
        translations: a folder with SYSTEM/LANGUAGE/translations.csv.
        languages: codes of the languages that are wanted; empty for all.
        template: the only template of the task's own that is asked.
        wording: a file with how a question is put, or the name of a package that has it.
        way: how a question's answer is come by.
        orders: in how many orders its options are asked.
        answers, temperature, max_tokens, seed: how a model speaks: see `evaluator_serving.chats.Chat`.
    """

    samples: Path | None = None
    templates: Path | None = None
    translations: Path | None = None
    encoding: str | None = None
    languages: tuple[str, ...] = ()
    template: str | None = None
    wording: Path | None = None
    way: str | None = None
    orders: int | None = None
    answers: int | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """Names of those that are given."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) not in (None, ()))

    def only(self, names: Collection[str]) -> "Inputs":
        """Those of these names."""
        return Inputs(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True, slots=True)
class ExistingAnswers:
    """Answers that exist already, of one system: a task that asks no model scores them.

    Attributes:
        system: the name that it has in results.
        part: what of it this is (a language).
        answers: what `Task.score` takes, with a column `request` that its table has too.
        source: what they were made of (a sha256, a detector), for the record.
        failures: what is missing in them and may still come, a line each.
        left_out: what was answered with nothing, for good, a line each: no failure, but told with every number.
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
        frame: one row a sample, with a column `sample` (row of the data set from 0), the task's own columns and, where the data
            set calls its samples otherwise than by their row, `id`.
        sha256: file name → sha256 of each file it was read from (written into run.json).
        dropped: reason → count of rows left out on purpose, with nothing hidden.
        failures: (sample or example id, reason) of rows that are wrong and were skipped; they are listed in the report.
        facts: what else a reader of the numbers must know of the data, for the task's entry in run.json (see `reports.notes`).
        whole: samples of the data set where `frame` may hold only those that a limit takes.
    """

    frame: pl.DataFrame
    sha256: Mapping[str, str]
    dropped: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[tuple[str, str], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
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
        requests: id → request, every id in `table` present; none where answers are given and no model is asked.
    """

    table: pl.DataFrame
    requests: Mapping[str, Request]
