"""The prompt for translations by a language model: the default, or a user's TOML file."""

import re
from pathlib import Path

from pydantic import Field, field_validator

from evaluator.datasets.eurogest import LANGUAGES
from evaluator.toml_file import Document, Table, TextTable
from evaluator_serving.chats import Turn
from evaluator_serving.errors import InputError

NAMES = LANGUAGES | {
    "be": "Belarusian", "hi": "Hindi", "id": "Indonesian", "is": "Icelandic", "ja": "Japanese", "ko": "Korean", "sr": "Serbian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""Language code → name in prompts; a prompt file may add others."""


class _Example(Table):
    source: str = Field(alias="from", min_length=1)
    target: str = Field(alias="to", min_length=1)


class TranslationPrompt(TextTable):
    """A prompt template.

    Attributes:
        prompt, system: user and system message with {language}; the user message also with {text}.
        languages: language code → name, in addition to NAMES.
        examples: language code → pairs of texts for few-shot prompting.
    """

    prompt: str = Field(min_length=1, description="the prompt, with {text} and {language}")
    system: str | None = Field(None, min_length=1)
    languages: dict[str, str] = Field(default_factory=dict)
    examples: dict[str, list[_Example]] = Field(default_factory=dict)

    @field_validator("prompt")
    @classmethod
    def _marked(cls, prompt: str) -> str:
        if prompt.count("{text}") != 1:
            raise ValueError("the prompt must contain {text} exactly once")
        if "{language}" not in prompt:
            raise ValueError("the prompt must contain {language}")
        return prompt.strip("\n")

    def language(self, code: str) -> str:
        """A language's name. Raises InputError if it is unknown."""
        name = self.languages.get(code) or NAMES.get(code)
        if name is None:
            raise InputError(f'language {code!r} has no name: give one in --prompt FILE ([languages], {code} = "…")')
        return name

    def turns(self, text: str, code: str) -> tuple[Turn, ...]:
        """The chat for a text: system message, examples, prompt. Braces in the text are not placeholders."""
        name = self.language(code)
        turns = [Turn("system", self.system.replace("{language}", name))] if self.system else []
        for example in self.examples.get(code, ()):
            turns += [Turn("user", self._filled(example.source, name)), Turn("assistant", example.target)]
        return (*turns, Turn("user", self._filled(text, name)))

    def _filled(self, text: str, name: str) -> str:
        values = {"text": text, "language": name}
        return re.sub(r"\{(text|language)\}", lambda match: values[match[1]], self.prompt)


def default_prompt() -> TranslationPrompt:
    """The built-in prompt."""
    return TranslationPrompt.parse(Path(__file__).with_name("translate.toml").read_text("utf8"), "translate.toml")


def read_prompt(path: Path) -> TranslationPrompt:
    """A user's prompt file. Raises InputError."""
    return TranslationPrompt.parse(Document.read(path, "--prompt needs a TOML file").text, str(path))
