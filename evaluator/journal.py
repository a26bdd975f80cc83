"""Answers of servers, on disk one by one: a chunk is stored whole only when all of it is there."""

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
    """The answers of one model, in a file of one line each (see `evaluator.answer_cache`); `Kept` of a worker.

    `asked`: who is asked and how, where several models' replies are in one file; each finds its own alone.
    """

    def __init__(self, path: Path, asked: str = "") -> None:
        self._asked = asked
        self._cache = AnswerCache(path)
        self._lock = threading.Lock()
        self._waiting: deque[dict[str, Any]] = deque()

    def get(self, chat: Chat) -> Reply | None:
        """The reply to a chat of one answer, None where there is none."""
        key = self._key(chat)
        if key not in self._cache:
            return None
        known = self._cache[key]
        return Reply(**{**known, "tokens": tuple(known["tokens"])})

    def add(self, chat: Chat, reply: Reply) -> None:
        """Keep a reply; it is on disk when this returns."""
        self._write([{"key": self._key(chat), "answer": asdict(reply)}])

    def number(self, prefix: tuple[int, ...], token: int) -> float | None:
        """log P of a token behind others, None where it isn't known."""
        key = answer_key(prefix, token)
        return float(self._cache[key]) if key in self._cache else None

    def add_numbers(self, found: Sequence[tuple[tuple[int, ...], int, float]]) -> None:
        """Keep such numbers: (prefix, token, log P)."""
        self._write([{"key": answer_key(p, token), "answer": value, "prefix": p, "token": token} for p, token, value in found])

    def numbers(self) -> Iterator[tuple[tuple[int, ...], int, float]]:
        """All numbers that were kept."""
        for entry in self._cache.entries():
            if "prefix" in entry:
                yield tuple(entry["prefix"]), entry["token"], entry["answer"]

    def _write(self, entries: list[dict[str, Any]]) -> None:
        """Answers that come while others are written are written together, after them: none waits for all that came before."""
        self._waiting.extend(entries)
        with self._lock:
            if waiting := [self._waiting.popleft() for _ in range(len(self._waiting))]:
                self._cache.add(waiting)

    def _key(self, chat: Chat) -> str:
        return answer_key(request_id(chat), self._asked) if self._asked else request_id(chat)
