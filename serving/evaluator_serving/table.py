"""Many requests' rows as flat arrays: a twentieth of the memory of objects, and sorted, merged and cut without making any.

A table is a sequence of `Encoded`, each made when it is asked for. It is pickled as its arrays.
"""

import functools
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evaluator_serving.chats import Chat
from evaluator_serving.rows import TOGETHER, Coverage, Encoded, EncodedCandidate, Head, Row, Workload, read_at

Value = TypeVar("Value")
Ints = NDArray[np.integer]
Offsets = NDArray[np.int64]
HEADS: tuple[Head, ...] = ("masked", "causal", "seq2seq", "pair", "chat")
_CAUSAL = HEADS.index("causal")
OF_ROWS = ("ids", "types", "encoder", "at", "asked")
OF_CANDIDATES = ("tokens", "reads", "lookups")
"""Columns of lists, one for each row or candidate."""


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Lists of numbers one after the other: list i is flat[offsets[i] : offsets[i + 1]]."""

    flat: NDArray[Any]
    offsets: Offsets

    def __getitem__(self, which: int) -> list[int]:
        found: list[int] = self.flat[self.offsets[which] : self.offsets[which + 1]].tolist()
        return found

    def take(self, which: NDArray[np.intp]) -> "Ragged":
        """Some of the lists."""
        at, offsets = spans(self.offsets, which)
        return Ragged(self.flat[at], offsets)

    @property
    def lengths(self) -> Offsets:
        """Of each list."""
        return self.offsets[1:] - self.offsets[:-1]

    def lists(self) -> list[list[int]]:
        """As Python's."""
        flat, offsets = self.flat.tolist(), self.offsets.tolist()
        return [flat[a:b] for a, b in itertools.pairwise(offsets)]

    def keys(self) -> list[bytes]:
        """Each list as bytes that compare as the lists do."""
        written = (self.flat.astype(np.int64) + (1 << 31)).astype(">u4").tobytes()
        offsets = (4 * self.offsets).tolist()
        return [written[a:b] for a, b in itertools.pairwise(offsets)]

    def shared(self, pairs: Sequence[tuple[int, int]]) -> int:
        """How many numbers the lists of each pair begin alike with, summed over the pairs."""
        left, right = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        lengths = np.minimum(self.lengths[left], self.lengths[right])
        offsets = offsets_of(lengths)
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        one, other = (self.flat[np.repeat(self.offsets[side], lengths) + at] for side in (left, right))
        differs = np.append(np.flatnonzero(one != other), offsets[-1])
        ends = np.minimum(differs[np.searchsorted(differs, offsets[:-1])], offsets[1:])
        return int((ends - offsets[:-1]).sum())

    @classmethod
    def of(cls, lists: Sequence[Sequence[float]], dtype: DTypeLike) -> "Ragged":
        """Some lists."""
        lengths = np.array([len(each) for each in lists], dtype=np.int64)
        return cls(np.fromiter(itertools.chain.from_iterable(lists), dtype), offsets_of(lengths))

    @classmethod
    def concat(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """All lists of several."""
        return cls(np.concatenate([part.flat for part in parts]), offsets_of(np.concatenate([part.lengths for part in parts])))


class EncodedTable(Sequence[Encoded]):
    """Encoded requests in columns.

    Attributes:
        requests: their ids; kinds: of each request.
        coverage: [requests, 3] as `Coverage`.
        rows, candidates: those of request i are numbers rows[i] to rows[i + 1] (candidates likewise).
        ids, types, encoder: of each row; no type ids and no encoder's ids are empty lists.
        heads: of each row, by number in HEADS; alone: as in `Row`.
        at, asked: the two numbers of each row's lookups.
        tokens, reads, lookups: of each candidate; the latter two are the numbers of `Read`.
        chats: row → chat, of those that have one.
    """

    def __init__(self, columns: "TableColumns", passes: "Forwards | None" = None) -> None:
        self._columns = columns
        if passes is not None:
            self.forwards = passes

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodedTable, (self.columns, self.__dict__.get("forwards"))

    @property
    def columns(self) -> "TableColumns":
        """The arrays."""
        return self._columns

    @classmethod
    def of(cls, encoded: Iterable[Encoded]) -> "EncodedTable":
        """The table of some requests."""
        builder = Builder()
        for item in encoded:
            builder.add(item)
        return builder.table()

    def __len__(self) -> int:
        return len(self.columns.requests)

    @overload
    def __getitem__(self, index: int) -> Encoded: ...
    @overload
    def __getitem__(self, index: slice) -> "EncodedTable": ...
    def __getitem__(self, index: int | slice) -> "Encoded | EncodedTable":
        which = range(len(self))[index]
        return self.take(which) if isinstance(which, range) else next(iter(self.take([which])))

    def __iter__(self) -> Iterator[Encoded]:
        for begin in range(0, len(self), _BLOCK):
            part = self if len(self) <= _BLOCK else self.take(range(begin, min(begin + _BLOCK, len(self))))
            yield from part.columns.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncodedTable) and list(self) == list(other)

    __hash__ = object.__hash__

    @property
    def requests(self) -> list[str]:
        """Ids of the requests."""
        return self.columns.requests

    def take(self, which: Sequence[int] | NDArray[np.intp]) -> "EncodedTable":
        """The table of some of the requests."""
        return EncodedTable(self.columns.take(np.asarray(which, dtype=np.intp)))

    def only(self, requests: Sequence[str]) -> "EncodedTable":
        """The table of these requests, in this order; itself where they are all of it."""
        return self if requests == self.requests else self.take([self.position[request] for request in requests])

    def sent(self, which: Sequence[int]) -> "tuple[EncodedTable, Sequence[int]]":
        """What another process is given to read some of the requests: a table and their places in it."""
        whole = len(which) == len(self) and list(which) == list(range(len(self)))
        return self if whole else self.take(which), range(len(which))

    def apply(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """What a function makes of this table and further arguments, found where the table is."""
        return function(self, *arguments)

    def release(self) -> None:
        """Give back the memory of what was read, where it can be read again."""

    @classmethod
    def concat(cls, parts: Sequence["EncodedTable"]) -> "EncodedTable":
        """All requests of several tables."""
        return cls(TableColumns.concat([part.columns for part in parts])) if len(parts) != 1 else parts[0]

    @functools.cached_property
    def forwards(self) -> "Forwards":
        """The distinct forward passes behind all requests."""
        return _forwards(self.columns)

    @functools.cached_property
    def position(self) -> dict[str, int]:
        """Request → its place."""
        return {request: place for place, request in enumerate(self.requests)}

    @functools.cached_property
    def cuts(self) -> dict[int, list[Sequence[int]]]:
        """What `chunks.cut` found, by tokens."""
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class TableColumns:
    """The arrays of a table, see there."""

    requests: list[str]
    kinds: list[str]
    coverage: Ints
    rows: Offsets
    candidates: Offsets
    heads: NDArray[np.uint8]
    alone: NDArray[np.bool_]
    ids: Ragged
    types: Ragged
    encoder: Ragged
    at: Ragged
    asked: Ragged
    tokens: Ragged
    reads: Ragged
    lookups: Ragged
    chats: dict[int, Chat]

    def take(self, which: NDArray[np.intp]) -> "TableColumns":
        """Of some requests."""
        rows, row_offsets = spans(self.rows, which)
        candidates, candidate_offsets = spans(self.candidates, which)
        chats = {new: self.chats[old] for new, old in enumerate(rows.tolist()) if old in self.chats} if self.chats else {}
        chosen = which.tolist()
        return TableColumns(
            requests=[self.requests[i] for i in chosen],
            kinds=[self.kinds[i] for i in chosen],
            coverage=self.coverage[which],
            rows=row_offsets,
            candidates=candidate_offsets,
            heads=self.heads[rows],
            alone=self.alone[rows],
            **{name: getattr(self, name).take(rows) for name in OF_ROWS},
            **{name: getattr(self, name).take(candidates) for name in OF_CANDIDATES},
            chats=chats,
        )

    @classmethod
    def concat(cls, parts: Sequence["TableColumns"]) -> "TableColumns":
        """Of all requests of several tables."""
        chats: dict[int, Chat] = {}
        before = 0
        for part in parts:
            chats |= {before + row: chat for row, chat in part.chats.items()}
            before += len(part.heads)
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in ("coverage", "heads", "alone")
        }
        for name in ("rows", "candidates"):
            arrays[name] = offsets_of(np.concatenate([np.diff(getattr(part, name)) for part in parts]))
        lists: dict[str, Any] = {
            name: Ragged.concat([getattr(part, name) for part in parts]) for name in (*OF_ROWS, *OF_CANDIDATES)
        }
        requests = [request for part in parts for request in part.requests]
        return cls(requests, [kind for part in parts for kind in part.kinds], **arrays, **lists, chats=chats)

    def items(self) -> Iterator[Encoded]:
        """The requests as objects."""
        rows = iter(_rows(self, np.arange(len(self.heads)), self.ids, _pairs(self.at, self.asked), self.alone.tolist()))
        tokens, reads, lookups = (getattr(self, name).lists() for name in OF_CANDIDATES)
        candidates = (
            EncodedCandidate(tuple(own), tuple(map(read_at, *read))) for own, *read in zip(tokens, reads, lookups, strict=True)
        )
        for request, kind, coverage, row_count, candidate_count in zip(
            self.requests,
            self.kinds,
            self.coverage.tolist(),
            np.diff(self.rows).tolist(),
            np.diff(self.candidates).tolist(),
            strict=True,
        ):
            made, given = tuple(itertools.islice(rows, row_count)), tuple(itertools.islice(candidates, candidate_count))
            yield Encoded(request, made, given, Coverage(*coverage), kind)


