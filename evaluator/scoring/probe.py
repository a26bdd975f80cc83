"""One question to one model: the probabilities of words in a text (`evaluator probe`)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation, Masked, Request

SLOT = "[]"


def check_text(text: str, words: Sequence[str]) -> None:
    """Raise InputError for a text or words that are wrong whatever the model is, before it is looked for."""
    if SLOT not in text:
        raise InputError(f"the text {text!r} has no {SLOT}: mark where the words go, e.g. 'The doctor said that [] is late.'")
    if not all(word.strip() for word in words):
        raise InputError("one of the words is empty: give words that can stand in the slot")


def probe_request(text: str, words: Sequence[str], heads: frozenset[str]) -> Request:
    """The request behind `probe`: masked where the model has a masked head, else the continuation of a text ending in [].

    A word that continues a text keeps the space before the slot: `He is a []` asks for ` doctor` after `He is a`.
    """
    parts = tuple(text.split(SLOT))
    if "masked" in heads:
        return Masked(parts, tuple((word,) * (len(parts) - 1) for word in words))
    if len(parts) != 2 or parts[1]:
        raise InputError(f"this is a generative model: the text must end in {SLOT}, as in 'The doctor said that []'")
    context = parts[0]
    bare = context.rstrip(" ")
    return Continuation(bare, tuple(context[len(bare) :] + word for word in words))


def probe(
    model: str,
    text: str,
    words: Sequence[str],
    *,
    engine: str = "auto",
    dtype: str = "float32",
    device: str = "auto",
    chat_template: str = "none",
    batch_tokens: int | None = None,
    extra: Mapping[str, str] | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> list[dict[str, Any]]:
    """Each word's tokens, ids, log-probability (natural logarithm) and probability in the slot [] of a text.

    Raises InputError for a text without a slot, and for a model that is neither masked nor generative.
    """
    check_text(text, words)
    from evaluator_serving.answers import assemble
    from evaluator_serving.checks.verify import is_checked, verify_engine
    from evaluator_serving.choose import choose_engine
    from evaluator_serving.chunks import make_chunk
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.models.known_tokenizer import tokenizer_of
    from evaluator_serving.models.resolving import resolve_here
    from evaluator_serving.opening import open_engine

    allowed = {"allow_pickle": allow_pickle, "trust_remote_code": trust_remote_code}
    source = resolve_here(model, chat_template=chat_template, **allowed)
    if not source.heads & {"masked", "causal"}:
        raise InputError(f"{model} is neither a masked nor a generative model: probe needs one of the two")
    encoded = encoder_for(source).encode(probe_request(text, words, source.heads))
    options = EngineOptions(dtype=dtype, device=device, batch_tokens=batch_tokens, extra=dict(extra or {}))
    # A single question isn't worth exporting a graph for: `auto` means another engine than transformers only where one has
    # what it needs.
    auto = engine == "auto"
    name = choose_engine(source, {row.head for row in encoded.rows}, options, ready=True) if auto else engine
    loaded = open_engine(name, source, options, encoded.rows)
    try:
        if auto and is_checked(name, options.dtype):
            verify_engine(loaded, source, options, encoded.rows)
        chunk = make_chunk([encoded])
        (answer,) = assemble(chunk, loaded.score(chunk.merged.rows))
    finally:
        loaded.close()
    tokenizer = tokenizer_of(source)
    return [
        {
            "word": word,
            "tokens": tokenizer.convert_ids_to_tokens(list(ids)),
            "ids": list(ids),
            "logprob": math.fsum(logprobs),
            "probability": math.exp(math.fsum(logprobs)),
        }
        for word, ids, logprobs in zip(words, answer.tokens, answer.logprobs, strict=True)
    ]
