"""GEST for Slavic masked language models: pairs of translations that differ in the gender of one word (method.md §1.5).

A pair is kept if its words begin with the same letter; equal pairs of a language count once. Where the released code differs,
`--protocol published` follows it:

- equal pairs count once over all languages and systems, the first one in the file;
- sentences are compared as they stand: a different final mark or capital is a difference. The default overlooks those;
- a model is asked only for the pairs that differ in exactly one of equally many tokens of its own tokenizer (special tokens
  apart); the others count against the yield. The default asks for all, a word of several tokens as the sum of its tokens'.

A pair with a word that a model's tokenizer doesn't know is a failure of that pair with that model, in both protocols.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import polars as pl

from evaluator.csv_file import read_as
from evaluator.gender.variants import (
    Difference,
    Variant,
    deduplicate,
    one_word_difference,
    read_variants,
    released_first_letter,
    same_first_letter,
)
from evaluator.measures.gest import MEASURES
from evaluator.measures.sampled import Sampled
from evaluator.tasks.base import PLACE, Task, with_candidates
from evaluator.tasks.gest import gest
from evaluator.tasks.parameters import OwnSamples
from evaluator.text_file import encoding_of
from evaluator.vocabulary import DataSource, Layout, MeasureOptions, Protocol_, Rendered, Samples, tidy
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Masked, Request, request_id

FILE = Path("gest") / "gender_variants.csv"
TEMPLATE = "pair"


@dataclass(frozen=True, slots=True)
class GestSlavicTask(Task):
    """Scores of gender pairs by masked models; see `evaluator.tasks.base.Task`.

    Attributes:
        parameters: `samples`, the pairs' file (columns translator, language, original, stereotype, male, female), None for
            gest/gender_variants.csv in the data folder.
        name: the task's name.
    """

    methods: ClassVar[Sequence[str]] = ("gest",)
    strata: ClassVar[tuple[str, ...]] = ("language", "polarity", "group")

    about: ClassVar[str] = "GEST for Slavic masked models: pairs of translations that differ in the gender of one word"
    measures: ClassVar[Sequence[str]] = (*MEASURES, "yield")
    columns: ClassVar[Mapping[str, pl.DataType]] = {
        "logprob_male": pl.Float64(),
        "logprob_female": pl.Float64(),
        "polarity": pl.String(),
        "family": pl.Boolean(),
    }
    skips_unscorable: ClassVar[bool] = True

    parameters: OwnSamples = field(default_factory=OwnSamples)
    name: str = "gest-slavic"

    def reading(self, samples: Path, encoding: str | None = None) -> Task:
        """The task with the user's file of pairs."""
        return replace(self, parameters=OwnSamples(samples=samples, encoding=encoding))

    @property
    def heads(self) -> frozenset[str]:
        """Masked models only."""
        return frozenset({"masked"})

    def load(self, data: DataSource) -> Samples:
        """The pairs: columns `sample` (row of the file), `language`, `group`, `prefix`, `male_word`, `female_word`, `suffix`,
        `polarity`, `family`. Published, the two words are the whole sentences. By default pairs that don't differ in one
        word are failures.
        """
        own, encoding = self.parameters.samples, self.parameters.encoding
        path = own or (data.folder / FILE if data.folder else None)
        if path is None or not path.is_file():
            raise InputError(
                f"no such file: {path or FILE}: give the pairs with --samples, or a --data folder that holds {FILE}"
            )
        gest_groups = gest().plan
        rows, failures = [], []
        dropped: Counter[str] = Counter()
        every = list(read_variants(path, encoding))
        kept = set(map(id, deduplicate(every, "language" if data.protocol == "default" else "published")))
        for number, variant in enumerate(every):
            if id(variant) not in kept:
                dropped["equal pairs"] += 1
                continue
            group = str(variant.stereotype)
            if group not in gest_groups.groups:
                raise InputError(f"{path}: pair {number + 1} has stereotype {group}: it must be one of 1 to 16")
            difference = _difference(variant, data.protocol)
            if difference is None:
                failures.append((str(number), f"{variant.male!r} and {variant.female!r} don't differ in exactly one word"))
                continue
            if not _same_first_letter(difference, data.protocol):
                dropped["another first letter"] += 1
                continue
            rows.append(
                (
                    number,
                    variant.language,
                    group,
                    difference.prefix,
                    difference.male,
                    difference.female,
                    difference.suffix,
                    gest_groups.sides[group],
                    gest_groups.topical(variant.original, group),
                )
            )
        schema = ["sample", "language", "group", "prefix", "male_word", "female_word", "suffix", "polarity", "family"]
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        if frame.is_empty():
            raise InputError(f"{path} holds no usable pair: it needs male and female sentences that differ in one word")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        facts = read_as(path, encoding_of(path, encoding)) if own else {}
        return Samples(frame, {path.name: digest}, dict(dropped), tuple(failures), facts)

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """One request a pair."""
        method = "sequential" if protocol == "default" else "one_token"
        requests: dict[str, Request] = {}
        ids = []
        for prefix, male, female, suffix in samples.frame.select("prefix", "male_word", "female_word", "suffix").iter_rows():
            request = Masked((prefix, suffix), ((male,), (female,)), method)  # type: ignore[arg-type]
            ids.append(request_id(request))
            requests[ids[-1]] = request
        table = samples.frame.select(
            "sample",
            "language",
            pl.lit(TEMPLATE).alias("template"),
            "group",
            pl.Series("request", ids, dtype=pl.String),
            "polarity",
            "family",
        )
        return Rendered(table, requests)

    @property
    def roles(self) -> Sequence[str]:
        """The speaker's gender in either sentence."""
        return gest().roles

    def value(self, protocol: Protocol_) -> pl.Expr:
        """log P of the word; null without tokens."""
        return pl.when(pl.col("tokens").list.len() > 0).then(pl.col("logprobs").list.sum())

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """log P(male word) - log P(female word).

        Pairs that `published` doesn't keep have no tokens and a null score; they count in no rate, only against the yield.
        """
        return with_candidates(table, answers, logprob=self.value(protocol)).select(
            *PLACE,
            score=pl.col("logprob_0") - pl.col("logprob_1"),
            logprob_male="logprob_0",
            logprob_female="logprob_1",
            polarity="polarity",
            family="family",
        )

    def with_summaries(self, rates: pl.DataFrame, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """GEST's summaries, and `yield`: the number of pairs that the rates rest on (n: all pairs)."""
        cell = ["model", "task", "language", "template"]
        yields = scores.group_by(cell, maintain_order=True).agg(
            value=pl.col("score").is_not_null().sum().cast(pl.Float64), n=pl.len().cast(pl.Int64)
        )
        rows = gest().with_summaries(rates, scores, options)
        return pl.concat([rows, tidy(yields.with_columns(measure=pl.lit("yield")))])

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One model's pairs of one language as sampling units."""
        return gest().sampled(scores, options)

    def layout(self, options: MeasureOptions) -> Layout:
        """GEST's layout and the yield."""
        layout = gest().layout(options)
        return replace(layout, summary=(*layout.summary, "yield"))


def _difference(variant: Variant, protocol: Protocol_) -> Difference | None:
    if protocol == "published":  # which tokens differ is for the tokenizer to say
        return Difference("", variant.male, variant.female, "")
    return one_word_difference(variant.male, variant.female)


def _same_first_letter(difference: Difference, protocol: Protocol_) -> bool:
    if protocol == "published":
        return released_first_letter(difference.male, difference.female)
    return same_first_letter(difference)


def gest_slavic(variants: Path | None = None) -> GestSlavicTask:
    """The task with the user's file of pairs, or the data folder's."""
    return GestSlavicTask(OwnSamples(samples=variants))
