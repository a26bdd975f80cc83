"""Answers that cost money, on disk one by one: a chunk is stored whole only when all of it is there."""

import threading
from dataclasses import asdict
from pathlib import Path

from evaluator.answer_cache import AnswerCache, answer_key
from evaluator_serving.chats import Chat, Reply
from evaluator_serving.requests import request_id


class Journal:
    """The replies to chats of one model, in a file of one line each (see `evaluator.answer_cache`); `Kept` of a worker.

    `asked`: who is asked and how, where several models' replies are in one file; each finds its own alone.
    """

    def __init__(self, path: Path, asked: str = "") -> None:
        self._asked = asked
        self._cache = AnswerCache(path)
        self._lock = threading.Lock()

    def get(self, chat: Chat) -> Reply | None:
        """The reply to a chat of one answer, None where there is none."""
        key = self._key(chat)
        if key not in self._cache:
            return None
        known = self._cache[key]
        return Reply(**{**known, "tokens": tuple(known["tokens"])})

    def add(self, chat: Chat, reply: Reply) -> None:
        """Keep a reply; it is on disk when this returns."""
        with self._lock:
            self._cache.add([{"key": self._key(chat), "answer": asdict(reply)}])

    def _key(self, chat: Chat) -> str:
        return answer_key(request_id(chat), self._asked) if self._asked else request_id(chat)
