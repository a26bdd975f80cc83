"""Journal of a server's answers: each is on disk before the next request, while a chunk is stored only when complete."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evaluator.answer_cache import AnswerCache, answer_key
from evaluator_serving.chats import Chat, Reply
from evaluator_serving.requests import request_id


class Journal:
    """The answers of one model in an `evaluator.answer_cache` file; an `AnswerStore`.

    `namespace` separates the models, and their settings, that share a file.
    """

    def __init__(self, path: Path, namespace: str = "") -> None:
        self._namespace = namespace
        self._cache = AnswerCache(path)
        self._lock = threading.Lock()
        self._waiting: deque[dict[str, Any]] = deque()

    def get(self, chat: Chat) -> Reply | None:
        """The reply to a chat with a single answer, None if there is none."""
        key = self._key(chat)
        if key not in self._cache:
            return None
        fields = self._cache[key]
        return Reply(**{**fields, "tokens": tuple(fields["tokens"])})

    def add(self, chat: Chat, reply: Reply) -> None:
        """Store a reply; it is on disk when this returns."""
        self._write([{"key": self._key(chat), "answer": asdict(reply)}])

    def logprob(self, prefix: tuple[int, ...], token: int) -> float | None:
        """log P of a token after a prefix, None if unknown."""
        key = answer_key(prefix, token)
        return float(self._cache[key]) if key in self._cache else None

    def add_logprobs(self, entries: Sequence[tuple[tuple[int, ...], int, float]]) -> None:
        """Store (prefix, token, log P) entries; they are on disk when this returns."""
        self._write(
            [{"key": answer_key(p, token), "answer": value, "prefix": p, "token": token} for p, token, value in entries]
        )

    def logprobs(self) -> Iterator[tuple[tuple[int, ...], int, float]]:
        """All stored (prefix, token, log P) entries."""
        for entry in self._cache.entries():
            if "prefix" in entry:
                yield tuple(entry["prefix"]), entry["token"], entry["answer"]

    def _write(self, entries: list[dict[str, Any]]) -> None:
        """Group commit: answers that arrive during a write are written together by the next one."""
        self._waiting.extend(entries)
        with self._lock:
            if waiting := [self._waiting.popleft() for _ in range(len(self._waiting))]:
                self._cache.add(waiting)

    def _key(self, chat: Chat) -> str:
        return answer_key(request_id(chat), self._namespace) if self._namespace else request_id(chat)
