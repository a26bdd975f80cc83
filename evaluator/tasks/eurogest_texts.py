"""EuroGEST's texts: a masculine and a feminine one for each sentence, under the templates G, P and N."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from evaluator.datasets.eurogest import Frames

Template = Literal["G", "P", "N"]
"""G: the two versions of a sentence. P, N: a neutral sentence in quotation marks, said by a pronoun's or a noun's person."""

TEMPLATES: tuple[Template, ...] = ("G", "P", "N")

NOUNS = frozenset({"et", "fi", "hu", "tr", "el", "es", "it", "gl"})
"""Languages whose pronoun scaffolds are equal for both genders, or one the beginning of the other: N is their default."""

_SCAFFOLDS = {"P": ("he said", "she said"), "N": ("the man said", "the woman said")}

_OUTER = re.compile(r"^[^\w\s]+|[^\w\s]+$")
"""Punctuation around a sentence, as the released code takes it off: a blank in front of it (French has them) stays."""


def default_template(language: str, kind: str, protocol: str) -> Template:
    """The template of a sentence where none is asked for. The released code of 2026 has P for Italian, where both texts of
    every neutral sentence are then equal."""
    if kind == "gendered":
        return "G"
    if language == "it" and protocol == "published":
        return "P"
    return "N" if language in NOUNS else "P"


def texts(sample: Mapping[str, Any], template: Template, frames: Frames, protocol: str) -> tuple[str, str]:
    """The masculine and the feminine text of a row of `evaluator.datasets.eurogest.ROWS`.

    As published they keep their outer blanks; by default they have none.
    """
    if template == "G":
        pair = (sample["masculine"], sample["feminine"])
    else:
        pair = _quoted(sample["neutral"], sample["language"], template, frames, protocol)
    return pair if protocol != "default" else (pair[0].strip(), pair[1].strip())


def _quoted(sentence: str, language: str, template: Template, frames: Frames, protocol: str) -> tuple[str, str]:
    begin, end = frames.quotes[language]
    if language == "en" and protocol == "published-2025":
        end = end.lstrip(",")  # all that differs between the two versions of the file of quotation marks
    quoted = f"{begin}{_OUTER.sub('', sentence.strip())}{end}"
    masculine, feminine = (frames.scaffolds[name][language] for name in _SCAFFOLDS[template])
    return f"{quoted} {masculine}", f"{quoted} {feminine}"
