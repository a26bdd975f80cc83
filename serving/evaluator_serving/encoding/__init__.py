"""From requests to rows: one encoder per model, one module per kind of request."""

import functools
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evaluator_serving.cache import content_hash
from evaluator_serving.chats import Chat, spoken
from evaluator_serving.encoding import chat, continuation, masked, pair, seq2seq, shared
from evaluator_serving.encoding.text import TextTokenizer
from evaluator_serving.errors import InputError, ModelError
from evaluator_serving.models.checkpoint import files_beside_weights
from evaluator_serving.models.config import chooses, vocabulary
from evaluator_serving.models.known_tokenizer import tokenizer_of
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Choice, Continuation, Masked, Pair, Request, SharedTokens, kind, request_id
from evaluator_serving.rows import Coverage, Encoded, EncodedCandidate, Head, Row

_NO_TOKENIZER = re.compile(r"(config|generation_config|trainer_state|.*\.index)\.json")
"""Files beside a model's weights that say nothing of its tokenizer, or of which `likeness` has what does."""

Encode = Callable[[Any, TextTokenizer], tuple[list[Row], list[EncodedCandidate], Coverage]]


class Encoder:
    """Encodes requests as rows for one model, and rejects requests that the model cannot answer."""

    def __init__(self, source: ModelSource, tokenizer: Any) -> None:
        """`tokenizer` is the model's fast tokenizer, transformers' or what is known of it."""
        self.source = source
        self.text = TextTokenizer(source, tokenizer)
        self._tokenizer = tokenizer
        self._known = vocabulary(source.config)
        self._chooses = chooses(source.config)

    def tokenize_ahead(self, requests: Iterable[Request]) -> None:
        """Tokenize the texts of requests that are encoded next, in one call."""
        alone: list[str] = []
        whole: list[str] = []
        for request in requests:
            match request:
                case Continuation(encoder=None):
                    alone += continuation.texts(request)
                case Masked() if "masked" in self.source.heads:
                    whole += masked.texts(request)
        self.text.tokenize_ahead(alone, whole)

    def encode(self, request: Request, name: str | None = None) -> Encoded:
        """The request's rows, and the positions of each candidate's log-probabilities in them; `name` is its id, if known.

        Raises InputError, with the reason only, for a kind of request without a head in the model, an empty text or candidate,
        a word that is unknown to the tokenizer or cannot be located, candidates with equal tokens, a control token in a text,
        an input longer than the context, and a token without an embedding.
        """
        encode, head = _encoding(request, self.source.heads)
        if ("causal" if head == "chat" else head) not in self.source.heads:
            can = " and ".join(sorted(self.source.heads))
            raise InputError(f"model {self.source.spec} can't score this request: it needs a {head} head, the model has {can}")
        rows, candidates, coverage = encode(request, self.text)
        for row in rows:
            longest = max(row.places, len(row.encoder_ids or ()))
            if longest > self.source.context:
                raise InputError(f"{longest} tokens are more than the model's context of {self.source.context}")
            self._check_known(row)
        if self._chooses:
            rows = [replace(row, alone=True) for row in rows]
        return Encoded(name or request_id(request), tuple(rows), tuple(candidates), coverage, kind(request))

    @functools.cached_property
    def _embeds_all(self) -> bool:
        """Whether the model has an embedding for all that its tokenizer makes."""
        largest = max(self._tokenizer.backend_tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        return all(size is None or largest < size for size in self._known)

    def _check_known(self, row: Row) -> None:
        if row.head in ("causal", "masked") and self._embeds_all:
            return
        encoder, decoder = self._known
        labels = row.head == "pair"
        used = ((encoder, row.encoder_ids or ()), (decoder, (*row.ids, *(() if labels else (t for _, t in row.lookups)))))
        for size, ids in used:
            if size is not None and (largest := max(ids, default=0)) >= size:
                written = self._tokenizer.convert_ids_to_tokens(largest)
                raise ModelError(
                    f"token {written!r} (id {largest}) is beyond the {size} tokens that model {self.source.spec} has "
                    "embeddings for (they were added to its tokenizer without resizing it): use the tokenizer that it was "
                    "trained with"
                )


class ServedEncoder:
    """Encodes requests for a model on a server, which applies its tokenizer and chat template there."""

    def __init__(self, source: ModelSource) -> None:
        self.source = source

    def tokenize_ahead(self, requests: Iterable[Request]) -> None:
        """The server has the tokenizer."""

    def encode(self, request: Request, name: str | None = None) -> Encoded:
        """The row of a chat (`name`: its id, if known). Raises InputError for any other request."""
        if not isinstance(request, Chat):
            raise InputError(f"model {self.source.spec} can't score this request: it only supports chats")
        try:
            asked = replace(request, turns=spoken(request.turns, self.source.system))
        except ValueError as error:
            raise InputError(str(error)) from error
        return Encoded(name or request_id(request), (Row("chat", (), (), chat=asked),), (), kind=kind(request))


def encoder_for(source: ModelSource) -> Encoder | ServedEncoder:
    """The encoder of a resolved model, with its tokenizer loaded."""
    return ServedEncoder(source) if source.served else Encoder(source, tokenizer_of(source))


def likeness(source: ModelSource) -> str:
    """A key that is equal for models whose encoders give the same rows: checkpoints of one training, sizes of one family, one
    model under several names.

    It covers the tokenizer's files and what affects how they are used, the context and the vocabulary sizes. Only masked and
    generative models without remote code can share it.
    """
    config = source.config
    files = [file for file in files_beside_weights(source.path) if not _NO_TOKENIZER.fullmatch(file.name)]
    own = (
        source.served
        or source.code
        or source.heads - {"masked", "causal"}
        or _has_program(files)
        or getattr(config, "auto_map", None)
    )
    if own:
        code = source.code.revision if source.code else None
        return json.dumps([source.revision, code, source.spec, source.chat_template, source.system, *_template(source)])
    names = ("model_type", "transformers_version", "type_vocab_size")
    properties = [sorted(source.heads), source.context, vocabulary(config), *(getattr(config, name, None) for name in names)]
    return json.dumps([content_hash(files), *properties, source.chat_template, source.system, *_template(source)])


def _template(source: ModelSource) -> tuple[Any, ...]:
    """What else affects how a chat template renders a chat."""
    return source.thinking, asdict(source.day) if source.day else None


def _has_program(files: Iterable[Path]) -> bool:
    """Whether a tokenizer's configuration refers to remote code."""
    return any(file.name == "tokenizer_config.json" and b"auto_map" in file.read_bytes() for file in files)


def _encoding(request: Request, heads: frozenset[str]) -> tuple[Encode, Head]:
    match request:
        case Masked() if "masked" not in heads and "seq2seq" in heads:
            return seq2seq.encode_masked, "seq2seq"
        case Masked():
            return masked.encode, "masked"
        case SharedTokens():
            return shared.encode, "masked"
        case Pair():
            return pair.encode, "pair"
        case Chat():
            return chat.encode, "chat"
        case Choice():
            return chat.encode_choice, "causal"
        case Continuation(encoder=None):
            return continuation.encode, "causal"
        case Continuation():
            return seq2seq.encode, "seq2seq"
