"""Chunks: requests that are scored together. How many requests become chunks, and a chunk that fails smaller ones. Pure."""

import functools
import hashlib
import itertools
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evaluator_serving.rows import Encoded, Merged, Row
from evaluator_serving.table import EncodedTable


@dataclass(frozen=True, eq=False)
class Chunk:
    """A unit of work that is scored and stored whole: some requests and exactly the rows that they need.

    It names requests of a table. Their rows are made where they are asked for; see `EncodedTable.sent` for how it is pickled.
    """

    of: EncodedTable
    which: Sequence[int]

    def __reduce__(self) -> tuple[Any, ...]:
        return Chunk, self.of.sent(self.which)

    @property
    def name(self) -> str:
        """What it is called in logs: the same wherever and whenever the same requests are one chunk."""
        return hashlib.blake2s("".join(self.requests).encode(), digest_size=4).hexdigest()

    @functools.cached_property
    def requests(self) -> tuple[str, ...]:
        """Ids of the requests."""
        ids = self.of.requests
        return tuple([ids[i] for i in self.which])

    @functools.cached_property
    def table(self) -> EncodedTable:
        """The requests."""
        return EncodedTable.sent(self.of, self.which)[0]

    @functools.cached_property
    def encoded(self) -> tuple[Encoded, ...]:
        """The requests as objects."""
        return tuple(self.table)

    @functools.cached_property
    def order(self) -> list[int]:
        """The table's passes, longest first, so that a batch that doesn't fit shows itself at the start and time left is
        overestimated rather than underestimated."""
        passes = self.table.forwards
        keys = passes.ids.keys()
        lengths = (-passes.length).tolist()
        return sorted(range(len(passes)), key=lambda i: (lengths[i], keys[i]))

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """Its rows in that order: what an engine is given."""
        rows = self.table.forwards.rows
        return tuple([rows[i] for i in self.order])

    @functools.cached_property
    def merged(self) -> Merged:
        """Its rows, and where each request reads from them."""
        return _merged(self.table, self.order)

    @property
    def tokens(self) -> int:
        """Forward tokens of the chunk."""
        return int(self.table.forwards.length.sum())

    def part(self, members: Sequence[int]) -> "Chunk":
        """A chunk of some of its requests (by their places in it)."""
        return Chunk(self.of, tuple([self.which[i] for i in members]))


def merge(encoded: Iterable[Encoded]) -> Merged:
    """The distinct forward passes behind many requests, see `EncodedTable.forwards`."""
    table = EncodedTable.of(encoded)
    return _merged(table, range(len(table.forwards)))


def _merged(table: EncodedTable, order: Sequence[int]) -> Merged:
    """Passes as rows in some order."""
    passes = table.forwards
    new = np.empty(len(order), dtype=np.intp)
    new[list(order)] = np.arange(len(order))
    lengths = table.columns.at.lengths.tolist()
    spots = iter(passes.reads.spot.tolist())
    rows = iter(new[passes.of_row].tolist())
    lookups = [tuple(itertools.islice(spots, length)) for length in lengths]
    pairs = zip(rows, lookups, strict=True)
    places = tuple([tuple(itertools.islice(pairs, count)) for count in np.diff(table.columns.rows).tolist()])
    return Merged(tuple([passes.rows[i] for i in order]), places)


def make_chunk(encoded: Sequence[Encoded]) -> Chunk:
    """One chunk of exactly these requests."""
    return Chunk(EncodedTable.of(encoded), range(len(encoded)))


def chunks(encoded: Sequence[Encoded], *, tokens: int) -> list[Chunk]:
    """Requests in chunks, see `cut`."""
    table = encoded if isinstance(encoded, EncodedTable) else EncodedTable.of(encoded)
    return [Chunk(table, which) for which in cut(table, tokens)]


@dataclass(slots=True)
class _Block:
    """Requests that are computed together. `needs`: merged row → how many of its tokens they read; `cost`: their sum."""

    members: list[int]
    needs: dict[int, int]
    cost: int

    def extra(self, other: "_Block") -> int:
        """Tokens that `other` adds to what is computed here anyway."""
        return sum(max(0, length - self.needs.get(row, 0)) for row, length in other.needs.items())

    def take(self, other: "_Block") -> None:
        """Compute `other` here too."""
        self.cost += self.extra(other)
        self.members += other.members
        for row, length in other.needs.items():
            self.needs[row] = max(length, self.needs.get(row, 0))


def cut(table: EncodedTable, tokens: int) -> list[Sequence[int]]:
    """Cut requests into chunks of about `tokens` forward tokens (of chats `Row.weight`), longest rows first.

    A chunk takes less than `tokens` and what one request takes. Requests that share a forward pass fall into one chunk
    unless those that hang together so take more than `tokens`: then their shortest shared rows are computed once a chunk.
    Found once for each table and number of tokens.
    """
    if tokens not in table.cuts:
        table.cuts[tokens] = _cut(table, tokens)
    return table.cuts[tokens]


