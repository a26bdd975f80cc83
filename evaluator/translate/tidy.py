"""From what a language model said, its thoughts left out, to a translation: what it wrote around it is taken off by rules.

In this order, each once, for a source text of one line:

1. A first line that ends in a colon and has others below it is an announcement ("Here is the translation:") and goes.
2. Of what is left the first paragraph counts; what follows a blank line is a remark. Its lines are joined.
3. A label in front goes: `Translation:`, `Slovak:`, `Slovak translation:`, also in bold (`**Slovak:**`).
4. A remark in brackets at the end that calls itself one goes: `(Note: …)`, `[Literally: …]`.
5. Quotation marks, backquotes or asterisks around the whole go, where the source has none around it.

Of a source of several lines only the outer space goes. An answer that the server calls a refusal, or that begins as one where
the source doesn't, is `refused`; one of which nothing is left is `empty`. Neither is a translation: both become the empty text.
"""

import re
from dataclasses import dataclass
from typing import Literal

from evaluator_serving.chats import REFUSAL, Finish

Outcome = Literal["translated", "empty", "refused", "cut", "thinking"]
"""`cut`: it ended at the most tokens; what there is of it stands. `thinking`: it ended there before the answer began."""

_QUOTES = (
    ('"', '"'), ("“", "”"), ("„", "“"), ("„", "”"), ("‚", "‘"), ("‘", "’"), ("'", "'"), ("«", "»"), ("»", "«"), ("‹", "›"),
    ("「", "」"), ("`", "`"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tidied:
    """A translation, and what became of the question."""

    text: str
    outcome: Outcome


def tidied(said: str, finish: Finish, source: str, language: str) -> Tidied:
    """What was said to `source` as a translation; `language` is the language's English name."""
    begun = re.match(REFUSAL, said.strip().lower()) and not re.match(REFUSAL, source.strip().lower())
    if finish in ("refused", "filtered") or begun:
        return Tidied("", "refused")
    text = said.strip()
    if "\n" not in source.strip():
        text = _line(text, source, language)
    if not text:
        return Tidied("", "empty")
    return Tidied(text, "cut" if finish == "length" else "translated")


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
