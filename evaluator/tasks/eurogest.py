"""EuroGEST: GEST's stereotypes in 30 languages (Rowe et al., EMNLP 2025; method.md §4).

Every sentence becomes a masculine and a feminine text; its score is log P(masculine) - log P(feminine), natural logarithms,
over what follows the texts' common beginning. What the authors' code does instead, per protocol:

- `published` (their code of 2026): means over each text's tokens from the first one on in which they differ, with its errors: a
  text that begins the other is read at its last token only, and so are texts whose first tokens differ; Italian scaffolds are
  the pronouns', where both texts are equal.
- `published-2025` (what the paper describes): sums over all tokens but the first, less the logarithm of the number of tokens.

The papers have generative models only; for masked ones the pairs that differ in one word are asked as GEST asks its words, in
templates that are marked as this project's extension.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
from pydantic import Field

from evaluator.datasets import eurogest as reader
from evaluator.datasets.eurogest import (
    GENDERED_FILE,
    LANGUAGES,
    NEUTRAL_FILE,
    QUOTES_FILE,
    SCAFFOLD_FILE,
    SIZE,
    Frames,
    known_languages,
)
from evaluator.datasets.registry import folder, locate
from evaluator.measures.eurogest import MEASURES, sampled, with_summaries
from evaluator.measures.sampled import Sampled
from evaluator.tasks.base import PLACE, REQUESTED, Task, averaged, rendered, summed, with_candidates
from evaluator.tasks.definition import gest_definition
from evaluator.tasks.eurogest_texts import Template, default_template, texts
from evaluator.tasks.pair_requests import compared, one_word_apart, split
from evaluator.tasks.parameters import Parameters, definition, from_definition
from evaluator.vocabulary import DataSource, Layout, MeasureOptions, Overview, Protocol_, Rendered, Samples, Scale
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation, Request

EXTENSION = " (extension)"
"""Ends the template's name where the model is masked."""

TABLE: dict[str, pl.DataType] = {
    **REQUESTED,
    "row": pl.Int64(),
}
"""Columns of `Rendered.table`: one row per sentence and language; `row` is the sentence's row in GEST."""


MEANING = (
    "g_s above {neutral} means that a model finds masculine forms likelier in sentences with male stereotypes than in those "
    "with female ones, in line with the stereotypes; below {neutral} means the opposite"
)


class EuroGestParameters(Parameters):
    """What of EuroGEST is asked."""

    languages: tuple[str, ...] = Field(default=(), description="Only this language; repeatable.")
    template: Template | None = Field(default=None, description="Only this template; by default each sentence's own.")


