"""Users' TOML files, checked against a schema. All mistakes are reported at once, each with file, line and key."""

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic.fields import FieldInfo

from evaluator.text_file import read_text
from evaluator_serving.errors import InputError

KeyPath = tuple[str | int, ...]
"""Path of a value: keys, and indices (from 0) of list items."""

_PATH = r"""(?P<path>(?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)"""
_HEADER = re.compile(rf"\s*(?P<open>\[\[?)\s*{_PATH}\s*\]")
_KEY = re.compile(rf"\s*{_PATH}\s*=")


class Table(BaseModel):
    """Schema of a table: unknown keys are rejected; a field's description is shown if it is missing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextTable(Table):
    """A whole file that keeps its text, by which its digest tells it from others."""

    _text: str = PrivateAttr("")

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """From a file's text. Raises InputError with one line per mistake: `where` (the file), line, key."""
        document = Document(where, text)
        made = document.checked(cls, document.content())
        made._text = text
        return made

    @property
    def text(self) -> str:
        """The TOML that it was read from."""
        return self._text

    def digest(self, digits: int) -> str:
        """So many hexadecimal digits of the text's hash."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:digits]


class MistakesError(ValueError):
    """Raised by validators for several mistakes inside a value: (place, message) pairs."""

    def __init__(self, mistakes: Iterable[tuple[KeyPath, str]]) -> None:
        super().__init__()
        self.mistakes = tuple(mistakes)


T = TypeVar("T", bound=Table)


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text, and its name in messages."""

    where: str
    text: str

    @classmethod
    def read(cls, path: Path, wanted: str) -> "Document":
        """Read a file. Raises InputError, ending in `wanted`, if it cannot be read."""
        return cls(str(path), read_text(path, wanted=wanted)[0])

    def content(self) -> dict[str, Any]:
        """The file's tables. Raises InputError if the text is not TOML."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise self._not_toml(str(error)) from None

    def _not_toml(self, message: str) -> InputError:
        """An InputError for a parser's message, which ends with the line and column but does not name a repeated key."""
        repeated = re.fullmatch(r"(?:Cannot|Duplicate) .*\(at line (\d+), column \d+\)", message)
        line = self.text.splitlines()[int(repeated[1]) - 1] if repeated else ""
        if repeated and (key := _HEADER.match(line) or _KEY.match(line)):
            return InputError(f"{self.where}, line {repeated[1]}: {key['path']} is defined twice: remove one of the two")
        return InputError(f"{self.where}: not valid TOML: {message}")

    def checked(self, schema: type[T], content: dict[str, Any]) -> T:
        """Validate the content. Raises InputError with one line per mistake, in the file's order."""
        try:
            return schema.model_validate(content)
        except ValidationError as error:
            raise self.error(*_mistakes(schema, error)) from None

    def error(self, *mistakes: tuple[KeyPath, str]) -> InputError:
        """An InputError for (place, message) pairs."""
        lines = _lines(self.text)
        messages = dict.fromkeys((_line(lines, place), self._shown(place, what)) for place, what in mistakes)
        ordered = sorted(messages, key=lambda message: message[0])
        return InputError("\n".join(f"{self.where}, line {line}: {what}" for line, what in ordered))

    @staticmethod
    def _shown(place: KeyPath, what: str) -> str:
        key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
        return f"{key}: {what}" if key else what


# --- messages --------------------------------------------------------------------------------------------------------


def _mistakes(schema: type[Table], error: ValidationError) -> list[tuple[KeyPath, str]]:
    mistakes: list[tuple[KeyPath, str]] = []
    for entry in error.errors():
        place, cause = entry["loc"], entry.get("ctx", {}).get("error")
        if isinstance(cause, MistakesError):
            mistakes += [((*place, *inside), what) for inside, what in cause.mistakes]
        else:
            mistakes.append((place, _message(schema, place, entry)))
    return mistakes


def _message(schema: type[Table], place: KeyPath, entry: Any) -> str:
    kind = entry["type"]
    if kind == "missing":
        description = _fields(schema, place[:-1])[str(place[-1])].description
        return f"missing: {description}" if description else "missing"
    if kind == "extra_forbidden":
        return f"unknown key: choose from {', '.join(sorted(_fields(schema, place[:-1])))}"
    return in_words(entry)


def in_words(entry: Any) -> str:
    """A mistake that pydantic found in a value (`ValidationError.errors()`), in words."""
    kind, value, cause = entry["type"], entry["input"], entry.get("ctx", {}).get("error")
    if cause:
        return str(cause)
    if kind == "literal_error":
        return f"{value!r} is not one of {entry['ctx']['expected'].replace(' or ', ', ').replace(chr(39), '')}"
    expected = {
        "string_type": "expected a string",
        "int_type": "expected a whole number",
        "int_parsing": "expected a whole number",
        "int_from_float": "expected a whole number",
        "float_type": "expected a number",
        "float_parsing": "expected a number",
        "finite_number": "expected a finite number",
        "bool_type": "expected true or false",
        "list_type": "expected a list",
        "tuple_type": "expected a list",
        "dict_type": "expected a table",
        "model_type": "expected a table",
    }.get(kind, entry["msg"].replace("Input should", "must"))
    return f"{expected}, not {value!r}"


def _fields(schema: Any, place: KeyPath) -> dict[str, FieldInfo]:
    """The fields of the table at a place."""
    for step in place:
        if isinstance(schema, type) and issubclass(schema, Table):
            schema = _keyed(schema)[str(step)].annotation
        else:  # the items of list[…], the values of dict[str, …]
            schema = get_args(schema)[-1]
    return _keyed(schema)


def _keyed(schema: type[Table]) -> dict[str, FieldInfo]:
    """Key in the file → field."""
    return {info.alias or name: info for name, info in schema.model_fields.items()}


# --- lines -----------------------------------------------------------------------------------------------------------


def _keys(path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[\w-]+", path))


def _lines(text: str) -> dict[KeyPath, int]:
    """Place → line (from 1) of every table header and every key at the beginning of a line."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    items: Counter[KeyPath] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            *above, last = _keys(header["path"])
            table = (*_inside(above, items), last)
            if header["open"] == "[[":
                items[table] += 1
                table = (*table, items[table] - 1)
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault((*table, *_keys(key["path"])), number)
    return lines


def _inside(path: Sequence[str], items: Counter[KeyPath]) -> KeyPath:
    """The place that a header's path refers to: in a list of tables, the last one so far."""
    place: KeyPath = ()
    for key in path:
        place = (*place, key)
        if items[place]:
            place = (*place, items[place] - 1)
    return place


def _line(lines: dict[KeyPath, int], place: KeyPath) -> int:
    """Line of a place, or of the nearest enclosing place that has one."""
    return next((lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), 1)
