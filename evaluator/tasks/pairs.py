"""Sentence pairs, the more stereotypical sentence against the less stereotypical one (method.md §5).

CrowS-Pairs in English is shipped; files of the user's own, and CrowS-Pairs in other languages, are given with --samples and,
where their columns aren't CrowS-Pairs', a definition (TOML) with --templates:

    name = "my-pairs"           # of the task
    [pairs]
    more = "sentence_a"         # columns: the more stereotypical sentence, the less stereotypical one
    less = "sentence_b"
    group = "topic"             # optional: what pairs are grouped by
    direction = "kind"          # optional: stereo or antistereo
    language = "nl"             # the language's code, or
    language_column = "lang"    # the column that has it

Each pair is scored under every metric that the model allows; a metric is a template. Generative models: `sum`, `token` and
`byte`, log P of the whole sentence as a sum, or as a mean over its tokens or its UTF-8 bytes. Masked models: `crows`
(CrowS-Pairs' own: the tokens that both sentences have, masked one at a time), `pll` (every token, masked with the later ones of
its word; Kauf and Ivanova 2023) and `aul` (all tokens at once, without a mask, mean over them; Kaneko and Bollegala 2022).
Protocols don't differ.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import polars as pl
from pydantic import Field, model_validator

from evaluator.datasets.check import sha256
from evaluator.datasets.pairs import Columns, read_english, read_pairs
from evaluator.datasets.registry import locate
from evaluator.measures.pairs import MEASURES, sampled, with_summaries
from evaluator.measures.sampled import Sampled
from evaluator.tasks.base import PLACE, REQUESTED, Task, rendered, summed, with_candidates
from evaluator.tasks.parameters import GivenText, OwnSamples, TextFile, from_definition
from evaluator.toml_file import Document, MistakesError, Table
from evaluator.vocabulary import DataSource, Layout, MeasureOptions, Overview, Protocol_, Rendered, Samples
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation, Masked, Request, SharedTokens

METRICS: dict[str, tuple[str, ...]] = {"causal": ("sum", "token", "byte"), "masked": ("crows", "pll", "aul")}
"""Head of a model → what its answers are made into."""

TABLE: dict[str, pl.DataType] = {
    **REQUESTED,
    "direction": pl.String(),
    "bytes_more": pl.Int64(),
    "bytes_less": pl.Int64(),
}
"""Columns of `Rendered.table`: one row per pair and metric."""


MEANING = (
    "share above 0.5 means that a model finds the more stereotypical sentence likelier in more than half of the pairs; below "
    "0.5 means the opposite"
)


class PairsParameters(OwnSamples):
    """Files of the user's own pairs."""

    templates: GivenText | None = Field(default=None, description="Columns of custom pairs (TOML).")


