"""Requests encoded once for all models whose encoders are alike, in processes of their own where there is much to encode."""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from evaluator_serving.errors import InputError
from evaluator_serving.memory import usable_cores
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Request
from evaluator_serving.rows import Encoded
from evaluator_serving.table import Builder, EncodedTable

BLOCK = 512
"""Requests that are tokenized together."""
MANY = 5000
"""Requests from which on a process of its own is worth its start."""
MOST = 16
"""Processes at the same time: each may hold the libraries and the requests."""


class Encodes(Protocol):
    """A model's encoder."""

    def tokenize_ahead(self, requests: Iterator[Request]) -> None:
        """Tokenize what is encoded next."""

    def encode(self, request: Request, name: str | None = None) -> Encoded:
        """The request's rows; `name` is its id. Raises InputError for one that the model can't be asked."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoded requests, and of those that the model can't be asked id → error."""

    table: EncodedTable
    refused: Mapping[str, InputError]


def encode(encoder: Encodes, requests: Mapping[str, Request], *, strict: bool = False) -> Encoding:
    """Encode requests; with `strict` no further than to the first that is refused."""
    builder, refused, asked = Builder(), dict[str, InputError](), list(requests.items())
    for begin in range(0, len(asked), BLOCK):
        block = asked[begin : begin + BLOCK]
        encoder.tokenize_ahead(request for _, request in block)
        for name, request in block:
            try:
                builder.add(encoder.encode(request, name))
            except InputError as error:
                refused[name] = error
                if strict:
                    return Encoding(builder.table(), refused)
    return Encoding(builder.table(), refused)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model and the requests that are to be encoded for it."""

    source: ModelSource
    requests: Mapping[str, Request]


class Encodings:
    """A table for each kind of encoder: several models of a sweep have one tokenizer."""

    def __init__(self) -> None:
        self._by_encoder: dict[str, EncodedTable] = {}
        self._ahead: dict[str, Future[Encoding]] = {}

    @contextlib.contextmanager
    def ahead(self, wanted: Sequence[Wanted]) -> Iterator[None]:
        """Encode what is wanted first of each kind of encoder while the body runs, on as many cores as there are."""
        from evaluator_serving.encoding import likeness

        first = {likeness(one.source): one for one in reversed(wanted)}
        large = {key: one for key, one in first.items() if len(one.requests) >= MANY and one.source.code is None}
        if len(large) < 2 or usable_cores() < 2:
            yield
            return
        pool = ThreadPoolExecutor(min(usable_cores(), MOST))
        written: dict[int, bytes] = {id(one.requests): pickle.dumps(dict(one.requests)) for one in large.values()}
        try:
            for key, one in reversed(large.items()):
                self._ahead[key] = pool.submit(_apart, one.source, written[id(one.requests)])
            yield
        finally:
            pool.shutdown(cancel_futures=True)

    def encode(
        self, source: ModelSource, requests: Mapping[str, Request], encoder: Callable[[], Encodes], *, strict: bool
    ) -> Encoding:
        """The model's requests. What no model like it was asked is encoded by `encoder`, which takes a second to be made."""
        from evaluator_serving.encoding import likeness

        key = likeness(source)
        ready = self._ahead.pop(key, None)
        known = ready.result() if ready else Encoding(self._by_encoder.get(key, EncodedTable.of([])), {})
        position = known.table.position
        left = {name: request for name, request in requests.items() if name not in position and name not in known.refused}
        new = encode(encoder(), left, strict=strict) if left else Encoding(EncodedTable.of([]), {})
        table = EncodedTable.concat([known.table, new.table]) if len(new.table) else known.table
        self._by_encoder[key] = table
        refused = {**known.refused, **new.refused}
        encoded = table.position  # with `strict`, nothing behind the first refused request
        return Encoding(table.only([name for name in requests if name in encoded]), refused)


def _apart(source: ModelSource, requests: bytes) -> Encoding:
    """Encode in a process of its own. Nothing is encoded where it fails: whoever asks next does it, and meets the error."""
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    one_thread = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=one_thread) as process:
        written, _ = process.communicate(pickle.dumps(source) + requests)
    try:
        found: Encoding = pickle.loads(written)
    except (pickle.UnpicklingError, EOFError):
        return Encoding(EncodedTable.of([]), {})
    return found


def serve() -> None:
    """What such a process does: it reads a pickled model and its requests, and writes what they became."""
    from evaluator_serving.encoding import encoder_for

    asked, told = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print
    source, requests = pickle.load(asked), pickle.load(asked)
    with told:
        pickle.dump(encode(encoder_for(source), requests), told, protocol=5)
