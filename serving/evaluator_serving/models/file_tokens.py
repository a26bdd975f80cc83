"""Whether transformers' own class would have tokenized what a run asks otherwise than the tokenizer.json that is used.

Until this program read tokenizer.json itself, answers were given to that class's tokens. Where they are the file's, the
answers stay good; where they aren't, the model's identity says that it was asked with the file's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from evaluator_serving.chats import Chat
from evaluator_serving.models.known_tokenizer import loaded_tokenizers
from evaluator_serving.models.source import FileTokens, ModelSource
from evaluator_serving.models.tokenizer import FILE, SENTENCES, Text, Tokenizers, is_known_alike, tokens_of
from evaluator_serving.requests import Choice, Continuation, Masked, Pair, Request, SharedTokens

_BATCH = 1000
"""Texts that are tokenized at once."""


def with_file_tokens(source: ModelSource, requests: Sequence[Request], *, translating: bool = False) -> ModelSource:
    """The source with `tokenizer` set where transformers' class isn't used for it; `requests` are all that is asked.

    `translating`: the tokenizer is used as `Tokenizers.translating`. Raises InputError where it can't be loaded.
    """
    if source.served or not (source.path / FILE).is_file() or is_known_alike(source.path):
        return source
    found = loaded_tokenizers(source)
    if found.instead_of is None:
        return source
    if found.other is None:
        return replace(source, tokenizer=FileTokens(found.instead_of, None))
    talks = source.chat_template != "none" or any(isinstance(request, Chat | Choice) for request in requests)
    texts = dict.fromkeys(text for request in requests for text in _texts(request))
    special = not (translating and hasattr(found.other, "src_lang"))
    differ = _differ(found, [*SENTENCES, *texts], special=special) or (talks and _differ_in_chats(found))
    return replace(source, tokenizer=FileTokens(found.instead_of, differ))


def _differ(found: Tokenizers, texts: Sequence[Text], *, special: bool = True, control: bool = False) -> bool:
    used, other = (
        partial(tokens_of, tokenizer.backend_tokenizer, special=special, control=control)
        for tokenizer in (found.used, found.other)
    )
    return any(used(some) != other(some) for some in (texts[i : i + _BATCH] for i in range(0, len(texts), _BATCH)))


def _differ_in_chats(found: Tokenizers) -> bool:
    """Whether a chat becomes other tokens, or tokens another answer."""
    turns = [{"role": "user", "content": SENTENCES[0]}]
    try:
        written = [str(found.used.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))]
    except Exception:  # no template for this: told where the model is asked
        written = []
    used, other = found.used.backend_tokenizer, found.other.backend_tokenizer
    answers = [told[0] for told in tokens_of(used, SENTENCES) if len(told) > 1]
    return _differ(found, written, special=False, control=True) or used.decode_batch(answers) != other.decode_batch(answers)


def _texts(request: Request) -> Iterator[Text]:
    """What is tokenized to ask a request, as far as it is text of the request."""
    match request:
        case Masked():
            for fillers in request.candidates:
                yield "".join(part + filler for part, filler in zip(request.parts, (*fillers, ""), strict=False))
                yield from fillers if request.method == "written" else ()
        case Continuation():
            yield request.context
            yield from (request.encoder,) if request.encoder else ()
            for candidate in request.candidates:
                yield request.context + candidate
                yield from (candidate.lstrip(" "),) if request.method == "last_token" else ()
        case Pair():
            yield request.first, request.second
        case SharedTokens():
            yield request.first
            yield request.second
        case Chat() | Choice():
            yield from (turn.content for turn in request.turns)
            yield from request.candidates if isinstance(request, Choice) else ()
