"""What a command says while it works, on stderr: lines with a time for people, or JSON objects for programs that collect logs.

Text lines tell the local time, `2026-11-28 21:34:05 MODEL: …`. JSON lines have always the same keys: time (UTC), level,
message, and FIELDS (null where a line is about none).
"""

import json
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal

from evaluator_serving.secrets import redacted

Format = Literal["text", "json"]
FIELDS = ("run", "model", "replica", "chunk")
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
Level = Literal["info", "warning", "error"]

_LOGGER = logging.getLogger("evaluator")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        if getattr(record, "plain", False):
            return record.getMessage()
        when = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S")
        model = getattr(record, "model", None)
        return f"{when} {model}: {record.getMessage()}" if model else f"{when} {record.getMessage()}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {name: getattr(record, name, None) for name in FIELDS}
        return json_line(record.created, record.levelname.lower(), record.getMessage(), **fields)


def json_line(when: float, level: str, message: str, **fields: Any) -> str:
    """A line of a JSON log, of a Unix time; `fields`: those of FIELDS that it is about."""
    told = {"time": datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds"), "level": level, "message": message}
    return json.dumps(told | {name: fields.get(name) for name in FIELDS}, ensure_ascii=False)


class _Stderr(logging.Handler):
    """Writes to what stderr is at the moment: a live bar puts lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        print(redacted(self.format(record)), file=sys.stderr, flush=True)


_HANDLER = _Stderr()
_HANDLER.setFormatter(_Text())
_LOGGER.addHandler(_HANDLER)
_LOGGER.setLevel(logging.INFO)
_LOGGER.propagate = False  # libraries that configure the root logger would print everything once more


def use(format_: Format) -> None:
    """Choose the format of all lines from now on."""
    _HANDLER.setFormatter(_Json() if format_ == "json" else _Text())


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, wherever it says so and whatever else may be wrong with it."""
    return "--log-format=json" in words or ("--log-format", "json") in pairwise(words)


def is_json() -> bool:
    """Whether lines are for programs: then nothing else, such as a live bar, may be written among them."""
    return isinstance(_HANDLER.formatter, _Json)


def line(message: str, *, run: str = "", model: str = "", replica: int | None = None, chunk: str = "") -> None:
    """Tell what goes on, and of what."""
    fields = {"run": run or None, "model": model or None, "replica": replica, "chunk": chunk or None}
    _LOGGER.info("%s", message, extra=fields)


def say(message: str, level: Level = "info") -> None:
    """Tell how a command ended, or a warning: in text form the line itself, without a time."""
    _LOGGER.log(LEVELS[level], "%s", message, extra={"plain": True})
