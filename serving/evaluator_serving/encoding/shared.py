"""Tokens shared by two texts, each masked one at a time (method.md §3, cs)."""

from difflib import SequenceMatcher

from evaluator_serving.encoding.text import TextTokenizer, Tokens, check_different, check_text
from evaluator_serving.requests import SharedTokens
from evaluator_serving.rows import Coverage, EncodedCandidate, Row, read_at


def encode(request: SharedTokens, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """One row for each shared token of each text; texts without shared tokens have two empty candidates.

    If texts differ only in case, an uncased model shares all tokens, and both scores are equal.
    """
    check_text(request.first, "first text")
    check_text(request.second, "second text")
    first, second = text.tokens(request.first), text.tokens(request.second)
    by_case = request.first.casefold() == request.second.casefold()
    unknown = text.unk_id in first.ids  # then they may differ in words that the tokenizer doesn't know, which are counted
    if not by_case and not unknown:
        check_different([(request.first,), (request.second,)], [first.ids, second.ids])
    own, other = _words(first), _words(second)
    # autojunk would drop frequent tokens of long texts from the match.
    matcher = SequenceMatcher(None, [first.ids[i] for i in own], [second.ids[i] for i in other], autojunk=False)
    matches = [(own[a + i], other[b + i]) for a, b, size in matcher.get_matching_blocks() for i in range(size)]
    rows: list[Row] = []
    candidates = []
    for tokens, positions in ((first, [a for a, _ in matches]), (second, [b for _, b in matches])):
        reads = tuple(read_at(len(rows) + i, 0) for i in range(len(positions)))
        candidates.append(EncodedCandidate(tuple(tokens.ids[at] for at in positions), reads))
        rows += [_one_masked(tokens, at, text.mask_id) for at in positions]
    return rows, candidates, text.coverage(first.ids) + text.coverage(second.ids)


def _words(tokens: Tokens) -> list[int]:
    """Positions of the text's tokens, without the tokenizer's template."""
    return [i for i, special in enumerate(tokens.special) if not special]


def _one_masked(tokens: Tokens, at: int, mask: int) -> Row:
    return Row("masked", (*tokens.ids[:at], mask, *tokens.ids[at + 1 :]), ((at, tokens.ids[at]),))
