"""Continuations for encoder-decoder models: candidates in the decoder, after its start token (method.md §2)."""

from dataclasses import replace

from evaluator_serving.encoding import masked
from evaluator_serving.encoding.continuation import follow, reading
from evaluator_serving.encoding.text import TextTokenizer, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation, Masked
from evaluator_serving.rows import GREEDY, EncodedCandidate, Read, Row


def encode(request: Continuation, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate]]:
    """One row a candidate; the decoder reads its start token, the context (a span sentinel) and the candidate."""
    if request.method != "conditional":
        raise InputError(f"encoder-decoder models have no {request.method} method")
    start_id = _start_id(text)
    check_text(request.encoder or "", "encoder text")
    encoder_ids = text.tokens(request.encoder or "").ids
    front = (start_id, *text.front)
    rows: list[Row] = []
    candidates = []
    for candidate in request.candidates:
        check_text(candidate, "candidate")
        whole = front + text.ids(request.context + candidate)
        start = follow(front + text.ids(request.context), whole, candidate)
        if len(candidate.split()) == 1:
            text.check_word(candidate, whole[start:])
        row = reading("seq2seq", whole, start, encoder_ids)
        candidates.append(EncodedCandidate(whole[start:], tuple(Read(len(rows), lookup) for lookup in range(len(row.lookups)))))
        rows.append(row)
    return rows, candidates


def encode_masked(request: Masked, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate]]:
    """A row a token: the encoder reads the text with a sentinel as its mask, the decoder its start token and the sentinel.

    With `single_greedy` the decoder's second token is the model's own choice.
    """
    if request.method not in ("single", "single_greedy"):
        raise InputError(f"encoder-decoder models have no {request.method} method")
    front = (_start_id(text), *text.front)
    ids = (*front, text.sentinel_id if request.method == "single" else GREEDY)
    inputs, candidates = masked.encode(replace(request, method="single"), text, text.sentinel_id)
    at = len(ids) - 1
    return [Row("seq2seq", ids, ((at, row.lookups[0][1]),), encoder_ids=row.ids) for row in inputs], candidates


def _start_id(text: TextTokenizer) -> int:
    start_id = getattr(text.config, "decoder_start_token_id", None)
    if start_id is None:
        raise InputError("the model's config names no decoder_start_token_id")
    return int(start_id)
