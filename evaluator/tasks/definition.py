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
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from evaluator.toml_file import Document, KeyPath, MistakesError, Table
from evaluator.vocabulary import Protocol_
from evaluator_serving.requests import Continuation, Masked, Request

Kind = Literal["masked", "continuation"]

HEADS: dict[str, Kind] = {"masked": "masked", "causal": "continuation"}
"""Head of a model → kind of template that it can answer, in order of preference."""

SENTENCE, SLOT = "{s}", "[]"


def _spoken(text: str) -> str:
    if not text.strip():
        raise ValueError(f"expected a string that is not empty, got {text!r}")
    return text


def _file_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(f"{name!r} must consist of letters, digits, '.', '_' and '-' (it names files)")
    return name


def _identifier(name: str) -> str:
    if name in ("all", "overall"):
        raise ValueError(f"{name!r} is reserved for the mean over templates: rename it")
    return name


def _two(texts: list[str]) -> list[str]:
    if len(texts) != 2 or texts[0] == texts[1]:
        raise ValueError(f"expected two different strings, got {texts!r}")
    return texts


Text = Annotated[str, AfterValidator(_spoken)]
Pair = Annotated[list[Text], AfterValidator(_two)]


class SampleColumns(Table):
    """The CSV's columns."""

    sentence: Text = "sentence"
    group: Text = "group"


class Group(Table):
    """A stereotype, and the pole that it belongs to, if any."""

    name: Text
    polarity: str | None = None


class Template(Table):
    """A text with a sentence and a slot, and the two words that fill the slot; the first counts positive."""

    id: Annotated[Text, AfterValidator(_identifier)]
    kind: Kind
    text: Text
    words: Pair

    @model_validator(mode="after")
    def _marked(self) -> Self:
        found: list[tuple[KeyPath, str]] = [
            (("text",), f"{self.text!r} must contain {marker} ({meaning}) exactly once")
            for marker, meaning in ((SENTENCE, "the sentence"), (SLOT, "the words"))
            if self.text.count(marker) != 1
        ]
        if not found and self.kind == "continuation" and not self.text.endswith(SLOT):
            end = f"{self.text!r} must end with {SLOT}: a continuation is scored after its context"
            found.append((("text",), end))
        if found:
            raise MistakesError(found)
        return self

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


class Definition(Table):
    """A definition as its file has it.

    Inside the program a group's polarity is `male` for the pole of the first words and `female` for that of the second, as the
    measures' names q_m, q_f and g_s = q_m / q_f are; a reader is shown the definition's own names of its poles.
    """

    name: Annotated[Text, AfterValidator(_file_name)]
    language: Text = "en"
    polarity: Pair = Field(default_factory=lambda: ["male", "female"])
    topic: list[Text] = Field(default_factory=list)
    columns: SampleColumns = SampleColumns()
    groups: Annotated[dict[str, Group], Field(min_length=1)]
    templates: Annotated[list[Template], Field(min_length=1, description="give at least one [[templates]] table")]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        found: list[tuple[KeyPath, str]] = [
            (
                ("groups", key, "polarity"),
                f"{group.polarity!r} is not one of {', '.join(self.polarity)} (the key polarity names the two)",
            )
            for key, group in self.groups.items()
            if group.polarity is not None and group.polarity not in self.polarity
        ]
        if "all" in self.groups:
            found.append((("groups", "all"), "'all' is reserved for all groups together: rename it here and in the samples"))
        seen: set[tuple[str, str]] = set()
        for index, template in enumerate(self.templates):
            if (template.kind, template.id) in seen:
                found.append((("templates", index, "id"), f"a second {template.kind} template {template.id!r}: rename one"))
            seen.add((template.kind, template.id))
        if found:
            raise MistakesError(found)
        return self

    @property
    def poles(self) -> tuple[str, str]:
        """What the first and the second word of every pair stand for."""
        return self.polarity[0], self.polarity[1]

    @property
    def heads(self) -> frozenset[str]:
        """Heads of models that at least one template suits."""
        kinds = {template.kind for template in self.templates}
        return frozenset(head for head, kind in HEADS.items() if kind in kinds)

    @property
    def names(self) -> dict[str, str]:
        """Group → its name."""
        return {key: group.name for key, group in self.groups.items()}

    @property
    def pole_of(self) -> dict[str, str]:
        """Group → the name of its pole, of the groups that have one."""
        return {key: group.polarity for key, group in self.groups.items() if group.polarity}

    @property
    def sides(self) -> dict[str, str | None]:
        """Group → `male`, `female` or None."""
        sides = dict(zip(self.polarity, ("male", "female"), strict=True))
        return {key: sides.get(group.polarity or "") for key, group in self.groups.items()}

    def topical(self, sentence: str, group: str) -> bool:
        """Whether the sentence counts for the topic's rate: that of the first pole's samples with one of its words."""
        return self.groups[group].polarity == self.polarity[0] and any(word in sentence for word in self.topic)


def gest_toml() -> str:
    """The text of GEST's own definition."""
    return Path(__file__).with_name("gest.toml").read_text(encoding="utf-8")


@cache
def gest_definition() -> Definition:
    """GEST's own definition."""
    return parse_definition(gest_toml(), "gest.toml")


def parse_definition(text: str, where: str) -> Definition:
    """Validate a definition's text. Raises InputError with a line for each mistake: `where` (its file), line, key."""
    document = Document(where, text)
    table = document.content()
    if "groups" not in table:
        gest = tomllib.loads(gest_toml())
        table = {key: gest[key] for key in ("columns", "groups", "polarity", "topic")} | table
    return document.checked(Definition, table)
