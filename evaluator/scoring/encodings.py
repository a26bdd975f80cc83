"""Requests encoded once for all models whose encoders are alike, in processes of their own where there is much to encode."""

import contextlib
import functools
import os
import pickle
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, Self

import polars as pl

from evaluator.scoring.summary import Summary, summarize
from evaluator_serving.errors import InputError
from evaluator_serving.memory import usable_cores
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Request
from evaluator_serving.rows import Encoded
from evaluator_serving.table import Builder, EncodedTable
from evaluator_serving.table_file import mapped, read, write

BLOCK = 64
"""Requests that are tokenized together: few enough that what the library makes of them stays in the processor's cache."""
MANY = 5000
"""Requests from which on a process of its own is worth its start."""
MOST = 16
"""Processes at the same time: each may hold the libraries and the requests."""

LOOK_SECONDS = 0.5
"""Between two looks whether something is done: Polars has a wait without a timeout resumed after Ctrl-C."""


class Encodes(Protocol):
    """A model's encoder."""

    def tokenize_ahead(self, requests: Iterator[Request]) -> None:
        """Tokenize what is encoded next."""

    def encode(self, request: Request, name: str | None = None) -> Encoded:
        """The request's rows; `name` is its id. Raises InputError for one that the model can't be asked."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoded requests, of those that the model can't be asked id → error, and the summary of all where it is known."""

    table: EncodedTable
    refused: Mapping[str, InputError] = field(default_factory=dict)
    summary: Summary | None = None


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
class Asked:
    """What a model is asked: requests by id, and the tasks (name → `Rendered.table`) that they are of."""

    requests: Mapping[str, Request]
    tasks: Mapping[str, pl.DataFrame]

    @property
    def key(self) -> tuple[int, ...]:
        """Equal for models that are asked the same."""
        return id(self.requests), *map(id, self.tasks.values())

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray's own pickler calls a function for each of the requests.
        return _asked, (pickle.dumps((self.requests, self.tasks), protocol=pickle.HIGHEST_PROTOCOL),)


def _asked(pickled: bytes) -> Asked:
    return Asked(*pickle.loads(pickled))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model that is to be asked something."""

    source: ModelSource
    asked: Asked


class Encoders(Protocol):
    """Processes that encode."""

    count: int
    """How many models they encode for at the same time."""

    def encode(self, wanted: Wanted) -> Encoding:
        """Encode and summarize. Nothing is encoded where that fails: whoever asks next does it, and meets the error."""

    def close(self) -> None:
        """End them, whatever they are doing."""


StartEncoders = Callable[[Sequence[Wanted]], Encoders | None]
"""Starts what encodes for these models; None where this process shall."""


def encode_all(encoder: Encodes, asked: Asked) -> Encoding:
    """Encode and summarize all that a model is asked."""
    found = encode(encoder, asked.requests)
    return replace(found, summary=summarize(found.table, asked.tasks))


class Encodings:
    """A table for each kind of encoder: several models of a sweep have one tokenizer. Large tables are in files."""

    def __init__(self) -> None:
        self._by_encoder: dict[str, EncodedTable] = {}
        self._ahead: dict[str, tuple[Asked, Future[Encoding]]] = {}
        self._summaries: dict[tuple[int, ...], tuple[EncodedTable, Asked, Summary]] = {}

    @contextlib.contextmanager
    def ahead(self, wanted: Sequence[Wanted], start: StartEncoders) -> Iterator[None]:
        """While the body runs, have `start`ed encoders encode for one model of each kind of encoder, where that is much."""
        from evaluator_serving.encoding import likeness

        most: dict[str, Wanted] = {}
        for one in wanted:
            key = likeness(one.source)
            if key not in most or len(one.asked.requests) > len(most[key].asked.requests):
                most[key] = one
        large = {
            key: one
            for key, one in most.items()
            if len(one.asked.requests) >= MANY and one.source.code is None and one.source.served is None
        }
        encoders = start(list(large.values())) if large else None
        if encoders is None:
            yield
            return
        pool = ThreadPoolExecutor(encoders.count)
        try:
            for key, one in large.items():
                self._ahead[key] = one.asked, pool.submit(encoders.encode, one)
            yield
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            encoders.close()
            pool.shutdown()  # they are gone before the cluster is left

    def encode(
        self, source: ModelSource, requests: Mapping[str, Request], encoder: Callable[[], Encodes], *, strict: bool
    ) -> Encoding:
        """The model's requests. What no model like it was asked is encoded by `encoder`, which takes a second to be made."""
        from evaluator_serving.encoding import likeness

        key = likeness(source)
        known = Encoding(self._by_encoder.get(key, EncodedTable.of([])))
        if key in self._ahead:
            asked, future = self._ahead.pop(key)
            while not wait([future], LOOK_SECONDS).done:
                pass
            known = future.result()
            if known.summary is not None:
                self._keep(known.table, asked, known.summary)
        position = known.table.position
        left = {name: request for name, request in requests.items() if name not in position and name not in known.refused}
        new = encode(encoder(), left, strict=strict) if left else Encoding(EncodedTable.of([]))
        table = known.table
        if len(new.table):
            table = EncodedTable.concat([table, new.table])
            table = mapped(table) if len(table) >= MANY else table
        self._by_encoder[key] = table
        refused = {**known.refused, **new.refused}
        encoded = table.position  # with `strict`, nothing behind the first refused request
        return Encoding(table.only([name for name in requests if name in encoded]), refused)

    def summarize(self, table: EncodedTable, asked: Asked, answered: Set[str], given_up: Set[str]) -> Summary:
        """See there; models that have the same table and are asked the same share one."""
        if answered or given_up:
            return table.apply(summarize, asked.tasks, answered, given_up)
        if (key := (id(table), *asked.key)) not in self._summaries:
            self._keep(table, asked, table.apply(summarize, asked.tasks))
        return self._summaries[key][2]

    def _keep(self, table: EncodedTable, asked: Asked, summary: Summary) -> None:
        self._summaries[id(table), *asked.key] = table, asked, summary


