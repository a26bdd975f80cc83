"""Race and profession controls as drawn by the word-filling paper's released code (`--protocol published`).

The default is `evaluator.datasets.word_filling.drawn_controls`. Here a term may match inside another word (Oman in woman) or
in the keyword, only its first occurrence is replaced, in the list's letter case, and drawn terms may equal each other or the
term itself.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from evaluator.datasets.word_filling import DRAWS, Drawing, control_terms, with_controls
from evaluator.vocabulary import Samples

_PUNCTUATION = '"!?.,'
"""Moved out of a keyword's brackets at its end. The released code uses an arbitrary order, which affects one sentence of
StereoSet; this order moves all of them out."""


def released_controls(source: Samples, bias_type: str) -> Samples:
    """Quadruples with DRAWS control groups per example, the same in every call (see `with_controls`).

    `source`: StereoSet's English file, with the file's order of examples.
    """
    lists = control_terms(bias_type, stripped=False)

    def drawn(example: Mapping[str, Any], pair: tuple[str, str]) -> tuple[str, Sequence[str]] | None:
        term = _term(pair, lists)
        if term is None:
            return None
        terms = next(some for some in lists if term in some)
        draw = random.Random(pair[0])
        return term, [draw.choice(terms) for _ in range(DRAWS)]

    return with_controls(source, bias_type, Drawing(_bracketed, drawn, _replaced, "no listed group term"))


def _bracketed(word: str) -> str:
    """The word in brackets, without the punctuation at its end."""
    marked = f"<{word}>"
    for sign in _PUNCTUATION:
        marked = marked.replace(f"{sign}>", f">{sign}")
    return marked


def _term(pair: tuple[str, str], lists: list[list[str]]) -> str | None:
    """The longest listed term in both sentences; the first of several."""
    texts = [sentence.lower() for sentence in pair]
    shared = [term for terms in lists for term in terms if all(term.lower() in text for text in texts)]
    return max(shared, key=len, default=None)


def _replaced(sentence: str, term: str, drawn: str) -> str:
    at = sentence.lower().index(term.lower())
    return sentence[:at] + drawn + sentence[at + len(term) :]
