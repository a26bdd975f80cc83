"""Chats for generative models: the turns as the model's own chat template writes them, and what is read behind them."""

from dataclasses import replace

from evaluator_serving.chats import Chat
from evaluator_serving.encoding.continuation import follow, reading
from evaluator_serving.encoding.text import TextTokenizer, check_different, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Choice
from evaluator_serving.rows import Coverage, EncodedCandidate, Row, read_at
from evaluator_serving.thoughts import OPENING, opening


def encode(request: Chat, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """The row that is answered in words: the prompt, up to where the assistant begins."""
    turns = text.spoken(request.turns)
    ids = text.chat_ids(turns)
    return [Row("chat", ids, (), chat=replace(request, turns=turns))], [], text.coverage(ids)


def encode_choice(request: Choice, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """A row a candidate, read from the first token on that isn't the prompt's."""
    turns = text.spoken(request.turns)
    prefix = text.chat_ids(turns)
    if opened := opening(text.decode(prefix[-OPENING:])):
        raise InputError(
            f"its chat template opens a thought ({opened.strip()}) where the answer would begin, so that log-probabilities of "
            "answers mean nothing there: use --thinking off if the template has that switch, or --way text"
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
        candidates.append(EncodedCandidate(whole[start:], tuple(read_at(len(rows), i) for i in range(len(row.lookups)))))
        rows.append(row)
    check_different([(candidate,) for candidate in request.candidates], [candidate.tokens for candidate in candidates])
    return rows, candidates, coverage
