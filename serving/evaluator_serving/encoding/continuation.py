"""Continuations for generative (causal) models: candidates after a context (method.md §1.2, §2)."""

from collections.abc import Sequence

from evaluator_serving.encoding.text import TextTokenizer, check_different, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation
from evaluator_serving.rows import Coverage, EncodedCandidate, Head, Read, Row

Asked = tuple[list[Row], tuple[int, ...], tuple[int, ...]]
"""A candidate's rows, the tokens that are read from them, and all its tokens."""


def encode(request: Continuation, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """Rows of a continuation; see `Continuation` for what each method asks."""
    if request.method == "to_end":
        raise InputError("the to_end method is for encoder-decoder models")
    if request.method == "start_text" and request.context:
        raise InputError("the start_text method scores whole texts: its context must be empty")
    one = {"conditional": _conditional, "last_token": _last_token, "start_text": _start_text}
    context = _with_specials(request.context, text)
    coverage = text.coverage(context[text.opening_length :])
    rows: list[Row] = []
    candidates = []
    whole = []
    for candidate in request.candidates:
        check_text(candidate, "candidate")
        inputs, tokens, own = one[request.method](context, request.context, candidate, text)
        text.check_continuation(request.context, candidate, own)
        coverage += text.coverage(own)
        reads = tuple(Read(len(rows) + r, lookup) for r, row in enumerate(inputs) for lookup in range(len(row.lookups)))
        rows += inputs
        candidates.append(EncodedCandidate(tokens, reads))
        whole.append(own)
    check_different([(candidate,) for candidate in request.candidates], whole)
    return rows, candidates, coverage


def follow(prefix: Sequence[int], whole: Sequence[int], candidate: str) -> int:
    """Where a candidate's tokens begin in `whole` (context and candidate), given the context's own tokens `prefix`.

    That is behind the last token they have in common: a token that straddles the boundary is the candidate's. Raises
    InputError where nothing is left for the candidate.
    """
    start = 0
    while start < min(len(prefix), len(whole)) and prefix[start] == whole[start]:
        start += 1
    if start == len(whole):
        raise InputError(f"{candidate!r} yields no token after its context")
    return start


def reading(head: Head, ids: Sequence[int], start: int, encoder_ids: tuple[int, ...] | None = None) -> Row:
    """The row that reads each of ids[start:] at the position before it; the last token itself needn't be computed."""
    lookups = tuple((at - 1, ids[at]) for at in range(start, len(ids)))
    return Row(head, tuple(ids[:-1]), lookups, encoder_ids=encoder_ids)


def _with_specials(written: str, text: TextTokenizer) -> tuple[int, ...]:
    """Ids of a text behind the tokenizer's own special tokens and the chat prefix, with exactly one BOS."""
    ids = text.prompt_ids(written)
    return ids if text.front and ids[: len(text.front)] == text.front else (*text.front, *ids)


def _conditional(prefix: tuple[int, ...], context: str, candidate: str, text: TextTokenizer) -> Asked:
    whole = _with_specials(context + candidate, text)
    start = follow(prefix, whole, candidate)
    if start == 0:  # a first token is predicted from something: BOS, or end-of-text as GPT-2 was trained
        whole, start = (text.start_id, *whole), 1
    return [reading("causal", whole, start)], whole[start:], whole[start:]


def _last_token(prefix: tuple[int, ...], _context: str, candidate: str, text: TextTokenizer) -> Asked:
    alone = text.ids(candidate.lstrip(" ") if text.puts_space_in_front() else candidate)
    text.check_word(candidate, alone)
    ids = prefix or (text.start_id,)
    return [Row("causal", ids, ((len(ids) - 1, alone[-1]),))], alone[-1:], alone


def _start_text(_prefix: tuple[int, ...], _context: str, candidate: str, text: TextTokenizer) -> Asked:
    tokens = text.tokens(candidate)
    ids, own = tokens.ids, tuple(i for i, special in zip(tokens.ids, tokens.special, strict=True) if not special)
    text.check_word(candidate, own[:1])
    first = Row("causal", (text.start_text_id,), ((0, ids[0]),))
    return ([first, reading("causal", ids, 1)] if len(ids) > 1 else [first]), ids, own
