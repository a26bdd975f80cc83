"""Extract the translation from a language model's answer (without its reasoning).

If the source has one line, these parts are removed, in this order and once each:

1. A first line that ends in a colon, if other lines follow ("Here is the translation:").
2. Everything after the first paragraph. The paragraph's lines are joined.
3. A label at the beginning: `Translation:`, `Slovak:`, `Slovak translation:`, also in bold (`**Slovak:**`).
4. A remark in brackets at the end: `(Note: …)`, `[Literally: …]`.
5. Quotation marks, backquotes or asterisks around the whole, unless the source has them too.

If the source has several lines, only outer spaces are removed. An answer is `refused` if the server reports a refusal, or if
it begins like one and the source does not. It is `empty` if nothing is left. Both give an empty translation.
"""

import re
from dataclasses import dataclass
from typing import Literal

from evaluator_serving.chats import REFUSAL, Finish

Outcome = Literal["translated", "empty", "refused", "cut", "thinking"]
"""`cut`: generation stopped at the maximum number of tokens, and the partial translation is used. `thinking`: it stopped there
before the answer began."""

_QUOTES = (
    ('"', '"'), ("“", "”"), ("„", "“"), ("„", "”"), ("‚", "‘"), ("‘", "’"), ("'", "'"), ("«", "»"), ("»", "«"), ("‹", "›"),
    ("「", "」"), ("`", "`"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedTranslation:
    """A translation (empty if there is none) and its outcome."""

    text: str
    outcome: Outcome


def parse_answer(answer: str, finish: Finish, source: str, language: str) -> ParsedTranslation:
    """The translation of `source` in an answer; `language` is the language's English name."""
    refusal = re.match(REFUSAL, answer.strip().lower()) and not re.match(REFUSAL, source.strip().lower())
    if finish in ("refused", "filtered") or refusal:
        return ParsedTranslation("", "refused")
    text = answer.strip()
    if "\n" not in source.strip():
        text = _line(text, source, language)
    if not text:
        return ParsedTranslation("", "empty")
    return ParsedTranslation(text, "cut" if finish == "length" else "translated")


def _line(text: str, source: str, language: str) -> str:
    first, _, rest = text.partition("\n")
    if first.rstrip().rstrip("*").endswith((":", "：")) and rest.strip():
        text = rest.strip()
    text = " ".join(re.split(r"\n\s*\n", text)[0].split("\n")).strip()
    label = rf"(?:{re.escape(language)}(?: translation)?|translation(?: (?:in|to|into) {re.escape(language)})?)"
    text = re.sub(rf"^\**{label}\**\s*[:：]\**\s*", "", text, count=1, flags=re.IGNORECASE)
    text = re.sub(r"\s*[(\[](?:note|notes|literally|lit\.|explanation)\s*:[^)\]]*[)\]]$", "", text, flags=re.IGNORECASE)
    return _bare(text.strip(), source.strip())


def _bare(text: str, source: str) -> str:
    if (
        len(text) > 4
        and text.startswith("**")
        and text.endswith("**")
        and "**" not in text[2:-2]
        and not source.startswith("*")
    ):
        text = text[2:-2].strip()
    for open_, close in _QUOTES:
        whole = len(text) > 1 and text[0] == open_ and text[-1] == close
        if whole and not _around(source) and not set(text[1:-1]) & {open_, close} - {"'", "’"}:
            return text[1:-1].strip()
    return text


def _around(text: str) -> bool:
    return any(len(text) > 1 and text[0] == open_ and text[-1] == close for open_, close in _QUOTES)
