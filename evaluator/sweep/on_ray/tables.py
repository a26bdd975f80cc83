"""Tables of token rows in Ray's object store: a node fetches one once for all its workers, and a chunk names its rows there."""

import functools
from array import array
from collections.abc import Sequence
from typing import Any

import ray

from evaluator_serving.table import EncodedTable, Forwards, TableColumns


class RayTable(EncodedTable):
    """A table in the object store. A process reads it when it is asked for more than the requests' ids."""

    def __init__(self, ref: Any, requests: list[str] | None = None) -> None:
        """`ref` is Ray's reference to an EncodedTable, whose requests need not be given."""
        self._ref = ref
        self._requests = requests

    def __reduce__(self) -> tuple[Any, ...]:
        return RayTable, (self._ref,)

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

    def __len__(self) -> int:
        return len(self.requests)

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


@functools.lru_cache(maxsize=2)
def _fetched(ref: Any) -> EncodedTable:
    """Of a worker that has gone over to another model, the table before is still needed while its last chunks are scored."""
    table: EncodedTable = ray.get(ref)
    return table
