"""Requests encoded once for all models whose encoders are alike, in processes of their own where there is much to encode."""

import contextlib
import functools
import os
import pickle
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from evaluator_serving.errors import InputError
from evaluator_serving.memory import usable_cores
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Request
from evaluator_serving.rows import Encoded
from evaluator_serving.table import Builder, EncodedTable
from evaluator_serving.table_file import mapped, read, write

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
    """A table for each kind of encoder: several models of a sweep have one tokenizer. Large tables are in files."""

    def __init__(self) -> None:
        self._by_encoder: dict[str, EncodedTable] = {}
        self._ahead: dict[str, Future[Encoding]] = {}

    @contextlib.contextmanager
    def ahead(self, wanted: Sequence[Wanted]) -> Iterator[None]:
        """Encode what is wanted first of each kind of encoder while the body runs, on as many cores as there are."""
        from evaluator_serving.encoding import likeness

        first = {likeness(one.source): one for one in reversed(wanted)}
        large = {key: one for key, one in first.items() if len(one.requests) >= MANY and one.source.code is None}
        count = min(usable_cores(), MOST, len(large))
        if count < 2:
            yield
            return
        processes = EncodingProcesses(count, large.values())
        pool = ThreadPoolExecutor(count)
        try:
            for key, one in reversed(large.items()):
                self._ahead[key] = pool.submit(processes.encode, one)
            yield
        finally:
            pool.shutdown(cancel_futures=True)
            processes.close()

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
        if len(table) >= MANY:
            table = mapped(table)
        self._by_encoder[key] = table
        refused = {**known.refused, **new.refused}
        encoded = table.position  # with `strict`, nothing behind the first refused request
        return Encoding(table.only([name for name in requests if name in encoded]), refused)


class EncodingProcesses:
    """Processes that encode. Each loads the libraries and reads the requests once, and encodes for one model after another."""

    def __init__(self, count: int, wanted: Iterable[Wanted]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="evaluator-")
        self._asked: dict[int, Path] = {}
        for requests in (one.requests for one in wanted):  # most models are asked the same
            if id(requests) not in self._asked:
                self._asked[id(requests)] = self._path()
                self._asked[id(requests)].write_bytes(pickle.dumps(dict(requests), protocol=5))
        command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
        one_thread = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._all = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=one_thread) for _ in range(count)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._all:
            self._idle.put(process)

    def _path(self) -> Path:
        return Path(self._folder.name) / uuid.uuid4().hex

    def encode(self, wanted: Wanted) -> Encoding:
        """Encode. Nothing is encoded where that fails: whoever asks next does it, and meets the error."""
        process, path = self._idle.get(), self._path()
        assert process.stdin, "it is a pipe"
        assert process.stdout, "it is a pipe"
        try:
            pickle.dump((wanted.source, self._asked[id(wanted.requests)], path), process.stdin, protocol=5)
            process.stdin.flush()
            refused: dict[str, InputError] = pickle.load(process.stdout)
            with path.open("rb") as file:
                return Encoding(read(file, [name for name in wanted.requests if name not in refused]), refused)
        except (OSError, pickle.UnpicklingError, EOFError):
            return Encoding(EncodedTable.of([]), {})
        finally:
            path.unlink(missing_ok=True)
            self._idle.put(process)

    def close(self) -> None:
        """End them."""
        for process in self._all:
            with contextlib.suppress(OSError), process:
                process.communicate()
        self._folder.cleanup()


def serve() -> None:
    """What such a process does: it reads a model and two paths, and writes at one what the requests at the other become."""
    from evaluator_serving.encoding import encoder_for

    asked, told = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print
    requests_at = functools.lru_cache(maxsize=1)(lambda path: pickle.loads(path.read_bytes()))
    with contextlib.suppress(EOFError), told:
        while True:
            source, requests, path = pickle.load(asked)
            refused: Mapping[str, InputError] = {}
            with contextlib.suppress(Exception):  # without a file it counts as failed
                found = encode(encoder_for(source), requests_at(requests))
                with path.open("wb") as file:
                    write(found.table, file)
                refused = found.refused
            pickle.dump(refused, told, protocol=5)
            told.flush()
