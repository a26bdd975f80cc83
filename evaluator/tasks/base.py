"""What a task is: pure functions between frames. I/O, engines and models are elsewhere.

Steps: `load` (data set → samples) → `render` (samples → requests) → [engines] → `score` (answers → per-sample
scores of one model) → `sampled` (scores of one model and language → sampling units with a statistic of them) → `measure`
(tidy rows of all models, with intervals).
"""

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from evaluator.datasets.registry import datasets
from evaluator.measures.estimate import KEYS, estimates
from evaluator.measures.sampled import Sampled
from evaluator.tasks.limit import limited
from evaluator.tasks.parameters import Parameters, definition, from_definition, suffix
from evaluator.vocabulary import (
    TIDY,
    DataSource,
    ExistingAnswers,
    Layout,
    MeasureOptions,
    Protocol_,
    Rendered,
    Samples,
    Scale,
)
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Request, request_id

PLACE = ("language", "template", "sample", "group")

REQUESTED: dict[str, pl.DataType] = {
    "sample": pl.Int64(),
    "language": pl.String(),
    "template": pl.String(),
    "group": pl.String(),
    "request": pl.String(),
}
"""Columns that every task's table has (`Rendered.table`)."""

CANDIDATES: dict[str, pl.DataType] = {
    "language": pl.String(),
    "template": pl.String(),
    "sample": pl.Int64(),
    "group": pl.String(),
    "candidate": pl.Int32(),
    "role": pl.String(),
    "prefix": pl.List(pl.Int32()),
    "tokens": pl.List(pl.Int32()),
    "logprob": pl.Float64(),
    "value": pl.Float64(),
}
"""Columns of `Task.candidates`. `role`: the candidate's role (stereotype, male, …); `prefix`: ids of tokens before the scored
ones; `tokens`: ids of the scored ones; `logprob`: the sum of their log-probabilities; `value`: the number that `score`
compares."""


def summed(logprobs: pl.Expr) -> pl.Expr:
    """The log-probability of a candidate as the sum over its tokens."""
    return logprobs.cast(pl.List(pl.Float64)).list.sum()


def averaged(logprobs: pl.Expr) -> pl.Expr:
    """The mean log-probability of a candidate's tokens."""
    return logprobs.cast(pl.List(pl.Float64)).list.mean()


def with_candidates(
    table: pl.DataFrame, answers: pl.DataFrame, how: Literal["inner", "left"] = "inner", **values: pl.Expr
) -> pl.DataFrame:
    """The rows of a table whose request has answers (or, `left`, all of them) with columns NAME_0 and NAME_1 for each value.

    `values` are expressions over the columns of the table joined with the answers: the two columns have those of a request's
    first and second candidate.
    """
    rows = table.with_row_index("table_row")
    joined = rows.join(answers, on="request", maintain_order="left").with_columns(**values)
    for i in (0, 1):
        candidate = joined.filter(candidate=i).select("table_row", pl.col(*values).name.suffix(f"_{i}"))
        rows = rows.join(candidate, on="table_row", how=how, maintain_order="left")
    return rows.drop("table_row")


def rendered(
    asked: Iterable[tuple[Request, tuple[Any, ...], tuple[Any, ...]]], schema: Mapping[str, pl.DataType] = REQUESTED
) -> Rendered:
    """Requests, each with the values of its row before and behind the column `request` of a table with these columns."""
    requests: dict[str, Request] = {}
    rows = []
    for request, before, behind in asked:
        key = request_id(request)
        requests[key] = request
        rows.append((*before, key, *behind))
    return Rendered(pl.DataFrame(rows, schema=dict(schema), orient="row"), requests)


