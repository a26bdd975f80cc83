"""Continuations for encoder-decoder models: candidates in the decoder, after its start token (method.md §2)."""

from evaluator_serving.encoding import masked
from evaluator_serving.encoding.continuation import follow, reading
from evaluator_serving.encoding.text import TextTokenizer, check_different, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.requests import SENTINEL, Continuation, Masked
from evaluator_serving.rows import GREEDY, Coverage, EncodedCandidate, Row, reads_of


def encode(request: Continuation, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """One row per candidate; the decoder reads its start token, the context (a span sentinel) and the candidate."""
    if request.method not in ("conditional", "to_end"):
        raise InputError(f"encoder-decoder models have no {request.method} method")
    front = (_start_id(text), *text.front)
    end = (text.end_id,) if request.method == "to_end" else ()
    check_text(request.encoder or "", "encoder text")
    encoder_ids = _ids(request.encoder or "", text, special=True)
    coverage = text.coverage(encoder_ids)
    prefix = front + _ids(request.context, text)
    rows: list[Row] = []
    candidates = []
    for candidate in request.candidates:
        check_text(candidate, "candidate")
        whole = front + _ids(request.context + candidate, text)
        start = follow(prefix, whole, candidate)
        text.check_continuation(request.context, candidate, whole[start:])
        coverage += text.coverage(whole[start:])
        whole += end
        row = reading("seq2seq", whole, start, encoder_ids)
        candidates.append(EncodedCandidate(whole[start:], reads_of(len(rows), len(row.lookups))))
        rows.append(row)
    check_different([(candidate,) for candidate in request.candidates], [candidate.tokens for candidate in candidates])
    return rows, candidates, coverage


def encode_masked(request: Masked, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """One row per token: the encoder reads the text with a sentinel as mask, the decoder its start token and the sentinel.

    With `written` the decoder generates its second token.
    """
    if request.method not in ("single", "written"):
        raise InputError(f"encoder-decoder models have no {request.method} method")
    start_id = _start_id(text)
    ids = (start_id, *text.front, text.sentinel_id) if request.method == "single" else (start_id, GREEDY)
    inputs, candidates, coverage = masked.encode(request, text, sentinel=True)
    at = len(ids) - 1
    return [Row("seq2seq", ids, ((at, row.lookups[0][1]),), encoder_ids=row.ids) for row in inputs], candidates, coverage


def _ids(written: str, text: TextTokenizer, *, special: bool = False) -> tuple[int, ...]:
    """Ids of a text, in which the first span sentinel is a control token."""
    if SENTINEL in written:
        return text.marked(written, text.sentinel_id, special=special)
    return text.tokens(written).ids if special else text.ids(written)


def _start_id(text: TextTokenizer) -> int:
    start_id = getattr(text.config, "decoder_start_token_id", None)
    if start_id is None:
        raise InputError("the model's configuration has no decoder_start_token_id")
    return int(start_id)
