"""Check that the tokens located by offsets or counts spell the requested word."""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

_BOUNDARY = "▁"
_BROKEN = "\ufffd"
"""What a decoder writes for the bytes of half a character."""


class Spelling:
    """Compares tokens with their text after the tokenizer's normalizer.

    Spaces are ignored, since tokenizers attach them to different tokens.
    """

    def __init__(self, backend: Any) -> None:
        """`backend` is a `tokenizers.Tokenizer`."""
        self._backend = backend
        self._normalizer = backend.normalizer
        # WordPiece's decoder also puts English contractions together.
        self._decodes = backend.decoder is not None and type(backend.decoder).__name__ != "WordPiece"
        self._prefix = getattr(backend.model, "continuing_subword_prefix", None) or ""
        self._suffix = getattr(backend.model, "end_of_word_suffix", None) or ""
        self._is = lru_cache(maxsize=4096)(self._spells_alone)

    def spells(self, word: str, around: str, ids: tuple[int, ...]) -> bool:
        """Whether tokens spell at least `word`, and nothing beyond `around`: `word` with what else the tokens claim to hold.

        A token may reach beyond its word (`'m` in "l'mot"); it may not lie elsewhere.
        """
        if self._is(word, ids):
            return True
        # Letter case and marks: added tokens may pass by a normalizer that removes them.
        found = _plain(self._decode(ids)).strip(_BROKEN)
        return _plain(self.normalized(word)) in found and found in _plain(self.normalized(around))

    def _spells_alone(self, word: str, ids: tuple[int, ...]) -> bool:
        written, wanted = self._decode(ids), self.normalized(word)
        return written == wanted or _bare(written) == _bare(wanted)

    def normalized(self, text: str) -> str:
        """The text after the tokenizer's normalizer."""
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))

    def _decode(self, ids: Sequence[int]) -> str:
        if self._decodes:
            return str(self._backend.decode(ids, skip_special_tokens=False))
        tokens = [self._backend.id_to_token(i) or "" for i in ids]
        return "".join(token.removeprefix(self._prefix).removesuffix(self._suffix) for token in tokens)


def _bare(text: str) -> str:
    """A text without spaces and boundary signs."""
    return "".join(text.replace(_BOUNDARY, " ").split())


def _plain(text: str) -> str:
    """A bare text without case and combining marks."""
    return "".join(c for c in unicodedata.normalize("NFKD", _bare(text).casefold()) if not unicodedata.combining(c))