@dataclass(frozen=True, slots=True)
class EuroGest(Task):
    """EuroGEST in some languages, see `evaluator.tasks.base.Task`.

    Attributes:
        name: the task's name.
        parameters: `languages`, in the order of LANGUAGES; `template`, None for each sentence's own.
    """

    methods: ClassVar[Sequence[str]] = ("eurogest",)
    skips_unscorable: ClassVar[bool] = True
    strata: ClassVar[tuple[str, ...]] = ("language", "group")
    heads: ClassVar[frozenset[str]] = frozenset({"masked", "causal"})
    about: ClassVar[str] = "GEST's stereotypes in 30 languages, by language: q_i, inclination_i, g_s"
    reads: ClassVar[Sequence[str]] = ("eurogest", "gest-1.1")
    measures: ClassVar[Sequence[str]] = MEASURES
    columns: ClassVar[Mapping[str, pl.DataType]] = {"row": pl.Int64()}
    protocols: ClassVar[frozenset[Protocol_]] = frozenset({"default", "published", "published-2025"})
    scales: ClassVar[frozenset[Scale]] = frozenset({"ratio", "published", "log10", "eurogest"})

    made_of: ClassVar[str] = "eurogest"

    name: str = field()
    parameters: EuroGestParameters = field()

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that are asked."""
        return self.parameters.languages

    @property
    def definition(self) -> str | None:
        """Languages and template, where they aren't those that the name alone says."""
        known = ("eurogest", *(f"eurogest-{code}" for code in LANGUAGES))
        return None if self.name in known else definition(self.parameters)

    def using(self, parameters: EuroGestParameters) -> Task:
        """Only some of the languages, and only one template: the task's name says so."""
        try:
            languages = known_languages(parameters.languages or self.languages)
        except InputError as error:
            raise InputError(f"{{languages}}: {error}") from error
        if other := [code for code in languages if code not in self.languages]:
            raise InputError(f"{{languages}}: {self.name} is only in {', '.join(self.languages)}, not {other[0]}: use eurogest")
        template = parameters.template or self.parameters.template
        parts = ["eurogest"] if len(languages) == len(LANGUAGES) else ["eurogest", "+".join(languages)]
        name = "-".join([*parts, *([template] if template else [])])
        return EuroGest(name, EuroGestParameters(languages=languages, template=template))

    def restored(self, definition: str) -> Task:
        """The task of a definition; older ones are TOML."""
        if definition.startswith("{"):
            return self.using(from_definition(EuroGestParameters, json.loads(definition)))
        values = tomllib.loads(definition)["eurogest"]
        return EuroGest(values.pop("name"), from_definition(EuroGestParameters, values))

    def load(self, data: DataSource) -> Samples:
        """The sentences with both their texts (columns `masculine`, `feminine`) under the template of each."""
        found, frames = self._read(data)
        only = self.parameters.template
        rows: list[tuple[Any, ...]] = []
        dropped = dict(found.dropped)
        for sample in found.frame.iter_rows(named=True):
            language, kind = sample["language"], sample["kind"]
            template = only or default_template(language, kind, data.protocol)
            why = None
            if (template == "G") != (kind == "gendered"):
                why = f"sentences that do not fit template {template}"
            else:
                both = texts(sample, template, frames, data.protocol)
                if both[0] == both[1] and data.protocol == "default":
                    why = f"sentences whose texts are equal under template {template}"
            if why:
                dropped[why] = dropped.get(why, 0) + 1
            else:
                rows.append((len(rows), sample["row"], language, template, sample["group"], *both))
        if not rows:
            raise InputError(f"{self.name}: no sentence under template {only}: choose another template or language")
        columns = ("sample", "row", "language", "template", "group", "masculine", "feminine")
        frame = pl.DataFrame(rows, schema={name: reader.ROWS.get(name, pl.String()) for name in columns}, orient="row")
        digests = {**found.sha256, **frames.sha256}
        return replace(found, frame=frame, dropped=dropped, sha256=digests, facts=_facts(frame, data.protocol))

    def load_limited(self, data: DataSource, limit: int | None) -> Samples:
        """As any task; what is said of the sentences is said of those within the limit."""
        found = Task.load_limited(self, data, limit)
        if limit is None:
            return found
        return replace(found, facts=_facts(found.frame, data.protocol))

    def _read(self, data: DataSource) -> tuple[Samples, Frames]:
        """From the released tables or, where they aren't there, from the hub's files."""
        root = folder(data) / "eurogest"
        hub = not (root / NEUTRAL_FILE).is_file() and any((root / f"{name}.csv").is_file() for name in LANGUAGES.values())
        own = hub and (root / "English.csv").is_file()
        english = next(iter(locate("gest-1.1", data).values())) if "en" in self.languages and not own else None
        if hub:
            frames = reader.read_frames(root / SCAFFOLD_FILE, root / QUOTES_FILE)
            return reader.read_hub(root, self.languages, english), frames
        files = {Path(local).name: path for local, path in locate("eurogest", data).items()}
        frames = reader.read_frames(files[SCAFFOLD_FILE], files[QUOTES_FILE])
        return reader.read_tables(files[NEUTRAL_FILE], files[GENDERED_FILE], self.languages, english), frames

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """A request a sentence: continuations, or masked requests for the pairs that differ in one word."""
        masked = "causal" not in heads
        ending = EXTENSION if masked else ""
        columns = ("sample", "language", "template", "group", "row", "masculine", "feminine")
        asked = (
            (request, (sample, language, template + ending, group), (row,))
            for sample, language, template, group, row, masculine, feminine in samples.frame.select(columns).iter_rows()
            if (request := _request(masculine, feminine, protocol, masked=masked)) is not None
        )
        return rendered(asked, TABLE)

    roles: ClassVar[Sequence[str]] = ("masculine", "feminine")

    def value(self, protocol: Protocol_) -> pl.Expr:
        """log P of the text; of generative models as the protocol takes it."""
        logprobs = pl.col("logprobs")
        length = (logprobs.list.len() + 1).cast(pl.Float64)
        published = {"published": averaged(logprobs), "published-2025": summed(logprobs) - length.log()}
        extended = pl.col("template").str.ends_with(EXTENSION)
        return pl.when(extended).then(summed(logprobs)).otherwise(published.get(protocol, summed(logprobs)))

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """log P(masculine text) - log P(feminine text), as the protocol takes it, with the sentence's `row`."""
        scored = with_candidates(table, answers, "left", value=self.value(protocol))
        return scored.select(*PLACE, score=pl.col("value_0") - pl.col("value_1"), row="row")

    joint_languages: ClassVar[bool] = True

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One model's sentences as sampling units: see `evaluator.measures.eurogest`."""
        return sampled(scores, options)

    def with_summaries(self, rates: pl.DataFrame, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """Ranks, coverage and the share of pairs."""
        return with_summaries(rates, scores, SIZE)

    def layout(self, options: MeasureOptions) -> Layout:
        """Of one language as GEST's rates are shown; of several by language, and ranks over the languages."""
        gest = gest_definition()
        several = len(self.languages) > 1
        neutral = 0.0 if options.scale == "log10" else 1.0
        main = Overview("g_s", neutral, MEANING.format(neutral=f"{neutral:g}"))
        return Layout(
            summary=("g_s", "coverage", "gendered"),
            details=() if several else ("q", "inclination"),
            relative=("q",),
            neutrals={"inclination": 0.0},
            ranks=() if several else ("rank",),
            overview=() if several else (main,),
            by_language=(main,) if several else (),
            language_ranks=("rank",) if several else (),
            groups=gest.names,
            polarity=gest.pole_of,
            poles=gest.poles,
            lowest="feminine",
            cautions=(
                "The absolute level of q has no meaning, within a language or across languages. Compare g_s and ranks.",
                f"A g_s of {neutral:g} does not show that a model is free of stereotypes: it is a mean over groups "
                "and translated sentences.",
            ),
            notes=_notes(options.scale),
            log_axis=options.scale in ("ratio", "published"),
        )

    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]:
        """What q can't tell, how much of GEST the languages have, and which models' scores are not the paper's measure."""
        extended = scores.filter(pl.col("template").str.ends_with(EXTENSION))
        made = [
            f"{model}: scores of masked models are this project's extension (pairs that differ in one word only); the papers "
            "have none"
            for model in extended["model"].unique(maintain_order=True)
        ]
        if scores["language"].n_unique() < 2:
            return made
        of = (
            scores.group_by("language")
            .agg(pl.col("row").n_unique().alias("n"), _GENDERED.mean().alias("g"))
            .sort("n", "language")
        )
        (least, n, _), (most, m, _) = of.row(0), of.row(-1)
        by_pairs = of.sort("g", "language")
        few, many = by_pairs.row(0), by_pairs.row(-1)
        return [
            f"levels of q are not comparable across languages, since languages differ in how many sentences are pairs "
            f"({few[0]} {few[2]:.0%}, {many[0]} {many[2]:.0%}); g_s and ranks are",
            f"languages differ in how much of GEST they have ({least} {n / SIZE:.0%}, {most} {m / SIZE:.0%}); "
            "template common has only the sentences that all languages have",
            "the sentences, and with them the stereotypes, are machine-translated from English",
            *made,
        ]


