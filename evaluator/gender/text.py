"""Preprocessing for the rules: normalization, first sentence, words and clauses."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

# Letters that look the same in both scripts; translators mix them inside one word.
_LATIN_TO_CYRILLIC = str.maketrans("aceiopxyABCEHIKMOPTX", "асеіорхуАВСЕНІКМОРТХ")

_SERBIAN = {
    **dict(zip("абвгдђежзијклмнопрстћуфхцчш", "abvgdđežzijklmnoprstćufhcčš", strict=True)),
    "љ": "lj",
    "њ": "nj",
    "џ": "dž",
}
_SERBIAN_TO_LATIN = str.maketrans(
    {**_SERBIAN, **{cyrillic.upper(): latin.capitalize() for cyrillic, latin in _SERBIAN.items()}}
)

_TOKEN = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*|\d+|[^\w\s]")
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff\u0300\u0301]")
_APOSTROPHES = re.compile("[\u2018\u2019\u02bc\u02b9`´]")
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_MIXED = re.compile("[\u0400-\u04ff][A-Za-z]|[A-Za-z][\u0400-\u04ff]")

# A sentence ends at . ! ? … (and closing quotes) before spaces and a capital letter (and opening quotes).
_SENTENCE_END = re.compile(r"""(?P<mark>[.!?…]+)["'”“»)\]]*\s+(?=["'„“«»(–—-]*\s*(?P<next>[^\W\d_]))""")


def normalize(text: str) -> str:
    """Composed Unicode, one kind of apostrophe, no invisible characters and no stress marks."""
    composed = _INVISIBLE.sub("", unicodedata.normalize("NFC", text))
    return _APOSTROPHES.sub("'", composed)


def serbian_to_latin(text: str) -> str:
    """Convert Serbian Cyrillic letters to Latin; other characters are unchanged, so a text may mix both scripts."""
    return text.translate(_SERBIAN_TO_LATIN)


def one_script(text: str) -> str:
    """Convert Latin look-alikes in words with a Cyrillic letter to Cyrillic."""
    if not _MIXED.search(text):
        return text
    return _WORD.sub(lambda word: word[0].translate(_LATIN_TO_CYRILLIC) if _CYRILLIC.search(word[0]) else word[0], text)


def first_sentence(text: str) -> str:
    """The first sentence of a text, as in the published pipeline.

    A full stop after a number or a single letter does not end a sentence: "5. května", "J. Novák".
    """
    for end in _SENTENCE_END.finditer(text):
        before = text[: end.start()].rsplit(maxsplit=1)
        last = before[-1].strip("\"'„“«»()") if before else ""
        if not end["next"].isupper():
            continue
        if end["mark"] == "." and (last.isdigit() or len(last) == 1):
            continue
        if last:
            return text[: end.end()].rstrip()
    return text


@dataclass(frozen=True, slots=True)
class Sentence:
    """Tokens of a sentence: `surface` as written, `words` in lower case; punctuation marks are separate tokens.

    Clauses end at punctuation and conjunctions. Rules do not cross clauses, except over conjunctions that they name as bridges.
    starts, ends: for each token, the range of positions of its clause (empty for a token that separates clauses).
    """

    surface: tuple[str, ...]
    words: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def read(cls, text: str, clause_words: frozenset[str]) -> "Sentence":
        """Split a text into tokens and clauses; `clause_words` are the conjunctions that open a clause."""
        surface = _TOKEN.findall(text)
        words = [token.lower() for token in surface]
        starts: list[int] = []
        ends: list[int] = []
        first = 0
        for position, word in enumerate(words):
            if word in clause_words or not word[0].isalnum():
                length = position - first
                starts += [first] * length + [position]
                ends += [position] * (length + 1)
                first = position + 1
        length = len(words) - first
        starts += [first] * length
        ends += [len(words)] * length
        return cls(tuple(surface), tuple(words), tuple(starts), tuple(ends))

    def is_break(self, position: int) -> bool:
        """Whether a clause or the sentence ends at this token."""
        return not 0 <= position < len(self.words) or self.starts[position] == self.ends[position]

    def find(self, words: frozenset[str]) -> list[int]:
        """Positions of the given words."""
        if words.isdisjoint(self.words):
            return []
        return [position for position, word in enumerate(self.words) if word in words]

    def clause(self, position: int) -> range:
        """All positions of the token's clause."""
        return range(self.starts[position], self.ends[position])

    def rightwards(self, position: int) -> range:
        """Positions after `position`, up to the end of its clause."""
        return range(position + 1, self._end(position))

    def leftwards(self, position: int) -> range:
        """Positions before `position`, nearest first, down to the start of its clause."""
        return range(position - 1, self.starts[position] - 1, -1)

    def rightwards_over(self, position: int, bridges: frozenset[str]) -> Iterator[int]:
        """`rightwards`, continuing over the conjunctions `bridges`."""
        end = self._end(position)
        yield from range(position + 1, end)
        while end < len(self.words) and self.words[end] in bridges:
            following = self._end(end)
            yield from range(end + 1, following)
            end = following

    def nearest(self, position: int) -> Iterator[int]:
        """Other positions of the clause by distance, right before left."""
        start, end = self.starts[position], self.ends[position]
        for distance in range(1, max(end - position, position - start + 1)):
            if position + distance < end:
                yield position + distance
            if position - distance >= start:
                yield position - distance

    def past_aside(self, position: int) -> int:
        """`position`, or the comma that closes an aside directly after it: *я, конечно, знал*."""
        if position + 1 < len(self.words) and self.words[position + 1] == ",":
            closing = position + 2
            while closing < len(self.words) and self.words[closing] != ",":
                closing += 1
            return closing if closing < len(self.words) else position
        return position

    def _end(self, position: int) -> int:
        """End of the clause that continues after `position`."""
        if self.is_break(position):
            position += 1
        return self.ends[position] if position < len(self.words) else len(self.words)
