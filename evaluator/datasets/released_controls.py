"""Race and profession controls drawn as the word-filling paper's released code draws them (`--protocol published`).

`evaluator.datasets.word_filling.drawn_controls` draws with better rules. Here a term may be found inside another word (Oman in
woman) or in the keyword, only its first occurrence is replaced, in the list's letter case, and the terms drawn may be equal to
each other and to the term itself.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from evaluator.datasets.word_filling import DRAWS, Drawing, control_terms, with_controls
from evaluator.vocabulary import Samples

_PUNCTUATION = '"!?.,'
"""Taken out of a keyword's brackets at its end. The released code goes through them in an arbitrary order, which makes a
difference for the brackets of one sentence of StereoSet; in this order it leaves all of them outside."""


def released_controls(source: Samples, bias_type: str) -> Samples:
    """Quadruples with DRAWS control groups an example, always the same (see `with_controls`).

    `source` is StereoSet's English file in the file's order of examples.
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
    """The word in brackets, with the signs at its end left outside."""
    marked = f"<{word}>"
    for sign in _PUNCTUATION:
        marked = marked.replace(f"{sign}>", f">{sign}")
    return marked


def _term(pair: tuple[str, str], lists: list[list[str]]) -> str | None:
    """The longest listed term that both sentences hold, the first one of several."""
    texts = [sentence.lower() for sentence in pair]
    held = [term for terms in lists for term in terms if all(term.lower() in text for text in texts)]
    return max(held, key=len, default=None)


def _replaced(sentence: str, term: str, drawn: str) -> str:
    at = sentence.lower().index(term.lower())
    return sentence[:at] + drawn + sentence[at + len(term) :]