class Task(ABC):
    """A measure of a model: which data, which requests, which numbers. Instances are immutable.

    A task is a frozen dataclass derived from this class that defines the abstract members. The other members have defaults. A
    member that is the same for all instances may be a class variable or a field instead of a property (write a field without a
    default as `name: str = field()`, because dataclasses would take the property as its default).
    """

    __slots__ = ()

    # --- properties ----------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's name in commands, run folders and reports."""

    @property
    def about(self) -> str:
        """What it measures, in one line."""
        return next((datasets()[name].about for name in self.reads if name in datasets()), "")

    @property
    def reads(self) -> Sequence[str]:
        """Names of the data sets that it reads (`evaluator data list`); empty if it has other data."""
        return ()

    @property
    def methods(self) -> Sequence[str]:
        """Keys in `datasets/references.bib` of the publications that define its method."""
        return ()

    @property
    def references(self) -> Sequence[str]:
        """Keys in `datasets/references.bib` of the publications to cite: its method, then its data sets."""
        read = (datasets()[name].references for name in self.reads if name in datasets())
        return tuple(dict.fromkeys([*self.methods, *itertools.chain.from_iterable(read)]))

    @property
    def parameters(self) -> Parameters:
        """The task's parameters: an instance of the model beside the task (see `evaluator.tasks.parameters`).

        In `sampled` and `layout`, `options.of(self.name, MyParameters)` returns the parameters of a report.
        """
        return Parameters()

    @property
    @abstractmethod
    def heads(self) -> frozenset[str]:
        """Request heads the task can use: `masked`, `causal`, `seq2seq`, `pair`, `chat`; a model needs at least one of them.

        Empty for a task that scores existing answers (see `given`).
        """

    def uses(self, heads: frozenset[str]) -> frozenset[str]:
        """The heads of a model that the task uses: by default all that it supports; `render` chooses among them."""
        return self.heads & heads

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """Columns of `score`'s frame besides those of SCORES, with their types."""
        return {}

    @property
    def measures(self) -> Sequence[str]:
        """Names of its measures."""
        return ()

    @property
    def strata(self) -> Sequence[str]:
        """Columns of the samples over whose groups a limit is spread, outermost first (see `evaluator.tasks.limit`)."""
        return ()

    @property
    def skips_unscorable(self) -> bool:
        """Whether many samples that a model cannot score (an unknown word, a text longer than its context) are expected.

        Such samples are always skipped. If they are many, a task that does not expect them is skipped for the model.
        """
        return False

    @property
    def definition(self) -> str | None:
        """The text from which a run restores the task, its parameters as JSON; None if the name is enough."""
        return None if self.name == self.made_of else definition(self.parameters)

    @property
    def made_of(self) -> str:
        """The registered name of the task that this one was derived from by `using`; its `restored` restores this one."""
        return self.name.removesuffix(suffix(self.parameters))

    def restored(self, definition: str) -> "Task":
        """The task with this `definition`, as recorded by a run; called on the task named `made_of`.

        It must be able to score and measure the run's answers, even if the files that it was loaded from no longer exist.
        """
        return self.using(from_definition(type(self.parameters), json.loads(definition)))

    @property
    def own_samples(self) -> bool:
        """Whether its samples come from a custom file."""
        return self.definition is not None and "samples" in type(self.parameters).model_fields

    @property
    def protocols(self) -> frozenset[Protocol_]:
        """Protocols that the task supports."""
        return frozenset({"default", "published"})

    @property
    def scales(self) -> frozenset[Scale]:
        """Scales that the task supports; a task without scales accepts all of these."""
        return frozenset({"ratio", "published", "log10"})

    def using(self, parameters: Any) -> "Task":
        """The task with these parameters; its name includes those that are not the default.

        The default implementation expects a dataclass with the fields `name` and `parameters`. Raises InputError for missing
        parameters and invalid combinations. The message may contain `{way}` or `{way=text}`, which is replaced by the flag, key
        or argument.
        """
        if parameters == self.parameters:
            return self
        return replace(self, name=self.name + suffix(parameters), parameters=parameters)  # type: ignore[type-var]

    def reading(self, samples: Path, encoding: str | None = None) -> "Task":
        """A restored task that reads its samples from the custom file again, in this encoding if any.

        Raises InputError if the task does not use a custom file.
        """
        if "samples" not in type(self.parameters).model_fields or not self.own_samples:
            raise InputError(f"--samples requires a task that reads a custom file, which {self.name} does not: remove it")
        again = self.parameters.model_copy(update={"samples": samples, "encoding": encoding})
        return replace(self, parameters=again)  # type: ignore[type-var]

    # --- steps --------------------------------------------------------------------------------------------------

    @abstractmethod
    def load(self, data: DataSource) -> Samples:
        """Read and validate the data set. Raises InputError naming file, line and remedy."""

    def load_limited(self, data: DataSource, limit: int | None) -> Samples:
        """The samples within the limit, with their positions in the column ORDER."""
        return limited(self.load(data), self.strata, limit)

    @abstractmethod
    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """Requests for a model with these heads. Pure; independent of the tokenizer."""

    def given(self, samples: Samples) -> Sequence[ExistingAnswers]:
        """Existing answers, for a task that scores no model. Raises InputError if they are invalid or missing."""
        return ()

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """Per-sample scores of one model.

        `table` is Rendered.table; `answers` has one row per request × candidate with columns `request, candidate` (index from
        0), `tokens` (list of int) and `logprobs` (list of float, natural log, one per token), or is the result of `given`. A
        candidate of a chat is a reply, with its `text` and how it ended in `finish` (`evaluator_serving.chats`). Samples
        whose request has no answer are skipped. Returns the columns `language, template, sample, group, score` and
        those of `columns`; model and task are added by the caller. By default the score is the first candidate's `value`
        minus the second's, and `columns` are taken from the table.
        """
        scored = with_candidates(table, answers, value=self.value(protocol))
        return scored.select(*PLACE, *self.columns, score=pl.col("value_0") - pl.col("value_1"))

    @property
    def roles(self) -> Sequence[str]:
        """Roles of the candidates of each request, in their order; empty if they differ between requests."""
        return ()

    def value(self, protocol: Protocol_) -> pl.Expr:
        """The number of a candidate that `score` compares (natural log); null for a candidate without tokens.

        An expression over the columns of the table joined with the answers.
        """
        return summed(pl.col("logprobs"))

    def candidates(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """One row per sample × request × candidate of one model (columns CANDIDATES), from which `score` is computed."""
        joined = table.join(answers, on="request", how="inner", maintain_order="left")
        names = dict(enumerate(self.roles))
        return joined.select(
            *PLACE,
            candidate="candidate",
            role=pl.col("candidate").replace_strict(names, default=None, return_dtype=pl.String),
            prefix=pl.lit([], dtype=pl.List(pl.Int32)),
            tokens="tokens",
            logprob=pl.col("logprobs").list.sum(),
            value=self.value(protocol),
        )

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One model's scores of one language (columns SCORES and `columns`) as sampling units with their statistics.

        Reports, comparisons of models and `evaluator samples` compute everything from these.
        """
        return []

    @property
    def joint_languages(self) -> bool:
        """Whether languages share sampling units. If so, a report passes a model's scores of all languages to `sampled`."""
        return False

    def with_summaries(self, rates: pl.DataFrame, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """The rows of a report, in its order: `rates` of all models (columns TIDY), and rates without sampling units.

        Rates without sampling units are ranks, correlations between models, counts. `scores` is not empty.
        """
        return rates

    def measure(self, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """Tidy rows (columns TIDY) from the scores of all models of a run. Tasks define `sampled` and `with_summaries` instead.

        Raises InputError for a task that does not define `sampled`.
        """
        if type(self).sampled is Task.sampled:
            raise InputError(f"task {self.name} defines no sampled(): see docs/extending.md")
        if scores.is_empty():
            return pl.DataFrame(schema=TIDY)
        rates = estimates(scores, options, self.sampled, KEYS[:2] if self.joint_languages else KEYS)
        return self.with_summaries(rates, scores, options)

    # --- reports ------------------------------------------------------------------------------------------------

    def layout(self, options: MeasureOptions) -> Layout | None:
        """How reports show the rows of `measure`; None for a plain layout made from the rows."""
        return None

    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]:
        """Warnings for readers of the report, one sentence each; shown in every format."""
        return []