class Builder:
    """Makes a table, one request after the other."""

    def __init__(self) -> None:
        self._requests: list[str] = []
        self._kinds: list[str] = []
        self._chats: dict[int, Chat] = {}
        self._flat = {name: array("i") for name in ("coverage", "row_count", "candidate_count", "heads", "alone")}
        self._ragged = {name: (array("i"), array("i")) for name in (*OF_ROWS, *OF_CANDIDATES)}

    def add(self, item: Encoded) -> None:
        """Add a request."""
        self._requests.append(item.request)
        self._kinds.append(item.kind)
        flat = self._flat
        coverage = item.coverage
        flat["coverage"].extend((coverage.tokens, coverage.unknown, coverage.byte_pieces))
        flat["row_count"].append(len(item.rows))
        flat["candidate_count"].append(len(item.candidates))
        for row in item.rows:
            if row.chat is not None:
                self._chats[len(flat["heads"])] = row.chat
            flat["heads"].append(HEADS.index(row.head))
            flat["alone"].append(row.alone)
            self._put("ids", row.ids)
            self._put("types", row.type_ids or ())
            self._put("encoder", row.encoder_ids or ())
            at, asked = zip(*row.lookups, strict=True) if row.lookups else ((), ())
            self._put("at", at)
            self._put("asked", asked)
        for candidate in item.candidates:
            self._put("tokens", candidate.tokens)
            self._put("reads", [read.row for read in candidate.reads])
            self._put("lookups", [read.lookup for read in candidate.reads])

    def _put(self, name: str, values: Sequence[int]) -> None:
        numbers, lengths = self._ragged[name]
        numbers.extend(values)
        lengths.append(len(values))

    def table(self) -> EncodedTable:
        """What was added."""
        flat = {name: np.array(values, dtype=np.int32) for name, values in self._flat.items()}
        ragged = {
            name: Ragged(_small(np.array(values, dtype=np.int32)), offsets_of(np.array(lengths, dtype=np.int64)))
            for name, (values, lengths) in self._ragged.items()
        }
        return EncodedTable(
            TableColumns(
                self._requests,
                self._kinds,
                flat["coverage"].reshape(-1, 3),
                offsets_of(flat["row_count"]),
                offsets_of(flat["candidate_count"]),
                flat["heads"].astype(np.uint8),
                flat["alone"].astype(np.bool_),
                **ragged,
                chats=self._chats,
            )
        )