@dataclass(frozen=True, slots=True)
class Pairs(Task):
    """Sentence pairs of one file, see `evaluator.tasks.base.Task`.

    Attributes:
        parameters: the user's files; none for CrowS-Pairs in English.
    """

    methods: ClassVar[Sequence[str]] = ("crows_pairs", "pll_word_l2r", "aul")
    skips_unscorable: ClassVar[bool] = True
    strata: ClassVar[tuple[str, ...]] = ("language", "group")
    heads: ClassVar[frozenset[str]] = frozenset({"masked", "causal"})
    about: ClassVar[str] = "which of two sentences is likelier, under every metric that the model allows: share, mean"
    measures: ClassVar[Sequence[str]] = MEASURES
    columns: ClassVar[Mapping[str, pl.DataType]] = {"direction": pl.String()}
    made_of: ClassVar[str] = "pairs"

    name: str = "pairs"
    parameters: PairsParameters = field(default_factory=PairsParameters)

    @property
    def reads(self) -> Sequence[str]:
        """CrowS-Pairs, unless the pairs are the user's own."""
        return () if self.parameters.templates else ("crows-pairs",)

    def using(self, parameters: PairsParameters) -> Task:
        """The user's own pairs, where there are files for them; without a definition they are in a layout of CrowS-Pairs.

        The task is called as the definition says, or `pairs-` and eight digits of the file's sha256.
        """
        samples, templates = parameters.samples, parameters.templates
        if parameters == self.parameters:
            return self
        if samples is None:
            raise InputError("custom pairs need {samples}, a CSV file")
        if not samples.is_file():
            raise InputError(f"no such file: {samples}: {{samples}} expects a CSV file of sentence pairs")
        if templates is None:
            templates = TextFile(f'name = "{_named(samples)}"\n[pairs]\nmore = "sent_more"\nless = "sent_less"\n', str(samples))
        name, _ = parse(templates.text, templates.where)
        return Pairs(name, parameters.model_copy(update={"templates": templates}))

    def restored(self, definition: str) -> Task:
        """The user's own pairs; the sentences are in the run, not on the disk. Older definitions are the TOML text alone."""
        values = json.loads(definition) if definition.startswith("{") else {"templates": definition}
        found = from_definition(PairsParameters, values)
        return Pairs(parse(found.templates.text if found.templates else "", "the run's definition")[0], found)

    def load(self, data: DataSource) -> Samples:
        """The pairs: columns `evaluator.datasets.pairs.PAIRS`."""
        samples, templates = self.parameters.samples, self.parameters.templates
        if templates is None:
            (path,) = locate("crows-pairs", data).values()
            return read_english(path)
        if samples is None:
            raise InputError(f"task {self.name} was made from a file: give it again with --samples")
        published = self.name == _named(samples)
        columns = None if published else parse(templates.text, templates.where)[1]
        return read_pairs(samples, columns, self.parameters.encoding)

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """A request a pair and metric; the generative metrics share theirs."""
        head = "masked" if "masked" in heads else "causal"
        columns = ("sample", "language", "group", "direction", "more", "less")
        asked = (
            (
                _request(metric, more, less),
                (sample, language, metric, group),
                (direction, len(more.encode()), len(less.encode())),
            )
            for sample, language, group, direction, more, less in samples.frame.select(columns).iter_rows()
            for metric in METRICS[head]
        )
        return rendered(asked, TABLE)

    roles: ClassVar[Sequence[str]] = ("more", "less")

    def value(self, protocol: Protocol_) -> pl.Expr:
        """log P of a sentence as its metric takes it: the sum, or the sum over the number of tokens or bytes."""
        template, count = pl.col("template"), pl.col("logprobs").list.len()
        size = pl.when(pl.col("candidate") == 0).then("bytes_more").otherwise("bytes_less")
        per = pl.when(template.is_in(["token", "aul"])).then(count).when(template == "byte").then(size).otherwise(1)
        return pl.when(count > 0).then(summed(pl.col("logprobs")) / per.cast(pl.Float64))

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """d of every pair and metric, with the pair's `direction`; null where the sentences share no token (`crows`)."""
        scored = with_candidates(table, answers, "left", value=self.value(protocol))
        return scored.select(*PLACE, score=pl.col("value_0") - pl.col("value_1"), direction="direction")

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One model's pairs as sampling units, metric by metric: see `evaluator.measures.pairs`."""
        return sampled(scores, options)

    def with_summaries(self, rates: pl.DataFrame, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """Sign tests."""
        return with_summaries(rates, scores)

    def layout(self, options: MeasureOptions) -> Layout:
        """All pairs in the summary, then by group."""
        return Layout(
            summary=("share", "mean", "mean_abs", "p"),
            details=("share", "mean", "p_holm"),
            overview=(Overview("share", 0.5, MEANING),),
            neutrals={"mean": 0.0},
            cautions=(
                "A more stereotypical sentence can be likelier for other reasons than the stereotype, such as word "
                "frequency: there is no control group.",
            ),
            notes={
                "share": "share of the pairs whose more stereotypical sentence is the likelier one; 0.5 is unbiased.",
                "mean": "mean: of d = log P(more stereotypical) − log P(less stereotypical). For sentences of different "
                "length use the template byte.",
                "mean_abs": "mean_abs: mean of |d|.",
                "p": "p: two-sided sign test of the share against 0.5.",
                "p_holm": "p_holm: p of the group, adjusted over the groups (Holm).",
            },
        )


def _request(metric: str, more: str, less: str) -> Request:
    if metric == "crows":
        return SharedTokens(more, less)
    if metric in ("pll", "aul"):
        return Masked(("", ""), ((more,), (less,)), "words" if metric == "pll" else "unmasked")
    return Continuation("", (more, less))


def _named(samples: Path) -> str:
    """What the task of a file in a published layout is called."""
    return f"pairs-{sha256(samples)[:8]}"


class _Pairs(Table):
    more: str = Field(min_length=1)
    less: str = Field(min_length=1)
    group: str | None = Field(None, min_length=1)
    direction: str | None = Field(None, min_length=1)
    language: str = Field("en", min_length=1)
    language_column: str | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _one_language(self) -> "_Pairs":
        if "language" in self.model_fields_set and self.language_column is not None:
            raise MistakesError([(("language_column",), "pairs have a language or a column of languages: remove one of them")])
        return self


class _File(Table):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the task's name")
    pairs: _Pairs = Field(description='a table [pairs] with the columns, more = "…" and less = "…" at least')


def parse(text: str, where: str) -> tuple[str, Columns]:
    """A definition's name and columns. Raises InputError with a line for each mistake: `where` (its file), line, key."""
    document = Document(where, text)
    found = document.checked(_File, document.content())
    return found.name, Columns(**found.pairs.model_dump())
