"""Plain and prompted translations of a GEST-like data set, and gender pairs made from them (method.md §1.5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from evaluator.gender import GenderDetector
from evaluator.gender.variants import OPPOSITE, PairingResult, PlainTranslation, PromptStyle, build_pairs, prompt
from evaluator.gender.verdict import Gender

Translate = Callable[[Sequence[str], str], list[str]]
"""(texts, language) → translations."""
Lookup = Callable[[Sequence[str], str], Sequence[str | None]]
"""(texts, language) → translations, None for each that is missing."""


@dataclass(frozen=True, slots=True)
class SystemTranslations:
    """One system's translations to one language: (English, translation) of the distinct sentences, in order."""

    language: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PromptedSystem:
    """The system that translates prompts, and their style: `pronoun` (He/She said: published) or `noun` (The man/woman)."""

    system: str
    style: PromptStyle = "pronoun"


def translate_sentences(frame: pl.DataFrame, translate: Translate, language: str) -> SystemTranslations:
    """Translate the distinct sentences of the samples (column `sentence`)."""
    distinct = frame["sentence"].unique(maintain_order=True).to_list()
    return SystemTranslations(language, tuple(zip(distinct, translate(distinct, language), strict=True)))


def gender_pairs(
    frame: pl.DataFrame, plain: SystemTranslations, prompted: Lookup, detector: GenderDetector, target: PromptedSystem
) -> PairingResult:
    """Pairs for samples whose plain translation has a gender; only the prompt of the opposite gender is translated.

    `frame` has the columns `sentence` and `group` (the stereotype's number). DeepL's Czech prompts have no colon.
    """
    translations = dict(plain.pairs)
    sentences = frame["sentence"].to_list()
    verdicts = detector.detect([translations[s] for s in sentences])
    samples = [
        PlainTranslation(sentence, int(group), translations[sentence], verdict)
        for sentence, group, verdict in zip(sentences, frame["group"], verdicts, strict=True)
    ]
    colon = not (target.system == "deepl" and plain.language == "cs")
    prompts: dict[tuple[str, Gender], str] = {
        (sample.original, OPPOSITE[sample.verdict.gender]): prompt(
            sample.original, OPPOSITE[sample.verdict.gender], target.style, colon
        )
        for sample in samples
        if sample.verdict.gender != "unknown"
    }
    answers = prompted(list(prompts.values()), plain.language)
    opposite = {key: answer for key, answer in zip(prompts, answers, strict=True) if answer is not None}
    return build_pairs(samples, opposite, target.system, plain.language)
