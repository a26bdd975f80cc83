"""A cache of parses on disk: parsing takes seconds per sentence."""

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from evaluator.answer_cache import AnswerCache, answer_key
from evaluator.gender.ud.parser import Parse, Parser, UdToken


class CachedParser:
    """`Parser` that asks another one only for what it has never been asked, by text, language and model.

    folder: holds one append-only file a language. batch: texts that are parsed and then written down together.
    """

    def __init__(self, parser: Parser, folder: Path, batch: int = 32) -> None:
        self._parser = parser
        self._folder = folder
        self._batch = batch
        self._caches: dict[str, AnswerCache] = {}

    def fingerprint(self, language: str) -> str:
        """See Parser.fingerprint."""
        return self._parser.fingerprint(language)

    def parse(self, texts: Sequence[str], language: str) -> list[Parse]:
        """Cached parses, and new ones from the inner parser."""
        model = self._parser.fingerprint(language)
        cache = self._caches.setdefault(language, AnswerCache(self._folder / f"{language}.jsonl"))
        keys = [answer_key(text, language, model) for text in texts]
        text_of = dict(zip(keys, texts, strict=True))
        missing = cache.missing(keys)
        for start in range(0, len(missing), self._batch):
            batch = missing[start : start + self._batch]
            parses = self._parser.parse([text_of[key] for key in batch], language)
            cache.add([{"key": key, "answer": _as_json(parse)} for key, parse in zip(batch, parses, strict=True)])
        return [_from_json(cache[key]) for key in keys]


def _as_json(parse: Parse) -> list[list[tuple[object, ...]]]:
    return [[astuple(token) for token in sentence] for sentence in parse]


def _from_json(sentences: list[list[list[str | int]]]) -> Parse:
    return tuple(tuple(UdToken(*token) for token in sentence) for sentence in sentences)  # type: ignore[arg-type]
