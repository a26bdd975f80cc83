"""Paths of the machine where a run was made: readers of its reports are shown their last parts only. Pure."""

import re
from collections.abc import Mapping
from typing import Any

_PATH = re.compile(r"(?<![\w.:/~])(?:/[^\s/'\",;:()\[\]]+)+/([^\s/'\",;:()\[\]]+)/?")
"""An absolute path of two parts or more; none in a URL, and no hub id."""


def without_folders(text: str) -> str:
    """The text with the last part of each absolute path in it; of a text that is a path, blanks included, its last part."""
    if text.startswith("/") and "/" in text[1:] and "\n" not in text and len(text) < 1000 and not re.search(r"\s/|: ", text):
        return text.rstrip("/").rpartition("/")[2]
    return _PATH.sub(r"\1", text)


def named_only(value: Any) -> Any:
    """A part of a record, such as run.json, without the folders of its paths."""
    if isinstance(value, str):
        return without_folders(value)
    if isinstance(value, Mapping):
        return {key: named_only(part) for key, part in value.items()}
    return [named_only(part) for part in value] if isinstance(value, list | tuple) else value
