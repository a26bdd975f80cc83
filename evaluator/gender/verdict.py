"""What a gender detector is, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Gender = Literal["masculine", "feminine"]
GenderOrUnknown = Literal["masculine", "feminine", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grammatical gender of a text's first person, and what gave it away.

    gender: masculine, feminine or unknown.
    rule: name of the rule that answered; empty when none did.
    word: the word that the rule read, as in the text (Serbian in the Latin script); empty when no rule answered.
    conflict: the rules together found both genders (`gender` is then what the first of them said).
    """

    gender: GenderOrUnknown
    rule: str = ""
    word: str = ""
    conflict: bool = False


UNKNOWN = Verdict("unknown")


class GenderDetector(Protocol):
    """Decides the gender of the first person of texts in one language: batch in, batch out, same order."""

    @property
    def language(self) -> str:
        """Two-letter code of the language whose texts it reads."""
        ...

    def detect(self, texts: Sequence[str]) -> list[Verdict]:
        """One verdict a text. An empty text is unknown."""
        ...
