"""What a task is: pure functions between frames. I/O, engines and models are elsewhere.

The data's way: `load` (data set → samples) → `render` (samples → requests) → [engines] → `score` (answers → per-sample
scores of one model) → `sampled` (scores of one model and language → sampling units with a statistic of them) → `measure`
(tidy rows of all models, with intervals).
"""

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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
"""Columns of `Task.candidates`. `role`: what the candidate is (stereotype, male, …); `prefix`: tokens in front of those scored;
`tokens`: the scored ones (ids); `logprob`: the sum of their log-probabilities; `value`: what `score` compares."""


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


class Task(ABC):
    """A measure of a model: which data, which requests, which numbers. Instances are immutable.

    A task of its own is a frozen dataclass below this class with the members that are abstract here; the others have defaults
    that suit most. A member that is the same for all instances may be a class variable or a field instead of a property
    (a field without a default is written `name: str = field()`, or dataclasses take the property for its default).
    """

    __slots__ = ()

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's name in commands, run folders and reports."""

    @property
    def about(self) -> str:
        """What it measures, in a line."""
        return next((datasets()[name].about for name in self.reads if name in datasets()), "")

    @property
    def reads(self) -> Sequence[str]:
        """Names of the data sets that it reads (`evaluator data list`); none for one whose data come otherwise."""
        return ()

    @property
    def methods(self) -> Sequence[str]:
        """Keys in `datasets/references.bib` of the publications that its method comes from."""
        return ()

    @property
    def references(self) -> Sequence[str]:
        """Keys in `datasets/references.bib` of what to cite: its method, then its data sets."""
        read = (datasets()[name].references for name in self.reads if name in datasets())
        return tuple(dict.fromkeys([*self.methods, *itertools.chain.from_iterable(read)]))

    @property
    def parameters(self) -> Parameters:
        """What a user can choose, as it is chosen: an instance of the task's own model (see `evaluator.tasks.parameters`).

        `options.of(self.name, MyParameters)` in `measure` gives those that were chosen for a report.
        """
        return Parameters()

    @property
    @abstractmethod
    def heads(self) -> frozenset[str]:
        """Request heads the task can use: `masked`, `causal`, `seq2seq`, `pair`, `chat`; a model needs at least one of them.

        None: it asks no model, its answers are `given`.
        """

    def uses(self, heads: frozenset[str]) -> frozenset[str]:
        """Those of a model's heads that it asks, where it could use several: all of them, and `render` chooses among them."""
        return self.heads & heads

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """Columns of `score`'s frame besides those of SCORES, with their types."""
        return {}

    @property
    def measures(self) -> Sequence[str]:
        """Names of the measures that its rows may have."""
        return ()

    @property
    def strata(self) -> Sequence[str]:
        """Columns of the samples over whose groups a limit is spread, outermost first (see `evaluator.tasks.limit`)."""
        return ()

    @property
    def skips_unscorable(self) -> bool:
        """Whether many samples that can't be asked of a model (a word unknown to its tokenizer, a text longer than its context)
        are expected. They are always left out; where they are many, a model isn't asked a task that doesn't expect it."""
        return False

    @property
    def definition(self) -> str | None:
        """The text that a run restores the task from, its parameters as JSON; None where its name alone does."""
        return None if self.name == self.made_of else definition(self.parameters)

    @property
    def made_of(self) -> str:
        """The name under which the program knows the task that `using` made this one of; its `restored` makes it again."""
        return self.name.removesuffix(suffix(self.parameters))

    def restored(self, definition: str) -> "Task":
        """The task that a run recorded by its `definition`, of the one called `made_of`.

        It must be able to score and measure what the run has; what it was loaded from need not be there any more.
        """
        return self.using(from_definition(type(self.parameters), json.loads(definition)))

    @property
    def own_samples(self) -> bool:
        """Whether its samples are in a file of the user's."""
        return self.definition is not None and "samples" in type(self.parameters).model_fields

    @property
    def protocols(self) -> frozenset[Protocol_]:
        """Ways to ask a model that the task knows."""
        return frozenset({"default", "published"})

    @property
    def scales(self) -> frozenset[Scale]:
        """Scales that the task's rows can be on; one whose rows have none takes any of these."""
        return frozenset({"ratio", "published", "log10"})

    def using(self, parameters: Any) -> "Task":
        """The task with these parameters, of its own model: its name tells them from others.

        The default is for a dataclass with the fields `name` and `parameters`. Raises InputError for parameters that don't go
        together, or are needed and not given; the message may name them as `{way}` or `{way=text}`, which is written as the
        user gives them.
        """
        if parameters == self.parameters:
            return self
        return replace(self, name=self.name + suffix(parameters), parameters=parameters)  # type: ignore[type-var]

    def reading(self, samples: Path, encoding: str | None = None) -> "Task":
        """The task of a run, restored without its samples, reading them from the user's file again, in this encoding if any.

        Raises InputError where the task isn't made of a file of the user's.
        """
        if "samples" not in type(self.parameters).model_fields or not self.own_samples:
            raise InputError(f"--samples requires a task that reads a custom file, which {self.name} does not: remove it")
        again = self.parameters.model_copy(update={"samples": samples, "encoding": encoding})
        return replace(self, parameters=again)  # type: ignore[type-var]

    # --- the data's way ------------------------------------------------------------------------------------------

    @abstractmethod
    def load(self, data: DataSource) -> Samples:
        """Read and validate the data set. Raises InputError naming file, line and remedy."""

    def load_limited(self, data: DataSource, limit: int | None) -> Samples:
        """The samples, or those that the limit takes, with their places in the column ORDER."""
        return limited(self.load(data), self.strata, limit)

    @abstractmethod
    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """Requests for a model that has these heads, pure and tokenizer-free."""

    def given(self, samples: Samples) -> Sequence[ExistingAnswers]:
        """Answers that exist already, for a task that asks no model. Raises InputError where they are wrong or missing."""
        return ()

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """Per-sample scores of one model.

        `table` is Rendered.table; `answers` has one row per request × candidate with columns `request, candidate` (index from
        0), `tokens` (list of int) and `logprobs` (list of float, natural log, one a token), or is what `given` gave. Of a
        chat a candidate is a reply, with what it says in `text` and how it ended in `finish` (`evaluator_serving.chats`).
        Samples whose request has no answer are left out. Returns the columns `language, template, sample, group, score` and
        those of `columns`; model and task are added by the caller. By default the score is the first candidate's `value`
        minus the second's, and `columns` are taken from the table.
        """
        scored = with_candidates(table, answers, value=self.value(protocol))
        return scored.select(*PLACE, *self.columns, score=pl.col("value_0") - pl.col("value_1"))

    @property
    def roles(self) -> Sequence[str]:
        """What the candidates of each of its requests are, in their order; none where they differ by request."""
        return ()

    def value(self, protocol: Protocol_) -> pl.Expr:
        """A candidate's number that `score` compares with the other candidates' (natural log), null for one without tokens.

        An expression over the columns of the table joined with the answers.
        """
        return summed(pl.col("logprobs"))

    def candidates(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """One row per sample × request × candidate of one model (columns CANDIDATES): what `score` makes its numbers of."""
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
        """The rows of a report, in its order: `rates` of all models (columns TIDY), and what has no sampling units.

        For example ranks, correlations between models, counts. `scores` isn't empty.
        """
        return rates

    def measure(self, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """Tidy rows (columns TIDY) from the scores of all models of a run. Tasks define `sampled` and `with_summaries` instead.

        Raises InputError for a task that doesn't define `sampled`.
        """
        if type(self).sampled is Task.sampled:
            raise InputError(f"task {self.name} defines no sampled(): see docs/extending.md")
        if scores.is_empty():
            return pl.DataFrame(schema=TIDY)
        rates = estimates(scores, options, self.sampled, KEYS[:2] if self.joint_languages else KEYS)
        return self.with_summaries(rates, scores, options)

    # --- how it is read ------------------------------------------------------------------------------------------

    def layout(self, options: MeasureOptions) -> Layout | None:
        """How reports show the rows that `measure` gives; None for a plain layout made from the rows."""
        return None

    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]:
        """What a reader of the report must know, a sentence each; shown with every format."""
        return []
