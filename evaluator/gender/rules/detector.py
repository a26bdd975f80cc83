"""The default detector, which needs neither a parser nor a download."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluator.gender.rules import strategies
from evaluator.gender.rules.forms import items, language_file, read
from evaluator.gender.rules.strategies import Strategy
from evaluator.gender.text import Sentence, first_sentence, normalize, one_script, serbian_to_latin
from evaluator.gender.verdict import UNKNOWN, Verdict

SPELLINGS: dict[str, Callable[[str], str]] = {"one_script": one_script, "serbian_to_latin": serbian_to_latin}
"""What a language's file may name as its `spelling`."""


@dataclass(frozen=True, slots=True)
class RulesDetector:
    """`GenderDetector` over one language's rules: the first strategy that finds a gender decides.

    clause_words: conjunctions that open a clause. idioms: fixed expressions with such a word, treated as one word.
    spelling: what the text's script is converted with first.
    """

    language: str
    clause_words: frozenset[str]
    strategies: tuple[Strategy, ...]
    idioms: tuple[str, ...] = ()
    spelling: Callable[[str], str] = str

    @classmethod
    def of(cls, code: str) -> "RulesDetector":
        """The detector that a language's file describes."""
        content = language_file(code)
        return cls(
            code,
            frozenset(items(content["clause_words"])),
            tuple(read(getattr(strategies, rule["strategy"]), rule, content) for rule in content["rules"]),
            tuple(content.get("idioms", ())),
            SPELLINGS.get(content.get("spelling", ""), str),
        )

    def detect(self, texts: Sequence[str]) -> list[Verdict]:
        return [self._verdict(text) for text in texts]

    def _verdict(self, text: str) -> Verdict:
        sentence = self._sentence(text)
        found = [(strategy, evidence) for strategy in self.strategies for evidence in strategy.find(sentence)]
        if not found:
            return UNKNOWN
        strategy, first = found[0]
        conflict = any(evidence.gender != first.gender for _, evidence in found)
        return Verdict(first.gender, strategy.name, sentence.surface[first.position], conflict)

    def _sentence(self, text: str) -> Sentence:
        """The first sentence of a text, normalized for the rules."""
        text = first_sentence(self.spelling(normalize(text)))
        for idiom in self.idioms:
            if idiom in text.lower():
                text = re.sub(rf"\b{idiom}\b", idiom.replace(" ", "-"), text, flags=re.IGNORECASE)
        return Sentence.read(text, self.clause_words)
