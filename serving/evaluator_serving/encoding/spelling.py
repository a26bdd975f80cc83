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
        # WordPiece's decoder also puts English contractions together.
        pieces = type(backend.decoder).__name__ == "WordPiece"
        self._decoder = None if pieces else backend.decoder
        self._prefix = getattr(backend.model, "continuing_subword_prefix", None) or ""
        self._suffix = getattr(backend.model, "end_of_word_suffix", None) or ""
        self.spells = lru_cache(maxsize=4096)(self._spells)
        """Whether tokens spell at least `word`, and nothing beyond `around`: `word` with what else the tokens claim to hold.

        A token may reach beyond its word (`'m` in "l'mot"); it may not lie elsewhere.
        """

    def _spells(self, word: str, around: str, ids: tuple[int, ...]) -> bool:
        written = self._decode(ids)
        wanted = self.normalized(word)
        if _bare(written) == _bare(wanted):
            return True
        # Letter case and marks: added tokens may pass by a normalizer that removes them.
        found = _plain(written).strip(_BROKEN)
        return _plain(wanted) in found and found in _plain(self.normalized(around))

    def normalized(self, text: str) -> str:
        """The text after the tokenizer's normalizer."""
        normalizer = self._backend.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def _decode(self, ids: Sequence[int]) -> str:
        tokens = [self._backend.id_to_token(i) or "" for i in ids]
        if self._decoder is not None:
            return str(self._decoder.decode(tokens))
        return "".join(token.removeprefix(self._prefix).removesuffix(self._suffix) for token in tokens)


def _bare(text: str) -> str:
    """A text without spaces and boundary signs."""
    return "".join(text.replace(_BOUNDARY, " ").split())


def _plain(text: str) -> str:
    """A bare text without case and combining marks."""
    return "".join(c for c in unicodedata.normalize("NFKD", _bare(text).casefold()) if not unicodedata.combining(c))