class EncodingProcesses:
    """Processes of this machine. Each loads the libraries and reads what is asked once, and encodes for model after model."""

    def __init__(self, count: int, wanted: Iterable[Wanted]) -> None:
        self.count = count
        self._folder = tempfile.TemporaryDirectory(prefix="evaluator-")
        self._asked: dict[tuple[int, ...], Path] = {}
        for asked in (one.asked for one in wanted):  # most models are asked the same
            if asked.key not in self._asked:
                self._asked[asked.key] = self._path()
                self._asked[asked.key].write_bytes(pickle.dumps(asked, protocol=5))
        command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
        one_thread = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._all = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=one_thread) for _ in range(count)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._all:
            self._idle.put(process)

    @classmethod
    def start(cls, wanted: Sequence[Wanted]) -> Self | None:
        """As many as there are cores; none where one would be alone."""
        count = min(usable_cores(), MOST, len(wanted))
        return cls(count, wanted) if count > 1 else None

    def _path(self) -> Path:
        return Path(self._folder.name) / uuid.uuid4().hex

    def encode(self, wanted: Wanted) -> Encoding:
        """See `Encoders`."""
        process, path = self._idle.get(), self._path()
        assert process.stdin, "it is a pipe"
        assert process.stdout, "it is a pipe"
        try:
            pickle.dump((wanted.source, self._asked[wanted.asked.key], path), process.stdin, protocol=5)
            process.stdin.flush()
            told: Encoding = pickle.load(process.stdout)
            with path.open("rb") as file:
                return replace(told, table=read(file, [name for name in wanted.asked.requests if name not in told.refused]))
        except (OSError, pickle.UnpicklingError, EOFError):
            return Encoding(EncodedTable.of([]))
        finally:
            path.unlink(missing_ok=True)
            self._idle.put(process)

    def close(self) -> None:
        """End them, whatever they are doing."""
        for process in self._all:
            process.terminate()
        for process in self._all:
            with contextlib.suppress(OSError), process:
                pass
        self._folder.cleanup()


def serve() -> None:
    """What such a process does: it reads a model and two paths, and writes at one what is asked at the other, encoded."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print
    from evaluator_serving.encoding import encoder_for

    asked_at = functools.lru_cache(maxsize=1)(lambda path: pickle.loads(path.read_bytes()))
    with contextlib.suppress(EOFError), answers:
        while True:
            source, asked, path = pickle.load(requests)
            told = Encoding(EncodedTable.of([]))
            with contextlib.suppress(Exception):  # without a file it counts as failed
                found = encode_all(encoder_for(source), asked_at(asked))
                with path.open("wb") as file:
                    write(found.table, file)
                told = replace(found, table=told.table)
            pickle.dump(told, answers, protocol=5)
            answers.flush()
