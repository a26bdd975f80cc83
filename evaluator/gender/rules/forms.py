"""Word lists and endings, and how they are read from a language's file (`languages/CODE.toml`)."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from evaluator.gender.verdict import Gender

FOLDER = Path(__file__).with_name("languages")

T = TypeVar("T")


@cache
def language_file(code: str) -> dict[str, Any]:
    """The content of a language's file; of a language that is `like` another one, that one's."""
    content = tomllib.loads((FOLDER / f"{code}.toml").read_text("utf8"))
    return language_file(content["like"]) if "like" in content else content


def read(kind: type[T], entry: Mapping[str, Any], shared: Mapping[str, Any]) -> T:
    """An instance of a dataclass of words.

    `shared` has the word classes that `entry` names, and the fields without a default that it lacks.
    """
    hints = get_type_hints(kind)
    values = {}
    for each in fields(kind):  # type: ignore[arg-type]
        required = each.default is MISSING and each.default_factory is MISSING
        value = entry.get(each.name, shared.get(each.name) if required else None)
        if value is not None:
            values[each.name] = _value(hints[each.name], value, shared)
    return kind(**values)


def items(text: str | list[str]) -> list[str]:
    """The words or endings of a text, or of its lines."""
    return (text if isinstance(text, str) else " ".join(text)).split()


def _value(kind: Any, value: Any, shared: Mapping[str, Any]) -> Any:
    if kind is str:
        return value
    if kind == frozenset[str]:
        return frozenset(items(value))
    if kind == tuple[str, ...]:
        return tuple(item.removeprefix("-") for item in items(value))
    return read(kind, shared[value] if isinstance(value, str) else value, {})


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
