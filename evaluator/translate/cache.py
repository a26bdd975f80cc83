"""Translations on disk: what was answered once is never asked again."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evaluator.translate.base import Translator
from evaluator_serving.errors import InputError


def answer_key(text: str, system: str, language: str, parameters: Mapping[str, str]) -> str:
    """The identity of an answer: a hash of everything that it depends on."""
    content = json.dumps([text, system, language, dict(parameters)], ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


class AnswerCache:
    """An append-only file of answers, a JSON object a line. A line cut short by a crash counts as absent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: dict[str, str] = {}
        self._read = 0
        self._refresh()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> str | None:
        """The answer, None if there is none."""
        return self._answers.get(key)

    def add(self, entries: Sequence[Mapping[str, object]]) -> None:
        """Append entries (`key`, `answer` and whatever helps a reader) and wait until they are on disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
            os.write(handle, ("\n" * torn + lines).encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        self._refresh()

    def _refresh(self) -> None:
        """Read what was appended, by this process or another, since the last time."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):
                    self._read += len(line)
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    self._answers.setdefault(str(entry["key"]), str(entry["answer"]))


class CachedTranslator:
    """A translator that asks only for what the cache doesn't have, and keeps each batch's answers before it asks for more."""

    def __init__(
        self,
        inner: Translator,
        cache: AnswerCache,
        *,
        offline: bool = False,
        max_cost: float = 0.0,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`offline` lets the cache alone serve; `max_cost` is in US dollars, for all calls together; `report` gets progress."""
        self.inner = inner
        self.cache = cache
        self.spent = 0.0
        self._offline = offline
        self._max_cost = max_cost
        self._report = report

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language`, in their order.

        Raises InputError, before anything is asked, where answers are missing and may not be asked for: offline, or dearer
        than what is left of `max_cost`.
        """
        system, parameters = self.inner.system, self.inner.parameters
        keys = {text: answer_key(text, system, language, parameters) for text in texts}
        missing = [text for text, key in keys.items() if self.cache.get(key) is None]
        if missing:
            self._check(missing, language)
        for start in range(0, len(missing), self.inner.batch):
            batch = missing[start : start + self.inner.batch]
            answers = self.inner.translate(batch, language)
            self.spent += self._cost(batch)
            about = {"system": system, "language": language, "parameters": dict(parameters)}
            pairs = zip(batch, answers, strict=True)
            self.cache.add([{"key": keys[text], "text": text, **about, "answer": answer} for text, answer in pairs])
            self._report(f"{system} {language}: {start + len(batch)} of {len(missing)} texts")
        return [self.cache.get(keys[text]) or "" for text in texts]

    def _cost(self, texts: Sequence[str]) -> float:
        return self.inner.price * sum(map(len, texts)) / 1e6

    def _check(self, missing: Sequence[str], language: str) -> None:
        if self._offline:
            raise InputError(
                f"{len(missing)} texts have no {self.inner.system} translation to {language} in {self.cache.path}, the first "
                f"{missing[0]!r}: leave --offline out to ask for them"
            )
        cost = self._cost(missing)
        if not cost:
            return
        characters = sum(map(len, missing))
        self._report(f"{self.inner.system}: {characters:,} characters in {len(missing):,} texts, about ${cost:.2f}")
        if self.spent + cost > self._max_cost:
            raise InputError(
                f"{self.inner.system} would cost about ${self.spent + cost:.2f} for {characters:,} characters, more than "
                f"${self._max_cost:.2f}: allow it with --max-cost"
            )
