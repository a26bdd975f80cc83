"""The default detector, which needs neither a parser nor a download."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evaluator.gender.rules.strategies import Strategy
from evaluator.gender.text import Sentence, first_sentence, normalize
from evaluator.gender.verdict import UNKNOWN, Verdict


class Normalizer(Protocol):
    def __call__(self, text: str, /) -> str: ...


@dataclass(frozen=True, slots=True)
class LanguageRules:
    """A language's rules. Strategies are applied in order; the first that finds a gender decides.

    clause_words: conjunctions that open a clause. idioms: fixed expressions with such a word, treated as one word.
    spelling: normalizers that are applied first (scripts).
    """

    code: str
    name: str
    clause_words: frozenset[str]
    strategies: tuple[Strategy, ...]
    idioms: tuple[str, ...] = ()
    spelling: tuple[Normalizer, ...] = ()

    def read(self, text: str) -> Sentence:
        """The first sentence of a text, normalized for the rules."""
        for spell in (normalize, *self.spelling, first_sentence):
            text = spell(text)
        for idiom in self.idioms:
            if idiom in text.lower():
                text = re.sub(rf"\b{idiom}\b", idiom.replace(" ", "-"), text, flags=re.IGNORECASE)
        return Sentence.read(text, self.clause_words)


@dataclass(frozen=True, slots=True)
class RulesDetector:
    """`GenderDetector` over one language's rules."""

    rules: LanguageRules

    @property
    def language(self) -> str:
        return self.rules.code

    def detect(self, texts: Sequence[str]) -> list[Verdict]:
        return [self._verdict(text) for text in texts]

    def _verdict(self, text: str) -> Verdict:
        sentence = self.rules.read(text)
        found = [(strategy, evidence) for strategy in self.rules.strategies for evidence in strategy.find(sentence)]
        if not found:
            return UNKNOWN
        strategy, first = found[0]
        conflict = any(evidence.gender != first.gender for _, evidence in found)
        return Verdict(first.gender, strategy.name, sentence.surface[first.position], conflict)
