"""Tables of token rows in Ray's object store: a node fetches one once for all its workers, and a chunk names its rows there.

On a cluster they are made on its machines too: the driver holds no token rows.
"""

import functools
import os
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray
from ray.exceptions import RayError

from evaluator import logs
from evaluator.scoring.encodings import LOOK_SECONDS, MOST, Asked, Encoding, Wanted, encode_all
from evaluator_serving.encoding import encoder_for
from evaluator_serving.models.checkpoint import files_beside_weights
from evaluator_serving.models.source import ModelSource
from evaluator_serving.table import EncodedTable, Forwards, TableColumns

REPORT_SECONDS = 10.0
"""After this long, users are told what the sweep waits for."""

Value = TypeVar("Value")


class RayTable(EncodedTable):
    """A table in the object store. A process fetches it when it is asked for more than the requests' ids."""

    def __init__(self, ref: Any, requests: list[str] | None = None) -> None:
        """`ref` is Ray's reference to an EncodedTable, whose requests need not be given."""
        self._ref = ref
        self._requests = requests

    def __reduce__(self) -> tuple[Any, ...]:
        return RayTable, (self._ref,)

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def columns(self) -> TableColumns:
        """As of any table."""
        return _fetched(self._ref).columns

    @property
    def forwards(self) -> Forwards:
        """As of any table."""
        return _fetched(self._ref).forwards

    @property
    def requests(self) -> list[str]:
        """As of any table."""
        return self.columns.requests if self._requests is None else self._requests

    def release(self) -> None:
        """Forget where the requests are: the driver of many models needs that of few."""
        self.__dict__.pop("position", None)

    def only(self, requests: Sequence[str]) -> EncodedTable:
        """The table of these requests, in the object store too."""
        if requests == self.requests:
            return self
        which = np.array([self.position[request] for request in requests], dtype=np.intp)
        return RayTable(_apply_task.remote(self._ref, _part, which), list(requests))

    def apply(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """What a function makes of this table, on the machine where it is."""
        value: Value = ray.get(_apply_task.remote(self._ref, function, *arguments))
        return value

    def sent(self, which: Sequence[int]) -> tuple[EncodedTable, Sequence[int]]:
        """The table itself: its content is in the object store already."""
        return self, array("i", which)


class SharedTables:
    """The tables that this process has put into the object store of the cluster that it is connected to."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[EncodedTable, RayTable]] = {}

    def share(self, table: EncodedTable) -> RayTable:
        """The same table in the object store."""
        if isinstance(table, RayTable):
            return table
        if id(table) not in self._known:
            table.forwards  # noqa: B018  what is pickled has them, so that no worker makes them again
            self._known[id(table)] = table, RayTable(ray.put(table), table.requests)
            table.release()
        return self._known[id(table)][1]


class NodeEncoders:
    """The cluster's machines as `Encoders`. Each gets what is asked once, and a model's files beside its weights."""

    def __init__(self, count: int, wanted: Iterable[Wanted]) -> None:
        self.count = count
        self._asked: dict[tuple[int, ...], Any] = {}
        self._running: set[Any] = set()
        self._closed = False
        for asked in (one.asked for one in wanted):  # most models are asked the same
            if asked.key not in self._asked:
                self._asked[asked.key] = ray.put(asked)
        self._report_later = threading.Timer(REPORT_SECONDS, self._report)
        self._report_later.daemon = True
        self._report_later.start()

    def _report(self) -> None:
        if self._running:
            why = "" if ray.available_resources().get("CPU", 0) >= 1 else ": no CPU is free at the moment"
            logs.line(f"encoding requests on the cluster{why}")

    @classmethod
    def start(cls, wanted: Sequence[Wanted]) -> "NodeEncoders | None":
        """None where no machine of the cluster has a core for them."""
        cores = int(ray.cluster_resources().get("CPU", 0))
        return cls(min(cores, MOST), wanted) if cores else None

    def encode(self, wanted: Wanted) -> Encoding:
        """See `Encoders`."""
        folder = wanted.source.path
        try:
            table, told = _encode_task.remote(
                wanted.source,
                {str(file.relative_to(folder)): file.read_bytes() for file in files_beside_weights(folder)},
                self._asked[wanted.asked.key],
            )
            self._running.add(told)
            while not ray.wait([told], timeout=LOOK_SECONDS)[0]:
                if self._closed:
                    return Encoding(EncodedTable.of([]))
            found: Encoding = ray.get(told)
            self._running.discard(told)
        except (RayError, OSError):
            return Encoding(EncodedTable.of([]))
        return replace(found, table=RayTable(table, [name for name in wanted.asked.requests if name not in found.refused]))

    def close(self) -> None:
        """End them, whatever they are doing; what they have made stays.

        Only running tasks are canceled: Ray does not make a table again that was lost with its machine if its task was canceled
        (even if that was after its end).
        """
        self._closed = True
        self._report_later.cancel()
        for told in list(self._running):
            ray.cancel(told, force=True)


def _encode(source: ModelSource, files: Mapping[str, bytes], asked: Asked) -> tuple[EncodedTable, Encoding]:
    """What is encoded, and what else is known of it, which alone the driver reads."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory(prefix="evaluator-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        encoder = encoder_for(replace(source, path=Path(folder)))
    # The files are removed by now: a task that is canceled can't do it.
    found = encode_all(encoder, asked)
    return found.table, replace(found, table=EncodedTable.of([]))


def _apply(table: EncodedTable, function: Callable[..., Value], *arguments: Any) -> Value:
    return function(table, *arguments)


_encode_task: Any = ray.remote(num_cpus=1, num_returns=2, scheduling_strategy="SPREAD")(_encode)
_apply_task: Any = ray.remote(num_cpus=0)(_apply)


def _part(table: EncodedTable, which: Sequence[int]) -> EncodedTable:
    part = table.take(which)
    part.forwards  # noqa: B018  what is pickled has them
    return part


@functools.lru_cache(maxsize=2)
def _fetched(ref: Any) -> EncodedTable:
    """Of a worker that has gone over to another model, the table before is still needed while its last chunks are scored."""
    table: EncodedTable = ray.get(ref)
    return table
