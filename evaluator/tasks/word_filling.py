"""Word-filling measures with control groups (ss, cs, csk, f) and CrowS-Pairs' cs.

M. Pikuliak, I. Beňová, V. Bachratý: In-Depth Look at Word Filling Societal Bias Measures (EACL 2023), method.md §3. The
papers measure masked models; for generative models the scores are this project's extension, marked by their template:
L(s) is the log-probability of the keyword and what follows it, given what precedes it, and cs the difference of the shared
words' log-likelihoods, each given what precedes it, over the words behind the first difference (before it they cancel).

What is asked of a model is the same in both protocols; `--protocol published` draws the controls of the tasks
stereoset-race-control and stereoset-profession-control as the released code does. It does not follow that code's matcher of
shared tokens for cs, which pairs unlike tokens where words are swapped (at most 4 pairs of a data set) and masks wrong
pieces of SentencePiece tokenizers (28 of 990 sentences for XLM-R): there the numbers differ from the released code's. Nor does
it leave the space in front of a keyword (`▁`) unmasked, as that code does with SentencePiece (docs/method.md §7).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import polars as pl
from pydantic import AfterValidator, Field

from evaluator.datasets import crows, stereoset, word_filling
from evaluator.datasets.registry import locate
from evaluator.datasets.released_controls import released_controls
from evaluator.datasets.word_filling import plain, split_keyword
from evaluator.measures import word_filling as measures
from evaluator.measures.ordered import total
from evaluator.measures.sampled import Sampled
from evaluator.tasks import word_filling_notes as notes
from evaluator.tasks.base import PLACE, REQUESTED, Task, averaged, rendered, summed
from evaluator.tasks.parameters import REPORT, CommaList, LocalPath, Parameters
from evaluator.vocabulary import DataSource, Layout, MeasureOptions, Protocol_, Rendered, Samples
from evaluator_serving.requests import Continuation, Masked, Request, SharedTokens

MASKED = "masked"
CAUSAL = "causal (extension)"

Form = Literal["keyword", "sentences", "pairs"]
"""Quadruples with a keyword (ss, cs, csk, f), quadruples without one (cs), pairs without a control group (cs)."""

GROUPS = (("original", "s0", "s1"), ("control", "s2", "s3"))
"""A group's name and its sentences, stereotype first."""

TABLE: dict[str, pl.DataType] = {
    **REQUESTED,
    "role": pl.String(),
    "keyword": pl.String(),
    "original": pl.Int64(),
}
"""Columns of Rendered.table. `role`: `stereotype` and `anti` ask for L of a sentence with that keyword, `cs` for the shared
tokens of two sentences; with generative models `more` and `less` ask for one stretch of words of either sentence."""

_WORDS = re.compile(r"\s*(?:\w+|[^\w\s])")

COLUMNS: dict[str, pl.DataType] = {
    **dict.fromkeys(("ss", "cs", "csk", "f"), pl.Float64()),
    **dict.fromkeys(("stereotype", "anti"), pl.String()),
    **dict.fromkeys(("tokens_stereotype", "tokens_anti"), pl.Int64()),
    "kept": pl.Boolean(),
    "original": pl.Int64(),
}
"""Columns of per-sample scores besides SCORES, see `WordFilling.score`."""

PlannedRequest = tuple[str, str, str | None, Request]
"""group, role, keyword, request"""


def shared_stretches(first: str, second: str) -> Iterator[tuple[Continuation, Continuation]]:
    """The stretches of words that two sentences share, each as it continues either sentence.

    Words are aligned by longest matching blocks. A stretch with the same text before it in both sentences is left out, for
    it has the same probability in both.
    """
    words = _WORDS.findall(first), _WORDS.findall(second)
    for block in SequenceMatcher(None, *words, autojunk=False).get_matching_blocks():
        before = "".join(words[0][: block.a]), "".join(words[1][: block.b])
        stretch = "".join(words[0][block.a : block.a + block.size])
        if stretch and before[0] != before[1]:
            yield Continuation(before[0], (stretch,)), Continuation(before[1], (stretch,))


