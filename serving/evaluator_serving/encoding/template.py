"""Variables of a chat template besides the turns: thinking, and the date."""

import json
from string import ascii_letters
from typing import Any

from evaluator_serving.chats import Day
from evaluator_serving.models.checkpoint import files_beside_weights
from evaluator_serving.models.source import ModelSource
from evaluator_serving.thoughts import SWITCHES

_FLAGS = ("", *"-_0^#")
"""What may stand between the % and the letter of a strftime directive (`%-d`)."""

_DATED = (
    "{% macro strftime_now(format) %}{% for part in format.split('%%') %}{{ '' if loop.first else '%' }}"
    "{% set pieces = part.split('%') %}{{ pieces[0] }}{% for piece in pieces[1:] %}"
    "{% set end = 2 if piece[:1] in '-_0^#' else 1 %}{{ DIRECTIVES.get(piece[:end], '%' + piece[:end]) + piece[end:] }}"
    "{% endfor %}{% endfor %}{% endmacro +%}"
)
"""A macro in Jinja that formats the date of DIRECTIVES as strftime does. The + keeps a newline that follows."""


def values(source: ModelSource, thinking: str | None = None) -> dict[str, Any]:
    """Variables for a model's chat template; `thinking` replaces the source's value."""
    return _thinking(source.thinking if thinking is None else thinking) | _date(source)


def dated(text: str, day: Day) -> str:
    """A chat template whose `strftime_now` returns the given date.

    transformers asks the clock there, and since 5.22 passes no functions to a template that could replace it.
    """
    if "strftime_now" not in text:
        return text
    directives = {flag + letter: day.strftime(f"%{flag}{letter}") for flag in _FLAGS for letter in ascii_letters}
    return _DATED.replace("DIRECTIVES", json.dumps(directives)) + text


def without_switch(thinking: str) -> str:
    """The value with which a template must render differently than with `thinking` if it has such a switch."""
    return {"on": "off", "off": "on"}.get(thinking, "none" if thinking != "none" else "high")


def writes_date(source: ModelSource) -> bool:
    """Whether a model's chat template includes the date."""
    named = [b"strftime_now"] + ([b"date_string"] if source.day and source.day.given else [])
    files = files_beside_weights(source.path)
    templates = [file.read_bytes() for file in files if file.name == "tokenizer_config.json" or "chat_template" in file.name]
    return any(name in template for template in templates for name in named)


def _thinking(thinking: str) -> dict[str, Any]:
    if thinking in ("on", "off"):
        return dict.fromkeys(SWITCHES, thinking == "on")
    return {"reasoning_effort": thinking} if thinking else {}


def _date(source: ModelSource) -> dict[str, Any]:
    """The date for templates that have a fixed one unless they get another."""
    day = source.day
    return {"date_string": day.strftime("%d %b %Y")} if day and day.given else {}
