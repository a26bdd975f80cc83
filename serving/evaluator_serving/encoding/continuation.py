"""Continuations for generative (causal) models: candidates after a context (method.md §1.2, §2)."""

import itertools
from collections.abc import Callable, Sequence

from evaluator_serving.encoding.text import TextTokenizer, check_different, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.packing import shared
from evaluator_serving.requests import Continuation, ContinuationMethod
from evaluator_serving.rows import Coverage, EncodedCandidate, Head, Row, reads_of

Asked = tuple[list[Row], tuple[int, ...], tuple[int, ...]]
"""A candidate's rows, the tokens that are read from them, and its own tokens."""


def texts(request: Continuation) -> list[str]:
    """The texts that `encode` has tokenized without special tokens."""
    if request.method not in ("conditional", "together"):
        return []
    return [request.context, *(request.context + candidate for candidate in request.candidates)]


def encode(request: Continuation, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """Rows of a continuation; see `Continuation` for the methods."""
    if request.method == "to_end":
        raise InputError("the to_end method is for encoder-decoder models")
    if request.method in _WHOLE and request.context:
        raise InputError(f"the {request.method} method scores whole texts: its context must be empty")
    context = _with_specials(request.context, text)
    coverage = text.coverage(context[text.opening_length :])
    for candidate in request.candidates:
        check_text(candidate, "candidate")
    rows: list[Row] = []
    candidates = []
    whole = []
    asked = _METHODS[request.method](context, request, text)
    for candidate, (inputs, tokens, own) in zip(request.candidates, asked, strict=True):
        text.check_continuation(request.context, candidate, own)
        coverage += text.coverage(own)
        reads = [reads_of(len(rows) + r, len(row.lookups)) for r, row in enumerate(inputs)]
        rows += inputs
        candidates.append(EncodedCandidate(tokens, tuple(itertools.chain.from_iterable(reads))))
        whole.append(own)
    check_different([(candidate,) for candidate in request.candidates], whole)
    return rows, candidates, coverage


def follow(prefix: tuple[int, ...], whole: tuple[int, ...], candidate: str) -> int:
    """Position in `whole` (context and candidate) at which the candidate's tokens begin, given the context's tokens `prefix`.

    This is after the last common token: a token across the boundary belongs to the candidate. Raises InputError if the
    candidate has no token.
    """
    start = len(prefix) if whole[: len(prefix)] == prefix else shared(prefix, whole)
    if start == len(whole):
        raise InputError(f"{candidate!r} yields no token after its context")
    return start


def reading(head: Head, ids: Sequence[int], start: int, encoder_ids: tuple[int, ...] | None = None) -> Row:
    """The row that reads ids[start:], each at the previous position; the last token itself is not computed."""
    lookups = tuple(zip(range(start - 1, len(ids) - 1), ids[start:], strict=True))
    return Row(head, tuple(ids[:-1]), lookups, encoder_ids=encoder_ids)


def _with_specials(written: str, text: TextTokenizer) -> tuple[int, ...]:
    """Ids of a text after the tokenizer's special tokens and the chat prefix, with exactly one BOS."""
    ids = text.prompt_ids(written)
    return ids if text.front and ids[: len(text.front)] == text.front else (*text.front, *ids)


def _conditional(prefix: tuple[int, ...], request: Continuation, text: TextTokenizer) -> list[Asked]:
    wholes = [_with_specials(whole, text) for whole in texts(request)[1:]]
    starts = [follow(prefix, whole, candidate) for whole, candidate in zip(wholes, request.candidates, strict=True)]
    return [_read_from(start, start, whole, text) for start, whole in zip(starts, wholes, strict=True)]


def _together(prefix: tuple[int, ...], request: Continuation, text: TextTokenizer) -> list[Asked]:
    wholes = [_with_specials(whole, text) for whole in texts(request)[1:]]
    starts = [follow(prefix, whole, candidate) for whole, candidate in zip(wholes, request.candidates, strict=True)]
    return [_read_from(min(starts), own, whole, text) for own, whole in zip(starts, wholes, strict=True)]


def _read_from(start: int, own: int, whole: tuple[int, ...], text: TextTokenizer) -> Asked:
    """A text read from token `start` on; its candidate begins at `own`."""
    mine = whole[own:]
    if start == 0:  # a first token is predicted from something: BOS, or end-of-text as GPT-2 was trained
        whole, start = (text.start_id, *whole), 1
    return [reading("causal", whole, start)], whole[start:], mine


def _last_token(prefix: tuple[int, ...], request: Continuation, text: TextTokenizer) -> list[Asked]:
    asked: list[Asked] = []
    for candidate in request.candidates:
        alone = text.ids(candidate.lstrip(" ") if text.puts_space_in_front() else candidate)
        text.check_word(candidate, alone)
        ids = prefix or (text.start_id,)
        asked.append(([Row("causal", ids, ((len(ids) - 1, alone[-1]),))], alone[-1:], alone))
    return asked


def _start_text(_prefix: tuple[int, ...], request: Continuation, text: TextTokenizer) -> list[Asked]:
    asked: list[Asked] = []
    for candidate in request.candidates:
        ids, own = _template_ids(candidate, text)
        text.check_word(candidate, own[:1])
        first = Row("causal", (text.start_text_id,), ((0, ids[0]),))
        asked.append(([first, reading("causal", ids, 1)] if len(ids) > 1 else [first], ids, own))
    return asked


def _whole(_prefix: tuple[int, ...], request: Continuation, text: TextTokenizer) -> list[Asked]:
    texts = [_template_ids(candidate, text) for candidate in request.candidates]
    return [_tail(ids, 1, own, candidate) for (ids, own), candidate in zip(texts, request.candidates, strict=True)]


def _difference(_prefix: tuple[int, ...], request: Continuation, text: TextTokenizer) -> list[Asked]:
    if len(request.candidates) != 2:
        raise InputError(f"the difference method compares two candidates, not {len(request.candidates)}")
    texts = [_template_ids(candidate, text) for candidate in request.candidates]
    (first, _), (second, _) = texts
    shortest = min(len(first), len(second))
    same = shared(first, second)
    starts = [len(ids) - 1 if same == 0 else min(same, shortest - 1) for ids, _ in texts]
    parts = zip(texts, starts, request.candidates, strict=True)
    return [_tail(ids, start, own, candidate) for (ids, own), start, candidate in parts]


def _template_ids(candidate: str, text: TextTokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A text's ids, and the positions of those that are not special."""
    tokens = text.tokens(candidate)
    return tokens.ids, tuple(i for i, special in zip(tokens.ids, tokens.special, strict=True) if not special)


def _tail(ids: tuple[int, ...], start: int, own: tuple[int, ...], candidate: str) -> Asked:
    if len(ids) < 2:
        raise InputError(f"{candidate!r} is a single token, which has no context")
    return [reading("causal", ids, start)], ids[start:], own


_METHODS: dict[ContinuationMethod, Callable[[tuple[int, ...], Continuation, TextTokenizer], list[Asked]]] = {
    "conditional": _conditional,
    "together": _together,
    "last_token": _last_token,
    "start_text": _start_text,
    "whole": _whole,
    "difference": _difference,
}

_WHOLE = ("start_text", "whole", "difference")
"""Methods of whole texts."""