def _keyword(sentence: str, causal: bool) -> Request:
    before, keyword, after = split_keyword(sentence)
    if not causal:
        return Masked((before, after), ((keyword,),), "joint")
    context = before.rstrip()
    gap = before[len(context) :]
    return Continuation(context, (gap + keyword, gap + keyword + after))


def _comparison(group: str, first: str, second: str, causal: bool) -> Iterator[PlannedRequest]:
    if not causal:
        yield group, "cs", None, SharedTokens(first, second)
        return
    for more, less in shared_stretches(first, second):
        yield group, "more", None, more
        yield group, "less", None, less


def _known_types(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(crows.known_types(names))


class CrowsParameters(Parameters):
    """What a report of CrowS-Pairs can choose."""

    bias_types: Annotated[Annotated[CommaList, AfterValidator(_known_types)] | None, REPORT] = Field(
        default=None, description="only these bias types, comma-separated"
    )


class QuadruplesParameters(Parameters):
    """What a report of the tasks with control groups can choose."""

    word_counts: Annotated[LocalPath | None, REPORT] = Field(
        default=None, description="file of words and their corpus counts: adds rho_ss_frequency"
    )

    @cached_property
    def frequencies(self) -> pl.DataFrame | None:
        """Columns `word`, `count`. Raises InputError where the file is wrong."""
        return None if self.word_counts is None else word_filling.read_word_counts(self.word_counts)


@dataclass(frozen=True, slots=True)
class WordFilling(Task):
    """One data set of sentence quadruples or pairs, see `evaluator.tasks.base.Task`.

    Attributes:
        read: reads the data set's files.
        form: which scores can be had from it.
        reads: the data set's name.
        clustered: whether samples made of the same original pair come in numbers, so that they are resampled together.
    """

    methods: ClassVar[Sequence[str]] = ("word_filling",)
    skips_unscorable: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, pl.DataType]] = COLUMNS

    name: str = field()
    read: Callable[[DataSource], Samples] = field()
    form: Form = field()
    reads: Sequence[str] = ()
    language: str = "en"
    clustered: bool = False
    heads: frozenset[str] = frozenset({"masked", "causal"})

    @property
    def strata(self) -> tuple[str, ...]:
        """Bias types; or original pairs, one sample of each before a second one. A sample is always four (or two) sentences."""
        if self.form == "pairs":
            return ("bias_type",)
        return ("original",) if self.clustered else ()

    @property
    def about(self) -> str:
        """Its scores."""
        with_controls = "word filling with control groups"
        return {
            "keyword": f"{with_controls}: ss, cs, csk, f",
            "sentences": f"{with_controls}: cs",
            "pairs": "sentence pairs without a control group: cs",
        }[self.form]

    @property
    def measures(self) -> Sequence[str]:
        """All statistics that the form allows."""
        return notes.layout(self.form, MeasureOptions()).summary

    @property
    def parameters(self) -> Parameters:
        """Bias types of pairs, word counts of keywords."""
        own: dict[Form, type[Parameters]] = {
            "pairs": CrowsParameters,
            "keyword": QuadruplesParameters,
            "sentences": Parameters,
        }
        return own[self.form]()

    def load(self, data: DataSource) -> Samples:
        """Read the data set; what is dropped and what is wrong is in the samples."""
        return self.read(data)

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """Requests for masked models, or for generative ones where a model has no masked head. Protocols don't differ."""
        causal = "masked" not in heads
        template = CAUSAL if causal else MASKED
        asked = (
            (request, (sample["sample"], self.language, template, group), (role, keyword, sample.get("original")))
            for sample in samples.frame.iter_rows(named=True)
            for group, role, keyword, request in self._requests(sample, causal)
        )
        return rendered(asked, TABLE)

    def _requests(self, sample: Mapping[str, Any], causal: bool) -> Iterator[PlannedRequest]:
        if self.form == "pairs":
            yield from _comparison(sample["bias_type"], sample["s0"], sample["s2"], causal)
            return
        if self.form == "keyword":
            for group, *sentences in GROUPS:
                for role, name in zip(("stereotype", "anti"), sentences, strict=True):
                    keyword = split_keyword(sample[name])[1]
                    yield group, role, keyword, _keyword(sample[name], causal)
        # The comparisons run across the groups: s0 with s2 counts for the original group, s1 with s3 for the control.
        yield from _comparison("original", plain(sample["s0"]), plain(sample["s2"]), causal)
        yield from _comparison("control", plain(sample["s1"]), plain(sample["s3"]), causal)

    def candidates(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """Keywords (roles stereotype and anti-stereotype) and the tokens that two sentences share (roles more and less).

        ss is `value` of stereotype less that of anti-stereotype; cs the sum over a sample's rows `more` less that over `less`.
        Of a generative model there are also rows with the keyword alone, without a value.
        """
        joined = table.join(answers, on="request", how="inner", maintain_order="left")
        role, number = pl.col("role"), pl.col("candidate")
        keyword = role.is_in(["stereotype", "anti"])
        shared = pl.when(number == 0).then(pl.lit("more")).otherwise(pl.lit("less"))
        masked = pl.col("template") == MASKED
        mean = pl.when(keyword & masked).then(averaged(pl.col("logprobs")))
        value = mean.when(~keyword | (number == 1)).then(summed(pl.col("logprobs")))
        return joined.select(
            *PLACE,
            candidate="candidate",
            role=pl.when(role == "cs").then(shared).otherwise(role.replace("anti", "anti-stereotype")),
            prefix=pl.lit([], dtype=pl.List(pl.Int32)),
            tokens="tokens",
            logprob=pl.col("logprobs").list.sum(),
            value=value,
        )

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """One row per sample and group with `ss, cs, csk, f` (null if undefined or unanswered); `score` is ss, or cs if
        there is no keyword.

        Further columns: `stereotype, anti` (the keywords), `tokens_stereotype, tokens_anti` (their token counts),
        `kept` (false where the tokenizer filter k0 − k1 = k2 − k3 rejects the sample) and `original`.
        """
        answered = table.join(answers, on="request", how="left", maintain_order="left").with_columns(
            pl.col("tokens").list.len().cast(pl.Int64).alias("count"),
            pl.col("logprobs").list.sum().alias("sum"),
            pl.col("logprobs").list.mean().alias("mean"),
        )
        rows = answered.group_by("language", "template", "sample", "group", maintain_order=True).agg(
            pl.col("original").first(),
            *(expression for role in ("stereotype", "anti") for expression in _keyword_columns(role)),
            _cs().alias("cs"),
        )
        rows = rows.with_columns(ss=pl.col("L_stereotype") - pl.col("L_anti")).with_columns(
            csk=pl.when(pl.col("group") == "original")
            .then(_of("original", "L_stereotype") - _of("control", "L_stereotype"))
            .when(pl.col("group") == "control")
            .then(_of("original", "L_anti") - _of("control", "L_anti")),
            f=_of("original", "ss") - _of("control", "ss"),
            kept=(_excess("original") == _excess("control")).fill_null(True),
        )
        return rows.filter(pl.any_horizontal(pl.col("ss", "cs").is_not_null())).select(
            "language",
            "template",
            "sample",
            "group",
            pl.col("ss" if self.form == "keyword" else "cs").alias("score"),
            "ss",
            "cs",
            "csk",
            "f",
            "stereotype",
            "anti",
            "tokens_stereotype",
            "tokens_anti",
            "kept",
            "original",
        )

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One model's samples as sampling units, for every statistic of method.md §3 that the data set allows."""
        if self.form == "pairs":
            types = options.of(self.name, CrowsParameters).bias_types
            return measures.pairs(scores if types is None else scores.filter(pl.col("group").is_in(types)), options)
        counts = options.of(self.name, QuadruplesParameters).frequencies
        return measures.quadruples(scores, options, by_original=self.clustered, word_counts=counts)

    def with_summaries(self, rates: pl.DataFrame, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """How many quadruples the tokenizer filter keeps."""
        return rates if self.form == "pairs" else measures.with_kept(rates, scores)

    def layout(self, options: MeasureOptions) -> Layout:
        """How the report shows them."""
        return notes.layout(self.form, options)

    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]:
        """What a reader of the report must know before he trusts a number."""
        return notes.warnings(scores, self.measure(scores, options))


def _keyword_columns(role: str) -> list[pl.Expr]:
    """The keyword, its token count and L of the sentence with this role in a group of answers."""
    mine = pl.col("role") == role
    keyword, whole = mine & (pl.col("candidate") == 0), mine & (pl.col("candidate") == 1)
    masked = pl.col("template").first() == MASKED
    return [
        pl.col("keyword").filter(mine).first().alias(role),
        pl.col("count").filter(keyword).first().alias(f"tokens_{role}"),
        pl.when(masked)
        .then(pl.col("mean").filter(keyword).first())
        .otherwise(pl.col("sum").filter(whole).first())
        .alias(f"L_{role}"),
    ]


def _cs() -> pl.Expr:
    """Sum over shared tokens of log P in s_more − log P in s_less; null without a shared token or with one not answered."""
    plus = (pl.col("role") == "more") | ((pl.col("role") == "cs") & (pl.col("candidate") == 0))
    minus = (pl.col("role") == "less") | ((pl.col("role") == "cs") & (pl.col("candidate") == 1))
    asked = pl.col("role").is_in(["cs", "more", "less"])
    complete = pl.col("sum").filter(asked).is_not_null().all() & (pl.col("count").filter(plus).sum() > 0)
    return pl.when(complete).then(total(pl.col("sum").filter(plus)) - total(pl.col("sum").filter(minus)))


def _of(group: str, column: str) -> pl.Expr:
    """The value of a column in one group of the same sample."""
    value = pl.col(column).filter(pl.col("group") == group).first()
    return value.over("language", "template", "sample")


def _excess(group: str) -> pl.Expr:
    return _of(group, "tokens_stereotype") - _of(group, "tokens_anti")


# --- the tasks ---------------------------------------------------------------------------------------------------------


def _task(
    name: str, read: Callable[[Path], Samples], form: Form, *, language: str = "en", clustered: bool = False
) -> WordFilling:
    """The task that is called as its data set; of several files the first one is read."""
    return WordFilling(name, lambda data: read(_path(name, data)), form, (name,), language, clustered)


def _path(dataset: str, data: DataSource) -> Path:
    return next(iter(locate(dataset, data).values()))


stereoset_genderswap = partial(_task, "stereoset-genderswap", word_filling.read_quadruples, "keyword")
stereoset_genderswap_filtered = partial(_task, "stereoset-genderswap-filtered", word_filling.read_quadruples, "keyword")
slovak_gender = partial(_task, "slovak-gender", word_filling.read_slovak, "keyword", language="sk")
crows_negation = partial(_task, "crows-negation", crows.read_controls, "sentences", clustered=True)
crows_antistereotype = partial(_task, "crows-antistereotype", crows.read_controls, "sentences", clustered=True)
crows_pairs = partial(_task, "crows-pairs", crows.read_pairs, "pairs")
crows_revised = partial(_task, "crows-revised", crows.read_pairs, "pairs")


def _drawn(bias_type: str) -> WordFilling:
    def read(data: DataSource) -> Samples:
        draw = released_controls if data.protocol == "published" else word_filling.drawn_controls
        return draw(stereoset.read(_path("stereoset-en", data)), bias_type)

    return WordFilling(f"stereoset-{bias_type}-control", read, "keyword", ("stereoset-en",), clustered=True)


stereoset_race_control = partial(_drawn, "race")
stereoset_profession_control = partial(_drawn, "profession")
