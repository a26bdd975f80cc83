"""The interface of parsers and parses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class UdToken:
    """A syntactic word of a sentence (multiword tokens are given as their words).

    id: 1, 2, … in the sentence; head: id of the word that it depends on, 0 for the root.
    upos, deprel: as in Universal Dependencies; feats: `Case=Nom|Gender=Fem`, empty where there are none.
    """

    id: int
    text: str
    upos: str
    head: int
    deprel: str
    feats: str = ""

    def feature(self, name: str) -> str:
        """The value of a morphological feature, empty if the word does not have it."""
        for pair in self.feats.split("|"):
            key, _, value = pair.partition("=")
            if key == name:
                return value
        return ""


UdSentence = tuple[UdToken, ...]
Parse = tuple[UdSentence, ...]
"""The sentences of one text; none for a blank text."""


class Parser(Protocol):
    """Parses batches of texts of one language into Universal Dependencies, in order."""

    def fingerprint(self, language: str) -> str:
        """Names the parser and its model for a language: parses of the same text by equal fingerprints are equal.

        Raises InputError where the model is missing.
        """
        ...

    def parse(self, texts: Sequence[str], language: str) -> list[Parse]:
        """One parse per text; `language` is a two-letter code."""
        ...
