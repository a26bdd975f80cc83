"""The interface of gender detectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Gender = Literal["masculine", "feminine"]
GenderOrUnknown = Literal["masculine", "feminine", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grammatical gender of a text's first person, with the evidence.

    gender: masculine, feminine or unknown.
    rule: name of the rule that decided; empty if there is none.
    word: the word that shows the gender, as in the text (Serbian in the Latin script); empty if there is none.
    conflict: the rules found both genders (`gender` is that of the first rule).
    """

    gender: GenderOrUnknown
    rule: str = ""
    word: str = ""
    conflict: bool = False


UNKNOWN = Verdict("unknown")


class GenderDetector(Protocol):
    """Finds the gender of the first person in batches of texts of one language, in order."""

    @property
    def language(self) -> str:
        """Two-letter language code."""
        ...

    def detect(self, texts: Sequence[str]) -> list[Verdict]:
        """One verdict per text. An empty text is unknown."""
        ...
