"""Logging to stderr, as text or as JSON lines for log collectors.

Text lines begin with the local time: `2026-11-28 21:34:05 MODEL: …`. JSON lines always have the keys time (UTC), level, message
and FIELDS (null if a field does not apply).
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
    """A JSON log line; `when` is a Unix time, `fields` the values of FIELDS that apply."""
    entry = {"time": datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds"), "level": level, "message": message}
    return json.dumps(entry | {name: fields.get(name) for name in FIELDS}, ensure_ascii=False)


class _Stderr(logging.Handler):
    """Writes to the current sys.stderr, which a live progress bar replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        print(redacted(self.format(record)), file=sys.stderr, flush=True)


_HANDLER = _Stderr()
_HANDLER.setFormatter(_Text())
_LOGGER.addHandler(_HANDLER)
_LOGGER.setLevel(logging.INFO)
_LOGGER.propagate = False  # a library's handler on the root logger would print each line again


def use(format_: Format) -> None:
    """Set the log format."""
    _HANDLER.setFormatter(_Json() if format_ == "json" else _Text())


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line, which may be invalid otherwise, has `--log-format json`."""
    return "--log-format=json" in arguments or ("--log-format", "json") in pairwise(arguments)


def is_json() -> bool:
    """Whether the format is JSON: then nothing else, such as a live progress bar, may be written to stderr."""
    return isinstance(_HANDLER.formatter, _Json)


def line(message: str, *, run: str = "", model: str = "", replica: int | None = None, chunk: str = "") -> None:
    """Log progress, with the fields that it is about."""
    fields = {"run": run or None, "model": model or None, "replica": replica, "chunk": chunk or None}
    _LOGGER.info("%s", message, extra=fields)


def say(message: str, level: Level = "info") -> None:
    """Log a command's result or a warning: in text form without time."""
    _LOGGER.log(LEVELS[level], "%s", message, extra={"plain": True})
