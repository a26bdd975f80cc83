"""An append-only file of answers that cost money or hours, so that no request is made twice."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluator_serving.locks import held


def answer_key(*parts: Any) -> str:
    """Cache key: a hash of everything that an answer depends on, given as JSON values."""
    content = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


class AnswerCache:
    """A persistent dictionary from keys to JSON values; the file has one JSON object per line.

    Entries are on disk before `add` returns, and several processes may add to the same file. A line truncated by a crash is
    ignored, and the next entry begins on a new line. The first answer for a key wins; the file is never rewritten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: dict[str, Any] = {}
        self._offset = 0
        self._refresh()

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __getitem__(self, key: str) -> Any:
        return self._answers[key]

    def missing(self, keys: Iterable[str]) -> list[str]:
        """The distinct keys without an answer, in order."""
        return [key for key in dict.fromkeys(keys) if key not in self._answers]

    def add(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries (`key`, `answer` and optional metadata) and wait until they are on disk."""
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
        """All complete entries in the file, with metadata."""
        if self.path.is_file():
            with self.path.open("rb") as file:
                yield from filter(None, map(_entry, file))

    def _refresh(self) -> None:
        """Read entries that this or another process appended since the last call."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if line.endswith(b"\n"):
                    self._offset += len(line)
                if entry := _entry(line):
                    self._answers.setdefault(entry["key"], entry["answer"])


def _entry(line: bytes) -> dict[str, Any] | None:
    """The entry of a line, None if it is truncated."""
    with contextlib.suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, dict) and entry.keys() >= {"key", "answer"}:
            return entry
    return None
