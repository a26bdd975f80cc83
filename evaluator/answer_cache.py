"""Answers that cost money or hours, kept in an append-only file: what was answered once is never asked again."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluator_serving.locks import held


def answer_key(*parts: Any) -> str:
    """The identity of an answer: a hash of everything that it depends on, as JSON values."""
    content = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


class AnswerCache:
    """A dictionary from keys to JSON values that lives in a file, a JSON object a line.

    Additions are on disk before `add` returns, so a killed process loses at most what it was writing, and several processes
    may add to one file. A line cut short by a crash counts as absent and is never glued to the next one. The first answer to a
    question stays; the file is never rewritten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: dict[str, Any] = {}
        self._read = 0
        self._refresh()

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __getitem__(self, key: str) -> Any:
        return self._answers[key]

    def missing(self, keys: Iterable[str]) -> list[str]:
        """The keys without an answer, each once, in order."""
        return [key for key in dict.fromkeys(keys) if key not in self._answers]

    def add(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries (`key`, `answer` and whatever helps a reader of the file) and wait until they are on disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with held(self.path.with_name(f"{self.path.name}.lock"), wait=True), self.path.open("a+b") as file:
            self._refresh()
            new = [entry for entry in entries if entry["key"] not in self._answers]
            lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in new)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if lines and size and file.read(1) != b"\n":
                lines = "\n" + lines
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
        self._refresh()

    def entries(self) -> Iterator[dict[str, Any]]:
        """All entries in the file, whole."""
        if self.path.is_file():
            with self.path.open("rb") as file:
                yield from filter(None, map(_entry, file))

    def _refresh(self) -> None:
        """Read what was appended, by this process or another, since the last time."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):
                    self._read += len(line)
                if entry := _entry(line):
                    self._answers.setdefault(entry["key"], entry["answer"])


def _entry(line: bytes) -> dict[str, Any] | None:
    """The entry in a line; None where it was cut short."""
    with contextlib.suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, dict) and entry.keys() >= {"key", "answer"}:
            return entry
    return None