@dataclass(frozen=True, eq=False)
class Forwards:
    """The distinct forward passes behind a table's requests.

    Attributes:
        of_row: [rows] the pass that each row is read from; passes are numbered in the order of their first rows.
        first, host: [passes] the first row that is read from a pass, and a row with the pass's ids.
        request: [rows] the request that each row is of.
        weight: [rows] as `Row.weight`.
        length: [passes] as `Row.length`.
    """

    columns: TableColumns
    of_row: NDArray[np.intp]
    first: NDArray[np.intp]
    host: NDArray[np.intp]
    request: NDArray[np.intp]
    weight: Offsets
    length: Offsets

    def __len__(self) -> int:
        return len(self.host)

    @property
    def workload(self) -> Workload:
        """How much all passes are."""
        places = self.columns.ids.lengths[self.host]
        if self.columns.chats:
            chats = [self.columns.chats.get(row) for row in self.first.tolist()]
            places = places + np.array([chat.max_tokens if chat else 0 for chat in chats])
        return Workload(len(places), int(places.sum()), int(places.max(initial=1)))

    @property
    def ids(self) -> Ragged:
        """Of each pass."""
        return self.columns.ids.take(self.host)

    @functools.cached_property
    def reads(self) -> "Reads":
        """What is read from each pass."""
        return _reads(self)

    @functools.cached_property
    def computed(self) -> int:
        """Tokens that engines compute for the requests: a beginning that a request's candidates share is computed once."""
        causal = np.flatnonzero(self.columns.heads == _CAUSAL)
        request, passes = np.divmod(np.unique(self.request[causal] * len(self) + self.of_row[causal]), max(1, len(self)))
        ids, written = self.columns.ids, passes.tobytes()
        bounds = [*np.flatnonzero(np.append(True, np.diff(request) != 0)[: len(request)]).tolist(), len(request)]
        together = {written[passes.itemsize * a : passes.itemsize * b] for a, b in itertools.pairwise(bounds) if b - a > 1}
        groups = [self.host[np.frombuffer(group, passes.dtype)].tolist() for group in together]
        # In the order of their ids, what each shares with any before it, it shares with the last.
        ordered = [rows if len(rows) == 2 else sorted(rows, key=lambda row: ids[row]) for rows in groups]
        twice = ids.shared([pair for rows in ordered for pair in itertools.pairwise(rows)])
        return int(self.length.sum()) - twice

    @functools.cached_property
    def rows(self) -> list[Row]:
        """All passes as rows."""
        return _rows(self.columns, self.first, self.ids, _pairs(self.reads.at, self.reads.asked))

    def some(self, passes: Sequence[int]) -> list[Row]:
        """Some of the passes as rows; nothing is made of the others."""
        columns, which = self.columns, np.array(passes, dtype=np.intp)
        members = [np.flatnonzero(self.of_row == number) for number in passes]
        lookups = [
            tuple(dict.fromkeys(itertools.chain(*_pairs(columns.at.take(rows), columns.asked.take(rows))))) for rows in members
        ]
        return _rows(columns, self.first[which], columns.ids.take(self.host[which]), lookups)


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """What is read from each pass of a table: the union of its rows' lookups.

    Attributes:
        at, asked: the two numbers of each pass's lookups.
        spot: for each lookup of each row, its place among those of its pass.
    """

    at: Ragged
    asked: Ragged
    spot: NDArray[np.intp]


