"""Variables of a chat template besides the turns: thinking, and the date."""

import json
import re
from typing import Any

from evaluator_serving.chats import Day
from evaluator_serving.models.checkpoint import files_beside_weights
from evaluator_serving.models.source import ModelSource
from evaluator_serving.thoughts import SWITCHES

_CLOCK = re.compile(r"""strftime_now\(\s*(?P<quote>['"])(?P<format>.*?)(?P=quote)\s*\)""")


def values(source: ModelSource, thinking: str | None = None) -> dict[str, Any]:
    """Variables and functions for a model's chat template; `thinking` replaces the source's value."""
    return _thinking(source.thinking if thinking is None else thinking) | _date(source)


def dated(text: str, day: Day) -> str:
    """A chat template with the run's date in place of the calls that ask the clock.

    transformers 5.22 and later pass no function to a template: one that computes a date's format raises there.
    """
    return _CLOCK.sub(lambda call: json.dumps(day.strftime(call["format"])), text)


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
    day = source.day
    if day is None:
        return {}
    # A value of the template's own name comes before transformers' function, which asks the clock.
    fixed = {"date_string": day.strftime("%d %b %Y")} if day.given else {}
    return {"strftime_now": day.strftime, **fixed}
