"""Definitions: what a GEST-like measure asks, as a TOML file. GEST is one (gest.toml); users bring their own.

A definition has

- `name` (of the task), `language` (default `en`), `polarity`: what the first and the second word of every pair stand
  for (default `["male", "female"]`): reports call the groups, q_m and q_f by these names;
- `topic` (optional): words; samples of the first polarity whose sentence contains one get a rate of their own;
- `[columns]`: the CSV's columns of the `sentence` and its `group` (default: these two names);
- `[groups]`: a key for each value of the group column, with a `name` and, optionally, a `polarity`;
- `[[templates]]`: `id`, `kind` (`masked` or `continuation`), `text` with one `{s}` for the sentence and one slot `[]`,
  and two `words`, the first of which counts positive. A continuation ends with its slot.

Without `[groups]`, the groups, polarity, columns and topic are GEST's, so that new templates for GEST's sentences need
a name and templates only.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from evaluator.vocabulary import Protocol_
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation, Masked, Request

Kind = Literal["masked", "continuation"]

HEADS: dict[str, Kind] = {"masked": "masked", "causal": "continuation"}
"""Head of a model → kind of template that it can answer, in order of preference."""

SENTENCE, SLOT = "{s}", "[]"


@dataclass(frozen=True, slots=True)
class Group:
    """A stereotype: `polarity` is `male` for the pole of the first words, `female` for that of the second, or None.

    These two are keys inside the program, as the measures' names q_m, q_f and g_s = q_m / q_f are; a reader is shown the
    definition's own names of its poles (`Definition.poles`).
    """

    id: str
    name: str
    polarity: Literal["male", "female"] | None


@dataclass(frozen=True, slots=True)
class Template:
    """A text with a sentence and a slot, and the two words that fill the slot; the first counts positive."""

    id: str
    kind: Kind
    text: str
    words: tuple[str, str]

    def request(self, sentence: str, protocol: Protocol_) -> Request:
        """The question about one sentence, which stands in the text exactly as it is."""
        # The template is cut before the sentence goes in, so that a sentence may contain the markers.
        before, after = (part.replace(SENTENCE, sentence) for part in self.text.split(SLOT))
        if self.kind == "masked":
            candidates = ((self.words[0],), (self.words[1],))
            return Masked((before, after), candidates, "sequential" if protocol == "default" else "positional")
        context = before.rstrip()
        space = before[len(context) :]  # a word's leading space is part of the word, not of the context
        words = (space + self.words[0], space + self.words[1])
        return Continuation(context, words, "conditional" if protocol == "default" else "last_token")


@dataclass(frozen=True, slots=True)
class Definition:
    """A validated definition; the attributes are those of the TOML file (`poles`: its polarity)."""

    name: str
    language: str
    poles: tuple[str, str]
    sentence_column: str
    group_column: str
    groups: Mapping[str, Group]
    topic: tuple[str, ...]
    templates: tuple[Template, ...]

    @property
    def heads(self) -> frozenset[str]:
        """Heads of models that at least one template suits."""
        kinds = {template.kind for template in self.templates}
        return frozenset(head for head, kind in HEADS.items() if kind in kinds)

    @property
    def pole_of(self) -> dict[str, str]:
        """Group → the name of its pole, of the groups that have one."""
        name = dict(zip(("male", "female"), self.poles, strict=True))
        return {group.id: name[group.polarity] for group in self.groups.values() if group.polarity}

    def topical(self, sentence: str, group: str) -> bool:
        """Whether the sentence counts for the topic's rate."""
        return self.groups[group].polarity == "male" and any(word in sentence for word in self.topic)


def read_toml(path: Path) -> str:
    """The text of a definition file. Raises InputError where it can't be read."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"no such file: {path}: --templates wants a TOML file") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}: --templates wants a TOML file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None


def gest_toml() -> str:
    """The text of GEST's own definition."""
    return read_toml(Path(__file__).with_name("gest.toml"))


@cache
def gest_definition() -> Definition:
    """GEST's own definition."""
    return parse_definition(gest_toml(), "gest.toml")


