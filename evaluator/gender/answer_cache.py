"""Answers that cost much to get, kept in an append-only file, so that nothing is asked twice."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def answer_key(*parts: str) -> str:
    """Key of a question: a hash of everything that the answer depends on."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class AnswerCache:
    """A dictionary from keys to JSON values that lives in a file of JSON lines.

    Additions are appended in one write and synced, so a killed process loses at most what it was writing, and several
    processes may add to one file. A line cut off by a crash is skipped when reading and never glued to the next one. The first
    answer to a question stays; the file is never rewritten.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[str, Any] | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """The remembered answer, else `default`."""
        return self._load().get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self._load()

    def __len__(self) -> int:
        return len(self._load())

    def add(self, answers: Mapping[str, Any]) -> None:
        """Remember answers and write them down before returning."""
        known = self._load()
        new = {key: value for key, value in answers.items() if key not in known}
        if not new:
            return
        lines = "".join(json.dumps([key, value], ensure_ascii=False) + "\n" for key, value in new.items())
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            if file.seek(0, os.SEEK_END) and not self._ends_a_line(file.fileno()):
                lines = "\n" + lines
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
        known.update(new)

    def missing(self, keys: Iterable[str]) -> list[str]:
        """The keys without an answer, each once, in order."""
        known = self._load()
        return [key for key in dict.fromkeys(keys) if key not in known]

    def _load(self) -> dict[str, Any]:
        if self._answers is None:
            self._answers = {}
            if self._path.exists():
                with self._path.open("rb") as file:
                    for line in file:
                        entry = _entry(line)
                        if entry:
                            self._answers.setdefault(*entry)
        return self._answers

    @staticmethod
    def _ends_a_line(descriptor: int) -> bool:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, 1, size - 1) == b"\n"


def _entry(line: bytes) -> tuple[str, Any] | None:
    """(key, value) of a line; None for one that a crash cut off."""
    try:
        key, value = json.loads(line)
    except ValueError:
        return None
    return (key, value) if isinstance(key, str) else None
