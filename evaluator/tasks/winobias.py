"""WinoBias: which gender's pronouns a model prefers for male and for female occupations (method.md §1.6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from evaluator.datasets import winobias as reader
from evaluator.datasets.registry import locate
from evaluator.measures.sampled import Sampled
from evaluator.measures.winobias import MEASURES, sampled
from evaluator.tasks.base import Task, rendered
from evaluator.tasks.few import few_samples
from evaluator.vocabulary import DataSource, Layout, MeasureOptions, Overview, Protocol_, Rendered, Samples
from evaluator_serving.requests import Continuation, Masked

EXTENSION = " (extension)"
"""Ends the template's name where the model is generative: the papers have masked models only."""

MEANING = (
    "g_hat_s above {neutral} means that a model finds masculine pronouns likelier for occupations held mostly by men than for "
    "those held mostly by women; below {neutral} means the opposite"
)


def _join(parts: list[str], words: list[str]) -> str:
    return parts[0] + "".join(word + part for word, part in zip(words, parts[1:], strict=True))


def _pronouns_only(sample: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Parts and words of a sample with differing words that aren't pronouns (noise) made part of the text."""
    parts, male, female = [sample["parts"][0]], [], []
    for part, m, f in zip(sample["parts"][1:], sample["male"], sample["female"], strict=True):
        if (m.casefold(), f.casefold()) in reader.PRONOUNS:
            male.append(m)
            female.append(f)
            parts.append(part)
        else:
            parts[-1] += m + part
    return parts, male, female


@dataclass(frozen=True, slots=True)
class WinoBias(Task):
    """See `evaluator.tasks.base.Task`. Template is the split, group the stereotypical gender of the occupation."""

    methods: ClassVar[Sequence[str]] = ("winobias", "gest")
    about: ClassVar[str] = "which gender's pronouns a model prefers for male and female occupations: q_hat_m, q_hat_f, g_hat_s"
    reads: ClassVar[Sequence[str]] = ("winobias",)
    measures: ClassVar[Sequence[str]] = MEASURES
    skips_unscorable: ClassVar[bool] = True
    strata: ClassVar[tuple[str, ...]] = ("split", "gender", "occupation")

    name: str = "winobias"
    heads: frozenset[str] = frozenset({"masked", "causal"})

    def load(self, data: DataSource) -> Samples:
        """Read the four splits through the noise filter."""
        return reader.read(next(iter(locate("winobias", data).values())).parent)

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """Masked models: every differing pronoun is a slot. Generative ones: both versions from the first one on.

        `default` asks for the pronouns' joint log-probability, `published` masks every position in which the two versions
        differ at once, noise included, as the released code does.
        """
        causal = "masked" not in heads
        ending = EXTENSION if causal else ""
        return rendered(
            (
                _continuation(sample) if causal else _masked(sample, protocol),
                (sample["sample"], "en", sample["split"] + ending, sample["gender"]),
                (),
            )
            for sample in samples.frame.iter_rows(named=True)
        )

    roles: ClassVar[Sequence[str]] = ("male", "female")

    def value(self, protocol: Protocol_) -> pl.Expr:
        """The sum over the pronouns' tokens; published (masked models) their mean."""
        published = (protocol == "published") & ~pl.col("template").str.ends_with(EXTENSION)
        return pl.when(published).then(pl.col("logprobs").list.mean()).otherwise(pl.col("logprobs").list.sum())

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One model's sentences as sampling units, split by split."""
        return sampled(scores, options.scale)

    def layout(self, options: MeasureOptions) -> Layout:
        """How the report shows them: the three rates in one row a split."""
        log = options.scale == "log10"
        neutral = 0.0 if log else 1.0
        formula = "g_hat_s = q_hat_m − q_hat_f, 0 is unbiased" if log else "g_hat_s = q_hat_m / q_hat_f, 1 is unbiased"
        return Layout(
            summary=MEASURES,
            overview=(Overview("g_hat_s", neutral, MEANING.format(neutral=f"{neutral:g}")),),
            cautions=(
                "This validates other measures against one country's occupation statistics. It does not measure how "
                "well a model resolves pronouns.",
            ),
            notes={
                "q_hat_m": "q_hat_m, q_hat_f: how much likelier masculine pronouns are than feminine ones for occupations that "
                "are stereotypically male, and female.",
                "g_hat_s": f"{formula}.",
            },
            log_axis=not log,
        )

    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]:
        """Which models' scores are not the papers' measure, and which rates rest on few samples."""
        extended = scores.filter(pl.col("template").str.ends_with(EXTENSION))
        counts = scores.group_by("model", "template", "group").len().group_by("template", "group").agg(pl.col("len").min())
        named = [(f"{template} {group}", n) for template, group, n in counts.sort("template", "group").iter_rows()]
        return [
            *(
                f"{model}: scores of generative models are this project's extension; the papers have none"
                for model in extended["model"].unique(maintain_order=True)
            ),
            *few_samples(named, "splits' genders"),
        ]


def _masked(sample: Mapping[str, Any], protocol: Protocol_) -> Masked:
    if protocol == "published":
        parts, male, female = sample["parts"], sample["male"], sample["female"]
        return Masked(tuple(parts), (tuple(male), tuple(female)), "positional")
    parts, male, female = _pronouns_only(sample)
    return Masked(tuple(parts), (tuple(male), tuple(female)), "sequential")


def _continuation(sample: Mapping[str, Any]) -> Continuation:
    parts, male, female = _pronouns_only(sample)
    context = parts[0].rstrip()
    gap = parts[0][len(context) :]
    return Continuation(context, (_join([gap, *parts[1:]], male), _join([gap, *parts[1:]], female)))