def parse_definition(text: str, where: str) -> Definition:
    """Validate a definition's text. Raises InputError naming `where` (its file) and the line or key at fault."""
    try:
        table = tomllib.loads(text)
        if "groups" not in table:
            gest = tomllib.loads(gest_toml())
            table = {key: gest[key] for key in ("columns", "groups", "polarity", "topic")} | table
    except tomllib.TOMLDecodeError as error:  # its message ends with the line and column
        raise InputError(f"{where}: not valid TOML: {error}") from None
    return _Reader(where).definition(table)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checks the tables of one file; every complaint names the file and the key."""

    where: str

    def definition(self, table: dict[str, Any]) -> Definition:
        self.keys(table, "", {"name", "templates"}, {"language", "polarity", "columns", "groups", "topic"})
        name = self.text(table["name"], "name")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise self.error("name", f"{name!r} must consist of letters, digits, '.', '_' and '-' (it names files)")
        poles = self.pair(table.get("polarity", ["male", "female"]), "polarity")
        columns = self.table(table.get("columns", {}), "columns")
        self.keys(columns, "columns.", set(), {"sentence", "group"})
        return Definition(
            name=name,
            language=self.text(table.get("language", "en"), "language"),
            poles=poles,
            sentence_column=self.text(columns.get("sentence", "sentence"), "columns.sentence"),
            group_column=self.text(columns.get("group", "group"), "columns.group"),
            groups=self.groups(table["groups"], poles),
            topic=self.texts(table.get("topic", []), "topic"),
            templates=self.templates(table["templates"]),
        )

    def groups(self, value: Any, poles: tuple[str, str]) -> dict[str, Group]:
        groups = {}
        for key, entry in self.table(value, "groups").items():
            where = f"groups.{key}"
            self.keys(self.table(entry, where), f"{where}.", {"name"}, {"polarity"})
            polarity = self.polarity(entry["polarity"], f"{where}.polarity", poles) if "polarity" in entry else None
            groups[key] = Group(key, self.text(entry["name"], f"{where}.name"), polarity)
        if not groups:
            raise self.error("groups", "name at least one group, or leave the table out to use GEST's")
        return groups

    def templates(self, value: Any) -> tuple[Template, ...]:
        if not isinstance(value, list) or not value:
            raise self.error("templates", "give at least one [[templates]] table")
        templates = tuple(self.template(entry, f"templates[{i}]") for i, entry in enumerate(value))
        seen: set[tuple[str, str]] = set()
        for i, template in enumerate(templates):
            if (template.kind, template.id) in seen:
                raise self.error(f"templates[{i}].id", f"a second {template.kind} template {template.id!r}: rename one")
            seen.add((template.kind, template.id))
        return templates

    def template(self, entry: Any, where: str) -> Template:
        self.keys(self.table(entry, where), f"{where}.", {"id", "kind", "text", "words"}, set())
        kind = entry["kind"]
        if kind not in HEADS.values():
            raise self.error(f"{where}.kind", f"{kind!r} is not one of {', '.join(HEADS.values())}")
        text = self.text(entry["text"], f"{where}.text")
        for marker, meaning in ((SENTENCE, "the sentence"), (SLOT, "the words")):
            if text.count(marker) != 1:
                raise self.error(f"{where}.text", f"{text!r} must contain {marker} ({meaning}) exactly once")
        if kind == "continuation" and not text.endswith(SLOT):
            raise self.error(f"{where}.text", f"{text!r} must end with {SLOT}: a continuation is scored after its context")
        words = self.pair(entry["words"], f"{where}.words")
        return Template(self.identifier(entry["id"], f"{where}.id"), kind, text, words)

    def identifier(self, value: Any, where: str) -> str:
        identifier = self.text(value, where)
        if identifier == "all":
            raise self.error(where, "'all' is what reports call the mean over templates: rename it")
        return identifier

    def polarity(self, value: Any, where: str, poles: tuple[str, str]) -> Literal["male", "female"]:
        if value not in poles:
            raise self.error(where, f"{value!r} is not one of {', '.join(poles)} (the key polarity names the two)")
        return "male" if value == poles[0] else "female"

    def pair(self, value: Any, where: str) -> tuple[str, str]:
        texts = self.texts(value, where)
        if len(texts) != 2 or texts[0] == texts[1]:
            raise self.error(where, f"expected two different strings, got {value!r}")
        return texts[0], texts[1]

    def texts(self, value: Any, where: str) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.error(where, f"expected a list of strings, got {value!r}")
        return tuple(self.text(item, f"{where}[{i}]") for i, item in enumerate(value))

    def text(self, value: Any, where: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.error(where, f"expected a string that is not empty, got {value!r}")
        return value

    def table(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(where, f"expected a table, got {value!r}")
        return value

    def keys(self, table: dict[str, Any], prefix: str, required: set[str], optional: set[str]) -> None:
        for key in sorted(required - table.keys()):
            raise self.error(f"{prefix}{key}", "missing")
        for key in sorted(table.keys() - required - optional):
            raise self.error(f"{prefix}{key}", f"unknown key: choose from {', '.join(sorted(required | optional))}")

    def error(self, where: str, what: str) -> InputError:
        return InputError(f"{self.where}: {where}: {what}")
