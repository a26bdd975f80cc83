"""GEST (Pikuliak et al., 2023; method.md §1) and measures built like it from a user's own definition.

Score of a sample under a template = log P(first word) - log P(second word), natural logarithms; for GEST's definition
the first word is the male one. Where the released code differs, `--protocol published` follows it:

- masked models: it masks, in one input for each word, every position at which the two tokenized texts differ (compared
  position by position, so a difference in token count masks the shifted tail as well) and takes the *mean* over them.
  The default fills in a word's earlier tokens one after the other and takes the sum, a proper log-probability.
- generative models: it reads the last token id of the word tokenized alone with a space in front; the default
  scores all the word's tokens as they stand in the text.
- It takes log10; scores here are always natural logarithms, and the scale is chosen when a report is written.
- It ran some generative models in float16 or int8: that is the dtype of a run, not a protocol.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
from pydantic import Field

from evaluator.csv_file import read_as
from evaluator.datasets.check import sha256
from evaluator.datasets.gest import read_groups, read_sentences
from evaluator.datasets.registry import locate
from evaluator.measures.gest import MEASURES
from evaluator.measures.sampled import Sampled
from evaluator.tasks.base import PLACE, REQUESTED, Task, averaged, rendered, summed, with_candidates
from evaluator.tasks.definition import HEADS, Definition, gest_definition, gest_toml, parse_definition
from evaluator.tasks.gest_layout import rates_layout
from evaluator.tasks.limit import limited, spread
from evaluator.tasks.parameters import GivenText, OwnSamples, Parameters, TextFile, definition, from_definition
from evaluator.text_file import encoding_of
from evaluator.vocabulary import ORDER, DataSource, Layout, MeasureOptions, Protocol_, Rendered, Samples
from evaluator_serving.errors import InputError

TABLE: dict[str, pl.DataType] = {
    **REQUESTED,
    "polarity": pl.String(),
    "family": pl.Boolean(),
    "head": pl.String(),
}
"""Columns of `Rendered.table`: one row per sample × template."""


class GestParameters(OwnSamples):
    """Files of a task of the user's own; whichever of the two is not given is GEST's."""

    templates: GivenText | None = Field(default=None, description="Custom templates and groups (TOML).")


@dataclass(frozen=True, slots=True)
class GestTask(Task):
    """A definition with its sentences; see `evaluator.tasks.base.Task`.

    Attributes:
        name: the task's name.
        plan: templates, words, groups.
        data: the name of the data set that has the sentences where the user gives none.
        parameters: the user's files that it is made of; a task that can't be made of any has none.
    """

    methods: ClassVar[Sequence[str]] = ("gest",)
    strata: ClassVar[tuple[str, ...]] = ("polarity", "group")
    measures: ClassVar[Sequence[str]] = MEASURES
    made_of: ClassVar[str] = "gest"
    columns: ClassVar[Mapping[str, pl.DataType]] = {
        "logprob_male": pl.Float64(),
        "logprob_female": pl.Float64(),
        "polarity": pl.String(),
        "family": pl.Boolean(),
        "head": pl.String(),
    }

    name: str = field()
    plan: Definition = field()
    data: str = field()
    parameters: Parameters = field(default_factory=Parameters)

    @property
    def about(self) -> str:
        """What q says."""
        first, second = self.plan.poles
        return f"how much likelier a pair's {first} word is than its {second} one, by group: q_i, q_f, q_m, g_s"

    @property
    def files(self) -> GestParameters:
        """The user's files."""
        return self.parameters if isinstance(self.parameters, GestParameters) else GestParameters()

    @property
    def definition(self) -> str | None:
        """The user's definition, or GEST's with the user's sentences; None for GEST itself."""
        return definition(self.parameters) if self.files.templates else None

    @property
    def reads(self) -> Sequence[str]:
        """The sentences, unless they are the user's own."""
        return () if self.files.samples else (self.data,)

    def using(self, parameters: Parameters) -> Task:
        """The user's own task, where there are files for one.

        It is called as the definition says, or `gest-` and eight digits of the samples' sha256 if only samples are given, so
        that it can't be taken for a registered task in a run folder.
        """
        if not isinstance(parameters, GestParameters):
            return self
        samples, templates = parameters.samples, parameters.templates
        if samples is not None and not samples.is_file():
            raise InputError(f"no such file: {samples}: {{samples}} expects a CSV file")
        if templates is None and samples is not None:
            name = f"gest-{sha256(samples)[:8]}"
            templates = TextFile(gest_toml().replace('name = "gest"', f'name = "{name}"'), "gest.toml")
        if templates is None:
            return self
        plan = parse_definition(templates.text, templates.where)
        return GestTask(plan.name, plan, "gest", parameters.model_copy(update={"templates": templates}))

    def restored(self, definition: str) -> Task:
        """The user's own task; its sentences are in the run, not on the disk. Older definitions are the TOML text alone."""
        values = json.loads(definition) if definition.startswith("{") else {"templates": definition}
        return self.using(from_definition(GestParameters, values))

    @property
    def heads(self) -> frozenset[str]:
        """`masked`, `causal` or both, as the definition has templates for."""
        return self.plan.heads

    def load(self, data: DataSource) -> Samples:
        """The sentences: columns `sample, sentence, group, polarity, family` (`family`: the sample is topical)."""
        path = self._path(data)
        return Samples(self._described(self._read(path)), {path.name: sha256(path)}, facts=self._facts)

    def load_limited(self, data: DataSource, limit: int | None) -> Samples:
        """The samples that a limit takes. Of the others only the groups are held: the file may have millions of rows."""
        if limit is None:
            return limited(self.load(data), self.strata, limit)
        path, it = self._path(data), self.plan
        groups = read_groups(path, it.columns.sentence, it.columns.group, it.groups, self.files.encoding).to_frame()
        order = spread(self._with_polarity(groups), self.strata, limit)
        frame = self._read(path, set(order))
        places = pl.DataFrame({"sample": order, ORDER: range(len(order))}, schema={"sample": pl.Int64, ORDER: pl.Int64})
        frame = self._described(frame).join(places, on="sample", maintain_order="left")
        return Samples(frame, {path.name: sha256(path)}, facts=self._facts, whole=groups.height)

    @property
    def _facts(self) -> Mapping[str, Any]:
        own = self.files.samples
        return read_as(own, encoding_of(own, self.files.encoding)) if own else {}

    def _path(self, data: DataSource) -> Path:
        (path,) = [self.files.samples] if self.files.samples else locate(self.data, data).values()
        return path

    def _read(self, path: Path, rows: Collection[int] | None = None) -> pl.DataFrame:
        it = self.plan
        return read_sentences(path, it.columns.sentence, it.columns.group, it.groups, rows, self.files.encoding)

    def _with_polarity(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(polarity=pl.col("group").replace_strict(self.plan.sides, return_dtype=pl.String))

    def _described(self, frame: pl.DataFrame) -> pl.DataFrame:
        family = [self.plan.topical(sentence, group) for sentence, group in frame.select("sentence", "group").iter_rows()]
        return self._with_polarity(frame).with_columns(pl.Series("family", family, dtype=pl.Boolean))

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """A request a sample × template of the first kind that the model can answer (masked before continuation)."""
        usable = [head for head in HEADS if head in heads & self.heads]
        if not usable:
            wanted, supported = ", ".join(sorted(self.heads)), ", ".join(sorted(heads)) or "none"
            raise InputError(f"task {self.name} needs a model with one of the heads {wanted}, this one has {supported}")
        templates = [t for t in self.plan.templates if t.kind == HEADS[usable[0]]]
        frame = samples.frame.select("sample", "sentence", "group", "polarity", "family")
        asked = (
            (
                template.request(sentence, protocol),
                (sample, self.plan.language, template.id, group),
                (polarity, family, usable[0]),
            )
            for sample, sentence, group, polarity, family in frame.iter_rows()
            for template in templates
        )
        return rendered(asked, TABLE)

    @property
    def roles(self) -> Sequence[str]:
        """The poles of a pair's first and second word."""
        return self.plan.poles

    def value(self, protocol: Protocol_) -> pl.Expr:
        """The sum over a word's tokens; published their mean."""
        return (summed if protocol == "default" else averaged)(pl.col("logprobs"))

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """Scores with `polarity`, `family`, `head`, and the two words' log-probabilities.

        `logprob_male` and `logprob_female` are sums over the first and the second word's tokens, in both protocols;
        only the default protocol's are log-probabilities of the words wherever a word has several tokens.
        """
        scored = with_candidates(table, answers, value=self.value(protocol), logprob=summed(pl.col("logprobs")))
        return scored.select(
            *PLACE,
            score=pl.col("value_0") - pl.col("value_1"),
            logprob_male="logprob_0",
            logprob_female="logprob_1",
            polarity="polarity",
            family="family",
            head="head",
        )

    def with_summaries(self, rates: pl.DataFrame, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """Ranks and correlations, and the poles of groups: see `evaluator.measures.gest`."""
        from evaluator.measures.gest import with_summaries

        return with_poles(with_summaries(rates, scores, options), self.plan)

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One model's scores of one language as sampling units."""
        from evaluator.measures.gest import sampled

        return sampled(scores, options.scale)

    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]:
        """Which rates rest on fewer groups or samples than they should."""
        from evaluator.measures.gest import gest_warnings

        return gest_warnings(scores, list(self.plan.groups), self.layout(options).names)

    def layout(self, options: MeasureOptions) -> Layout:
        """Rates by template, then by group with the groups' names."""
        it = self.plan
        gest = gest_definition()
        topic = None if (it.topic, it.poles) == (gest.topic, gest.poles) else it.topic
        return rates_layout(it.names, it.pole_of, options.scale, it.poles, topic)


def with_poles(rows: pl.DataFrame, plan: Definition) -> pl.DataFrame:
    """Rows (columns TIDY) with the names of the poles that their groups, or their rates over groups, belong to."""
    first, second = plan.poles
    of_measure = {"q_m": first, "q_family": first, "p_family": first, "q_f": second}
    measure = pl.col("measure")
    by_group = measure.is_in(["q", "rank", "p"])
    return rows.with_columns(
        pl.when(by_group)
        .then(pl.col("group").replace_strict(plan.pole_of, default=None, return_dtype=pl.String))
        .otherwise(measure.replace_strict(of_measure, default=None, return_dtype=pl.String))
        .alias("pole")
    )


def gest() -> GestTask:
    """GEST 1.0, the papers' version."""
    return GestTask("gest", gest_definition(), "gest", GestParameters())


def gest_1_1() -> GestTask:
    """GEST 1.1: 244 sentences corrected."""
    return GestTask("gest-1.1", gest_definition(), data="gest-1.1")


def gest_demo() -> GestTask:
    """The shipped demonstration set: 160 sentences, not validated."""
    return GestTask("gest-demo", gest_definition(), data="gest-demo")
