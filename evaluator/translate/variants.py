"""Translations of a GEST-like data set, plain and prompted, and the gender pairs made of them (method.md §1.5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from evaluator.gender import GenderDetector
from evaluator.gender.variants import OPPOSITE, Built, PlainTranslation, PromptStyle, build_pairs, prompt
from evaluator.gender.verdict import Gender

Translate = Callable[[Sequence[str], str], list[str]]
"""Texts and a language to the texts in that language."""
Find = Callable[[Sequence[str], str], Sequence[str | None]]
"""The same, with None where there is no translation."""


@dataclass(frozen=True, slots=True)
class SystemTranslations:
    """One system's translations to one language: (English, translation) of the distinct sentences, in order."""

    language: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PromptedSystem:
    """Whom the prompts are put to, and how: He/She said (`pronoun`, as published) or The man/The woman said (`noun`)."""

    system: str
    style: PromptStyle = "pronoun"


def translate_sentences(frame: pl.DataFrame, translate: Translate, language: str) -> SystemTranslations:
    """Translate the distinct sentences of the samples (column `sentence`)."""
    distinct = frame["sentence"].unique(maintain_order=True).to_list()
    return SystemTranslations(language, tuple(zip(distinct, translate(distinct, language), strict=True)))


def gender_pairs(
    frame: pl.DataFrame, plain: SystemTranslations, prompted: Find, detector: GenderDetector, asked: PromptedSystem
) -> Built:
    """Pairs of the samples whose plain translation has a gender: only the opposite gender's prompt is translated.

    `frame` has the columns `sentence` and `group` (the stereotype's number). DeepL to Czech is asked without a colon.
    """
    translations = dict(plain.pairs)
    sentences = frame["sentence"].to_list()
    verdicts = detector.detect([translations[s] for s in sentences])
    samples = [
        PlainTranslation(sentence, int(group), translations[sentence], verdict)
        for sentence, group, verdict in zip(sentences, frame["group"], verdicts, strict=True)
    ]
    colon = not (asked.system == "deepl" and plain.language == "cs")
    wanted: dict[tuple[str, Gender], str] = {
        (sample.original, OPPOSITE[sample.verdict.gender]): prompt(
            sample.original, OPPOSITE[sample.verdict.gender], asked.style, colon
        )
        for sample in samples
        if sample.verdict.gender != "unknown"
    }
    answers = prompted(list(wanted.values()), plain.language)
    found = {key: answer for key, answer in zip(wanted, answers, strict=True) if answer is not None}
    return build_pairs(samples, found, asked.system, plain.language)