def _reads(passes: Forwards) -> Reads:
    at, asked = passes.columns.at.flat, passes.columns.asked.flat
    of = np.repeat(passes.of_row, passes.columns.at.lengths)
    order = np.lexsort((asked, at, of))  # equal ones stand in the order in which they are asked
    differs = (np.diff(of[order]) != 0) | (np.diff(at[order]) != 0) | (np.diff(asked[order]) != 0)
    new = np.append(True, differs)[: len(order)]
    firsts = order[new]
    ranked = np.lexsort((firsts, of[firsts]))
    counts = np.bincount(of[firsts], minlength=len(passes))
    offsets = offsets_of(counts)
    local = np.empty(len(firsts), dtype=np.intp)
    local[ranked] = np.arange(len(firsts)) - np.repeat(offsets[:-1], counts)
    spot = np.empty(len(order), dtype=np.intp)
    spot[order] = local[np.cumsum(new) - 1]
    chosen = firsts[ranked]
    return Reads(Ragged(at[chosen], offsets), Ragged(asked[chosen], offsets), spot)


def _forwards(columns: TableColumns) -> Forwards:
    """Rows with the same input are one pass. A causal row whose ids begin another row's ids is read from that longer row: a
    causal model's outputs don't depend on what follows (`checks.causality` makes sure). Rows that stand `alone` aren't.
    """
    keys, types, encoder = columns.ids.keys(), columns.types.keys(), columns.encoder.keys()
    chats = columns.chats
    free = (columns.heads == _CAUSAL) & ~columns.alone
    hosts: dict[bytes, bytes] = {}
    host: bytes | None = None
    # In descending order every extension of a prefix stands before the prefix, with no stranger between them.
    for key in sorted({keys[row] for row in np.flatnonzero(free).tolist()}, reverse=True):
        if host is None or not host.startswith(key):
            host = key
        hosts[key] = host
    number: dict[tuple[int, bytes, bytes, bytes, Chat | None], int] = {}
    first: list[int] = []
    of_row = []
    for row, (head, key) in enumerate(zip(columns.heads.tolist(), keys, strict=True)):
        ids = hosts.get(key, key) if head == _CAUSAL else key
        place = number.setdefault((head, ids, types[row], encoder[row], chats.get(row)), len(number))
        if place == len(first):
            first.append(row)
        of_row.append(place)
    having = {key: row for row, key in enumerate(keys)}
    starts = np.array(first, dtype=np.intp)
    own = np.array([having[ids] for _, ids, *_ in number], dtype=np.intp)
    extra = columns.encoder.lengths
    for row, chat in chats.items():
        extra[row] += chat.answers * chat.max_tokens
    weight = columns.ids.lengths + extra
    for row in chats:
        weight[row] = -(-weight[row] // TOGETHER) if columns.ids.lengths[row] else weight[row]
    request = np.repeat(np.arange(len(columns.requests)), np.diff(columns.rows))
    length = columns.ids.lengths[own] + extra[starts]
    return Forwards(columns, np.array(of_row, dtype=np.intp), starts, own, request, weight, length)


def _small(numbers: Ints) -> Ints:
    """The same numbers in the smallest type: a table of many texts is mostly numbers of one or two bytes."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    return numbers if low < 0 else numbers.astype(np.min_scalar_type(high))


def offsets_of(lengths: Ints) -> Offsets:
    """The offsets of lists of these lengths."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def spans(offsets: Offsets, which: NDArray[np.intp]) -> tuple[NDArray[np.intp], Offsets]:
    """Where the members of some of the lists with these offsets are, and the offsets of these lists alone."""
    starts = offsets[which]
    lengths = offsets[which + 1] - starts
    own = offsets_of(lengths)
    return np.repeat(starts - own[:-1], lengths) + np.arange(own[-1]), own


def _pairs(at: Ragged, asked: Ragged) -> list[tuple[tuple[int, int], ...]]:
    """The lookups of each row."""
    flat, offsets = list(zip(at.flat.tolist(), asked.flat.tolist(), strict=True)), at.offsets.tolist()
    return [tuple(flat[a:b]) for a, b in itertools.pairwise(offsets)]


def _rows(
    columns: TableColumns,
    which: NDArray[np.intp],
    ids: Ragged,
    lookups: Iterable[tuple[tuple[int, int], ...]],
    alone: Iterable[bool] | None = None,
) -> list[Row]:
    """Rows with these ids and lookups; the rest is that of rows `which`."""
    types, encoder = ([tuple(each) or None for each in lists.take(which).lists()] for lists in (columns.types, columns.encoder))
    heads = [HEADS[head] for head in columns.heads[which].tolist()]
    chats = map(columns.chats.get, which.tolist())
    stand = itertools.repeat(False, len(which)) if alone is None else alone
    return list(map(Row, heads, map(tuple, ids.lists()), lookups, types, encoder, chats, stand))


_BLOCK = 4096
"""Requests that are objects at the same time where all are gone through."""
