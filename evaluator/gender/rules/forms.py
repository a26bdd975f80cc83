"""Word lists and endings for the language modules."""

from dataclasses import dataclass, field

from evaluator.gender.verdict import Gender


def words(*lines: str) -> frozenset[str]:
    """A set of words from text."""
    return frozenset(word for line in lines for word in line.split())


def endings(line: str) -> tuple[str, ...]:
    """Endings from text, with optional hyphens: "-ený -aný"."""
    return tuple(ending.removeprefix("-") for ending in line.split())


@dataclass(frozen=True, slots=True)
class WordKind:
    """A class of words: `words`, and words with one of `endings` that are not in `lookalikes`."""

    words: frozenset[str] = frozenset()
    endings: tuple[str, ...] = ()
    lookalikes: frozenset[str] = frozenset()

    def matches(self, word: str) -> bool:
        return word in self.words or (word.endswith(self.endings) and word not in self.lookalikes)


@dataclass(frozen=True, slots=True)
class Forms:
    """A class of words whose form shows gender: whole words first, then endings.

    masculine, feminine: endings; masculine_words, feminine_words: words without these endings.
    lookalikes, lookalike_endings: other words with these endings (nouns, adverbs, other persons).
    """

    masculine: tuple[str, ...] = ()
    feminine: tuple[str, ...] = ()
    masculine_words: frozenset[str] = frozenset()
    feminine_words: frozenset[str] = frozenset()
    lookalikes: frozenset[str] = frozenset()
    lookalike_endings: tuple[str, ...] = ()
    _cache: dict[str, Gender | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def gender(self, word: str) -> Gender | None:
        """The gender of a lower-case word, None if its form shows none."""
        if word in self._cache:
            return self._cache[word]
        gender = self._cache[word] = self._look_up(word)
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
