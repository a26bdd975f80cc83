"""Chats for generative models, rendered by the model's chat template."""

from dataclasses import replace

from evaluator_serving.chats import Chat
from evaluator_serving.encoding.continuation import follow, reading
from evaluator_serving.encoding.text import TextTokenizer, check_different, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Choice
from evaluator_serving.rows import Coverage, EncodedCandidate, Row, reads_of
from evaluator_serving.thoughts import OPENING, opening


def encode(request: Chat, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """The row for a generated answer: the prompt, up to the assistant's turn."""
    turns = text.spoken(request.turns)
    ids = text.chat_ids(turns)
    return [Row("chat", ids, (), chat=replace(request, turns=turns))], [], text.coverage(ids)


def encode_choice(request: Choice, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """One row per candidate, read from the first token that differs from the prompt's."""
    turns = text.spoken(request.turns)
    prefix = text.chat_ids(turns)
    if opened := opening(text.decode(prefix[-OPENING:])):
        raise InputError(
            f"its chat template starts the reasoning ({opened.strip()}) in place of the answer, so log-probabilities of "
            "answers have no meaning: use --thinking off if the template supports it, or --way text"
        )
    coverage = text.coverage(prefix)
    rows: list[Row] = []
    candidates = []
    for candidate in request.candidates:
        check_text(candidate, "candidate")
        whole = text.chat_ids(turns, candidate)
        start = follow(prefix, whole, candidate)
        coverage += text.coverage(whole[start:])
        row = reading("causal", whole, start)
        candidates.append(EncodedCandidate(whole[start:], reads_of(len(rows), len(row.lookups))))
        rows.append(row)
    check_different([(candidate,) for candidate in request.candidates], [candidate.tokens for candidate in candidates])
    return rows, candidates, coverage
