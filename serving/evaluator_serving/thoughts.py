"""What a reply says after its thinking: reasoning models write their thoughts first, in tags or in a field of their own.

Every use of a reply reads it by `read_replies`; stored replies keep their thoughts. The rule:

- The answer is what follows the last closing tag. Where nothing follows it, it is what stands outside the thoughts.
- A closing tag without an opening one ends a thought all the same: the chat template had written the opening tag.
- A thought that isn't closed is no answer, whatever it says.
- A tag in quotation marks is a mention of it, unless it is the only tag that could close the thought.

Tags are those of the models known today, in capitals or not: `<think>`, `<thinking>`, `<thought>`, `<reasoning>` and alike,
also as parts of names (`<seed:think>`, `<longcat_think>`), `[THINK]`, `◁think▷`, `<|begin_of_thought|>`, `<|START_THINKING|>`,
the channels of gpt-oss, Gemma, Inkling and others, and the headings of Granite, Apriel and HuatuoGPT.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OPENING = 16
"""Most tokens of the tag with which a prompt may open the thinking of its answer."""
SWITCHES = ("enable_thinking", "thinking")
"""What chat templates call the variable that switches thinking on or off."""

CHOICE = r"[A-Za-z0-9][\w.-]*"
"""How thinking may be asked for: `on`, `off`, or a template's or server's own word for a level of effort."""

_WORD = r"""(?:[\w.-]+[:|_-])?(?:think(?:ing)?|thoughts?|reason(?:ing)?|rationale|reflection|analysis|scratchpad|monologue|cot)
    (?:_\w+)?\b"""
_OPEN = rf"""
    <\s*{_WORD}[^<>]*(?<!/)>
  | \[\s*THINK(?:ING)?\s*\] | ◁\s*think\s*▷ | <(?:unused|ctrl)94>
  | <\|(?:\w+:)?(?:(?:begin|start|content)_(?:of_)?)?(?:think(?:ing)?|thought|reasoning)(?:_(?:begin|start))?(?::\w+)?\|>
  | <\|inner_prefix\|> | \bto=self<\|message\|>
  | <\|open\|>\s*think\s*<\|sep\|>
  | <\|channel>(?:\s*thought\b)?
  | <\|channel\|>\s*(?:analysis|commentary)\b[^<]*(?:<\|message\|>)?
  | \Aanalysis(?-i:(?=[A-Z]))
"""
_CLOSE = rf"""
    <\s*/\s*{_WORD}[^<>]*>
  | \[\s*/\s*THINK(?:ING)?\s*\] | ◁\s*/\s*think\s*▷ | <(?:unused|ctrl)95>
  | <\|(?:\w+:)?(?:end_(?:of_)?|/)(?:think(?:ing)?|thought|reasoning)(?::\w+)?\|>
  | <\|(?:think(?:ing)?|thought|reasoning)_end\|> | <\|inner_suffix\|> | <\|content(?:_text)?\|> | \bto=user<\|message\|>
  | <\|close\|>\s*think\s*<\|sep\|>
  | <channel\|>
  | (?:<\|start\|>)?(?:assistant)?<\|channel\|>\s*final\b[^<]*<\|message\|>
  | assistantfinal
"""
_TAG = re.compile(rf"(?P<open>{_OPEN})|(?P<close>{_CLOSE})", re.VERBOSE | re.IGNORECASE)
_OPENED = re.compile(rf"(?:{_OPEN})\s*\Z", re.VERBOSE | re.IGNORECASE)
_HEADINGS = (
    (r"\A\s*Here(?:['’]s| is) my thought process:", r"Here(?:['’]s| is) my response:"),
    (r"\A\s*Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]"),
    (r"\A\s*## Thinking\s*\n", r"\n## Final Response\s*\n"),
)
"""How models without tags announce their thoughts and their answer."""
_WRAPPER = re.compile(
    r"""\A\s*(?:<(?:answer|response|output|final|final_answer)>|<\|begin_of_(?:solution|answer|box)\|>|<\|START_RESPONSE\|>
    |<\|open\|>\s*response\s*<\|sep\|>)
    |(?:</(?:answer|response|output|final|final_answer)>|<\|end_of_(?:solution|answer|box)\|>|<\|END_RESPONSE\|>
    |<\|close\|>\s*response\s*<\|sep\|>|\[END\ FINAL\ RESPONSE\]
    |<\|(?:return|end|eo[mt]|end_message|content_model_end_sampling)\|>)\s*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""What some models put around an answer after a thought."""
_QUOTES = "\"'`“”‘’«»„"
_PIECES = re.compile(r"<\|(?:channel|message|open|close|sep|(?:START|END)_RESPONSE)\|>")
"""Control tokens that tags are made of, or that stand around an answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """A reply as it is read.

    Attributes:
        answer: what was said after the thinking; empty where nothing was.
        thought: whether something was thought.
        cut: whether it ended within the thinking, or at the most tokens before a word of the answer.
    """

    answer: str
    thought: bool = False
    cut: bool = False


