"""Sentence pairs for next-sentence heads (method.md §2)."""

from evaluator_serving.encoding.text import TextTokenizer, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.models.heads import next_label
from evaluator_serving.models.next_sentence import next_sentence
from evaluator_serving.requests import Pair
from evaluator_serving.rows import Coverage, EncodedCandidate, Read, Row


def encode(request: Pair, text: TextTokenizer) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """One row, read at the label that means "is next"."""
    check_text(request.first, "first text")
    check_text(request.second, "second text")
    label = next_label(text.config)
    if label is None:
        raise InputError("the classifier's configuration has no label is_next")
    ours = next_sentence(text.config)
    tokens = text.tokens((ours.prefix if ours else "") + request.first, request.second)
    row = Row("pair", tokens.ids, ((0, label),), tokens.type_ids)
    return [row], [EncodedCandidate((label,), (Read(0, 0),))], text.coverage(tokens.ids)