def _cut(table: EncodedTable, tokens: int) -> list[Sequence[int]]:
    passes, count = table.forwards, len(table)
    order = np.lexsort((-passes.weight, passes.of_row, passes.request))
    request, place, weight = passes.request[order], passes.of_row[order], passes.weight[order]
    first = np.append(True, (np.diff(request) != 0) | (np.diff(place) != 0))[: len(order)]
    request, place, weight = request[first], place[first], weight[first]
    costs = np.bincount(request, weight, count).astype(np.int64)
    longest = np.zeros(count, dtype=np.int64)
    np.maximum.at(longest, request, weight)
    together = np.zeros(count, dtype=np.bool_)
    together[request[(np.bincount(place, minlength=len(passes)) > 1)[place]]] = True
    # Chats that begin alike stay together: engines compute a beginning once where they can.
    chats: dict[int, list[int]] = {}
    for row in sorted(table.columns.chats):
        chats.setdefault(int(passes.request[row]), table.columns.ids[row])
    ids, own, shared = table.requests, costs.tolist(), together.tolist()
    by_id = sorted(range(count), key=(lambda i: (chats.get(i, []), ids[i])) if chats else ids.__getitem__)
    rank = dict(zip(by_id, range(count), strict=True))

    def key(first: int, length: int) -> int:
        return rank[first] - count * length  # the longest first, then by rank: one number is compared faster than a tuple

    # Requests that share nothing are their own numbers, blocks are -1, -2, …: an object for each would take most of the time.
    items = [(key(i, length), i) for i, length in enumerate(longest.tolist()) if not shared[i]]
    needs: dict[int, dict[int, int]] = {i: {} for i in np.flatnonzero(together).tolist()}
    hanging = together[request]
    for i, row, length in zip(request[hanging].tolist(), place[hanging].tolist(), weight[hanging].tolist(), strict=True):
        needs[i][row] = length
    singles = sorted((_Block([i], rows, own[i]) for i, rows in needs.items()), key=lambda one: key(one.members[0], _most(one)))
    blocks = _blocks(singles, tokens)
    items += [(key(min(block.members), _most(block)), -1 - at) for at, block in enumerate(blocks)]
    found: list[Sequence[int]] = []
    filling = _Block([], {}, 0)
    for _, at in sorted(items):
        block = blocks[-1 - at] if at < 0 else None
        if block:
            block.members.sort()
            added, most = filling.extra(block), max([own[i] for i in block.members])
        else:
            added = most = own[at]
        if filling.members and filling.cost + added >= tokens + most:
            found.append(array("i", filling.members))
            filling = _Block([], {}, 0)
        if block:
            filling.take(block)
        else:
            filling.cost += own[at]
            filling.members.append(at)
        if filling.cost >= tokens:
            found.append(array("i", filling.members))
            filling = _Block([], {}, 0)
    return [*found, array("i", filling.members)] if filling.members else found


def _most(block: _Block) -> int:
    return max(block.needs.values(), default=0)


def _blocks(singles: Sequence[_Block], tokens: int) -> list[_Block]:
    """Group requests that share rows, as long as a group takes at most `tokens` (or no more than one of its requests).

    What is longest is joined first, so that of a group that is too large the shortest shared rows are computed twice.
    """
    block = [_Block(list(one.members), dict(one.needs), one.cost) for one in singles]
    home = list(range(len(singles)))

    def find(i: int) -> int:
        while home[i] != i:
            home[i] = home[home[i]]
            i = home[i]
        return i

    reads = [(-length, row, i) for i, one in enumerate(singles) for row, length in one.needs.items()]
    last: dict[int, int] = {}
    for _, row, i in sorted(reads):
        a, b = find(last.get(row, i)), find(i)
        last[row] = i
        if a == b:
            continue
        large, small = (a, b) if len(block[a].needs) >= len(block[b].needs) else (b, a)
        together = block[large].cost + block[large].extra(block[small])
        if together <= max(tokens, block[a].cost, block[b].cost):
            block[large].take(block[small])
            home[small] = large
    return [block[i] for i in range(len(block)) if home[i] == i]


def _sharing(merged: Merged) -> list[list[int]]:
    """Requests (by index, in order) grouped so that requests which read from one row are in one group."""
    parent = list(range(len(merged.places)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    owner: dict[int, int] = {}
    for i, spots in enumerate(merged.places):
        for index, _ in spots:
            parent[find(i)] = find(owner.setdefault(index, i))
    groups: dict[int, list[int]] = defaultdict(list)
    for i in range(len(parent)):
        groups[find(i)].append(i)
    return list(groups.values())


def _inputs(item: Encoded) -> frozenset[Row]:
    """What of a request an engine computes, whatever is read from it."""
    return frozenset(replace(row, lookups=()) for row in item.rows)


def alike(chunk: Chunk) -> list[list[int]]:
    """The chunk's requests (by index) in an order in which those that share rows are neighbours, equal inputs in one list."""
    ordered = []
    for group in _sharing(chunk.merged):
        lengths = {i: [row.length for row in chunk.encoded[i].rows] for i in group}
        main = {i: chunk.merged.places[i][n.index(max(n))][0] if n else -1 for i, n in lengths.items()}
        ordered += sorted(group, key=lambda i: (main[i], -max(lengths[i], default=0)))
    found: dict[frozenset[Row], list[int]] = {}
    for i in ordered:
        found.setdefault(_inputs(chunk.encoded[i]), []).append(i)
    return list(found.values())


def pieces(chunk: Chunk, count: int) -> list[Chunk]:
    """Cut a chunk into at most `count` chunks of about equally many requests, those that share rows together if they can be.

    One chunk comes back where all its requests have the same inputs: nothing less can be computed.
    """
    groups = _sharing(chunk.merged)
    if len(groups) < count:
        groups = alike(chunk)
    count = min(count, len(groups))
    bounds = [len(groups) * i // count for i in range(count + 1)]
    return [chunk.part([i for group in groups[a:b] for i in group]) for a, b in itertools.pairwise(bounds)]