def read_replies(replies: Iterable[tuple[str, str, str]]) -> list[Said]:
    """What one model's replies (text, finish, thought: see `chats.Reply`) say, in their order.

    Of one model, for a chat template at a server may open every thought: where some replies hold a closing tag alone, a reply
    that was cut before its own is a thought.
    """
    found = [(text, finish, thought, _tags(text, finish)) for text, finish, thought in replies]
    opened = any(_closes_alone(tags) for *_, tags in found)
    return [_read(*reply, opened=opened) for reply in found]


def opening(prompt: str) -> str:
    """The tag with which a prompt opens the thinking of its answer, the space behind it included; empty where it doesn't."""
    found = _OPENED.search(prompt)
    return found[0] if found else ""


def is_tag(token: str) -> bool:
    """Whether a control token's text is a tag of thinking, or a part of one, and is kept in a reply."""
    return any(pattern.fullmatch(token) for pattern in (_TAG, _PIECES))


def _read(text: str, finish: str, thought: str, tags: Sequence[re.Match[str]], *, opened: bool) -> Said:
    ended, apart = finish == "length", bool(thought.strip())
    if not tags:
        if opened and ended and not apart:
            return Said("", thought=True, cut=True)
        return Said(text, apart, ended and not text.strip())
    if tags[-1].lastgroup == "open":
        return Said("", thought=True, cut=True)
    outside, inside = _parts(tags)
    answer = tags[-1].string[tags[-1].end() :]
    if not ended and not answer.strip():
        answer = next((part for part in reversed(outside) if part.strip()), "")
    while (bare := _WRAPPER.sub("", answer)) != answer:
        answer = bare
    return Said(answer, apart or any(map(str.strip, inside)), ended and not answer.strip())


def _parts(tags: Sequence[re.Match[str]]) -> tuple[list[str], list[str]]:
    """What stands outside and what inside of thoughts, up to the last tag; before a lone closing tag all is thought."""
    outside: list[str] = []
    inside: list[str] = []
    depth, at = int(_closes_alone(tags)), 0
    for tag in tags:
        (inside if depth else outside).append(tag.string[at : tag.start()])
        depth = depth + 1 if tag.lastgroup == "open" else max(0, depth - 1)
        at = tag.end()
    return outside, inside


def _closes_alone(tags: Sequence[re.Match[str]]) -> bool:
    return bool(tags) and tags[0].lastgroup == "close"


def _tags(text: str, finish: str) -> list[re.Match[str]]:
    """The tags of a text, headings read as such; mentions are left out."""
    for begin, end in _HEADINGS:
        text, found = re.subn(begin, "<think>", text, count=1)
        text = re.sub(end, "</think>", text, count=1) if found else text
    tags = list(_TAG.finditer(text))
    plain = [tag for tag in tags if not _is_quoted(tag)]
    open_ = {tag.lastgroup for tag in plain} == {"open"} and finish != "length"
    return [tag for tag in tags if tag in plain or tag.lastgroup == "close"] if open_ else plain


def _is_quoted(tag: re.Match[str]) -> bool:
    before, behind = tag.string[: tag.start()][-1:], tag.string[tag.end() :][:1]
    return bool(before and behind) and before in _QUOTES and behind in _QUOTES
