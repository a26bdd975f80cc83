"""Word lists and endings: how the language modules write down what they know."""

from dataclasses import dataclass, field

from evaluator.gender.verdict import Gender


def words(*lines: str) -> frozenset[str]:
    """A word list written as text."""
    return frozenset(word for line in lines for word in line.split())


def endings(line: str) -> tuple[str, ...]:
    """Endings written as text, hyphens for the eye only: "-ený -aný"."""
    return tuple(ending.removeprefix("-") for ending in line.split())


@dataclass(frozen=True, slots=True)
class WordKind:
    """A kind of word: `words` by name and whatever has one of `endings`, but none of `lookalikes`."""

    words: frozenset[str] = frozenset()
    endings: tuple[str, ...] = ()
    lookalikes: frozenset[str] = frozenset()

    def matches(self, word: str) -> bool:
        return word in self.words or (word.endswith(self.endings) and word not in self.lookalikes)


@dataclass(frozen=True, slots=True)
class Forms:
    """A kind of word whose form shows gender: whole words first, then endings.

    masculine, feminine: endings; masculine_words, feminine_words: what they miss.
    lookalikes, lookalike_endings: what has such an ending but is something else (nouns, adverbs, other persons).
    """

    masculine: tuple[str, ...] = ()
    feminine: tuple[str, ...] = ()
    masculine_words: frozenset[str] = frozenset()
    feminine_words: frozenset[str] = frozenset()
    lookalikes: frozenset[str] = frozenset()
    lookalike_endings: tuple[str, ...] = ()
    _known: dict[str, Gender | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def gender(self, word: str) -> Gender | None:
        """The gender that a lower-case word shows, or None."""
        if word in self._known:
            return self._known[word]
        gender = self._known[word] = self._look_up(word)
        return gender

    def _look_up(self, word: str) -> Gender | None:
        if word in self.masculine_words:
            return "masculine"
        if word in self.feminine_words:
            return "feminine"
        if word in self.lookalikes or word.endswith(self.lookalike_endings):
            return None
        if word.endswith(self.feminine):
            return "feminine"
        if word.endswith(self.masculine):
            return "masculine"
        return None
