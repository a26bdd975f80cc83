"""From two texts to the requests that compare them. Pure, tokenizer-free."""

import re
from bisect import bisect
from difflib import SequenceMatcher

from evaluator_serving.requests import Continuation, Masked

_LAST_SPACE = re.compile(r"\s+(?=\S*\Z)")
_WORD = re.compile(r"\w+|[^\w\s]")


def split(first: str, second: str) -> tuple[str, str, str]:
    """The texts' common beginning, cut back to the end of a word, and what follows it in each.

    What follows begins with the space between the words and is never blank, also where one text is the beginning of the other.
    The beginning is empty where the first words differ.
    """
    shorter = range(1, min(len(first), len(second)) + 1)
    common = first[: bisect(shorter, False, key=lambda length: first[:length] != second[:length])]
    at = len(common)
    while space := _LAST_SPACE.search(common, 0, at):
        at = space.start()
        if at and not first[at:].isspace() and not second[at:].isspace():
            return first[:at], first[at:], second[at:]
    return "", first, second


def compared(first: str, second: str) -> Continuation:
    """log P of each text's remainder behind the common beginning: the difference of the sums is that of the whole texts."""
    context, one, other = split(first, second)
    return Continuation(context, (one, other), "together")


def one_word_apart(first: str, second: str) -> Masked | None:
    """The texts as one with a slot, where they differ in one word (letters, and nothing else); else None."""
    words = [[(match.group(), match.span()) for match in _WORD.finditer(text)] for text in (first, second)]
    own, other = ([word for word, _ in found] for found in words)
    changes = [op for op in SequenceMatcher(None, own, other, autojunk=False).get_opcodes() if op[0] != "equal"]
    if len(changes) != 1 or changes[0][0] != "replace":
        return None
    _, begin, end, other_begin, other_end = changes[0]
    if end - begin != 1 or other_end - other_begin != 1:
        return None
    (one, (start, stop)), (two, (other_start, other_stop)) = words[0][begin], words[1][other_begin]
    parts = first[:start], first[stop:]
    letters = one[0].isalpha() and two[0].isalpha()
    if not letters or parts != (second[:other_start], second[other_stop:]):
        return None
    return Masked(parts, ((one,), (two,)), "sequential")