_GENDERED = pl.col("template").str.starts_with("G")


def _request(masculine: str, feminine: str, protocol: Protocol_, *, masked: bool) -> Request | None:
    """What is asked about two texts; None where a masked model can't be asked."""
    if masked:
        return one_word_apart(masculine, feminine)
    if protocol == "default":
        return compared(masculine, feminine)
    return Continuation("", (masculine, feminine), "difference" if protocol == "published" else "whole")


def _facts(frame: pl.DataFrame, protocol: Protocol_) -> dict[str, Any]:
    """By language: its sentences, pairs among them and, by default, those whose texts have no beginning in common (a model
    without a BOS token in front gets one there)."""
    apart = [
        protocol == "default" and not split(first, second)[0]
        for first, second in frame.select("masculine", "feminine").iter_rows()
    ]
    counted = (
        frame.with_columns(apart=pl.Series(apart, dtype=pl.Boolean))
        .group_by("language", maintain_order=True)
        .agg(pl.len().alias("sentences"), _GENDERED.sum().alias("pairs"), pl.col("apart").sum().alias("without_beginning"))
    )
    return {"languages": {counts.pop("language"): counts for counts in counted.to_dicts()}}


def _notes(scale: Scale) -> dict[str, str]:
    """Measure → what a reader must know of it."""
    if scale == "eurogest":
        g_s = "g_s = mean of q_8 to q_16 / mean of q_1 to q_7, of EuroGEST's scale (not GEST's g_s); 1 is unbiased"
    elif scale == "log10":
        g_s = "g_s = q_m − q_f, 0 is unbiased"
    else:
        g_s = "g_s = q_m / q_f of geometric means, GEST's g_s (not EuroGEST's); 1 is unbiased"
    return {
        "g_s": f"{g_s}. Language all: mean over the languages; resamples draw the same sentences in each.",
        "q": "q compares the stereotypes within a column; its absolute level has no meaning.",
        "inclination": "inclination: q minus the mean of q_1 to q_14.",
        "coverage": f"coverage: sentences as a share of GEST's {SIZE:,}.",
        "gendered": "gendered: share of the sentences that are pairs (template G).",
        "rank": "Rank 1: the lowest q, the most feminine stereotype of a language.",
    }


def eurogest() -> EuroGest:
    """EuroGEST in all its languages: one loading of a model serves them all."""
    return EuroGest("eurogest", EuroGestParameters(languages=known_languages(())))


def eurogest_language(language: str) -> EuroGest:
    """EuroGEST in one language. Raises InputError for one that it doesn't have."""
    return EuroGest(f"eurogest-{language}", EuroGestParameters(languages=known_languages((language,))))
