"""How a language model is asked for a translation: the program's own words, or a file of the user's (TOML)."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator

from evaluator.datasets.eurogest import LANGUAGES
from evaluator.toml_file import Document, Table
from evaluator_serving.chats import Turn
from evaluator_serving.errors import InputError

NAMES = LANGUAGES | {
    "be": "Belarusian", "hi": "Hindi", "id": "Indonesian", "is": "Icelandic", "ja": "Japanese", "ko": "Korean", "sr": "Serbian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""What languages are called in a prompt; a prompt's file may name others."""


class _Example(Table):
    source: str = Field(alias="from", min_length=1)
    target: str = Field(alias="to", min_length=1)


class _File(Table):
    prompt: str = Field(min_length=1, description="the question, with {text} and {language}")
    system: str | None = Field(None, min_length=1)
    languages: dict[str, str] = Field(default_factory=dict)
    examples: dict[str, list[_Example]] = Field(default_factory=dict)

    @field_validator("prompt")
    @classmethod
    def _marked(cls, prompt: str) -> str:
        if prompt.count("{text}") != 1:
            raise ValueError("the prompt must hold {text} exactly once")
        if "{language}" not in prompt:
            raise ValueError("the prompt must hold {language}")
        return prompt.strip("\n")


@dataclass(frozen=True, slots=True)
class TranslationPrompt:
    """A question; `text` is the TOML that it was read from.

    Attributes:
        prompt, system: what is said, with {text} (the prompt alone) and {language}.
        languages: names by code, besides NAMES.
        examples: (English, translation) pairs by code, shown before the question.
    """

    prompt: str
    system: str | None
    languages: Mapping[str, str]
    examples: Mapping[str, tuple[tuple[str, str], ...]]
    text: str

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """From a file's text. Raises InputError with a line for each mistake: `where` (its file), line, key."""
        document = Document(where, text)
        found = document.checked(_File, document.content())
        examples = {code: tuple((one.source, one.target) for one in pairs) for code, pairs in found.examples.items()}
        return cls(found.prompt, found.system, found.languages, examples, text)

    @property
    def mark(self) -> str:
        """Sixteen digits that tell this prompt from others; part of the answers' identity."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def language(self, code: str) -> str:
        """What a language is called. Raises InputError for one without a name."""
        name = self.languages.get(code) or NAMES.get(code)
        if name is None:
            raise InputError(f'no name for language {code!r}: give one in --prompt FILE ([languages], {code} = "…")')
        return name

    def turns(self, text: str, code: str) -> tuple[Turn, ...]:
        """The question about a text, with what comes before it. The text may hold anything, markers too."""
        name = self.language(code)
        turns = [Turn("system", self.system.replace("{language}", name))] if self.system else []
        for source, target in self.examples.get(code, ()):
            turns += [Turn("user", self._asked(source, name)), Turn("assistant", target)]
        return (*turns, Turn("user", self._asked(text, name)))

    def _asked(self, text: str, name: str) -> str:
        said = {"text": text, "language": name}
        return re.sub(r"\{(text|language)\}", lambda match: said[match[1]], self.prompt)


def own_prompt() -> TranslationPrompt:
    """The program's."""
    return TranslationPrompt.parse(Path(__file__).with_name("translate.toml").read_text("utf8"), "translate.toml")


def given_prompt(path: Path) -> TranslationPrompt:
    """A file's. Raises InputError."""
    return TranslationPrompt.parse(Document.read(path, "--prompt wants a TOML file").text, str(path))
