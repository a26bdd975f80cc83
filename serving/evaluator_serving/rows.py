"""Rows: what an engine computes. Encoders turn requests into rows; engines never see text.

A row is one forward pass over one token sequence and the log-probabilities to read from it. Everything here is pure.
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evaluator_serving.chats import Chat

Head = Literal["masked", "causal", "seq2seq", "pair", "chat"]

GREEDY = -1
"""As the last of a `seq2seq` row's ids: whatever token the model itself finds most probable there."""


TOGETHER = 8
"""Chats whose tokens count as one's where work is cut."""


@dataclass(frozen=True, slots=True)
class Row:
    """One input sequence and what to read from it.

    Attributes:
        head: which output the lookups refer to. `masked`: logits at the position itself. `causal`, `seq2seq`: logits at
            the position, which predict the *next* token. `pair`: the classifier's labels (position is 0). `chat`: nothing is
            looked up, the engine goes on in words.
        ids: token ids with the special tokens, unpadded (the decoder's ids for `seq2seq`).
        lookups: (position in ids, token id or label) pairs; an engine answers each with log P, natural log.
        type_ids: token type ids where the model has them, else None.
        encoder_ids: the encoder's token ids, `seq2seq` only.
        chat: what is asked, `chat` only; `ids` are the prompt as the model's template writes it, empty for a model whose
            tokenizer is at a server.
        alone: whether it is never read off a longer row (see `merge`).
    """

    head: Head
    ids: tuple[int, ...]
    lookups: tuple[tuple[int, int], ...]
    type_ids: tuple[int, ...] | None = None
    encoder_ids: tuple[int, ...] | None = None
    chat: Chat | None = None
    alone: bool = False

    @property
    def length(self) -> int:
        """Tokens computed for this row, the encoder's and the most that answers to a chat may take included."""
        answers = self.chat.answers * self.chat.max_tokens if self.chat else 0
        return len(self.ids) + len(self.encoder_ids or ()) + answers

    @property
    def weight(self) -> int:
        """Tokens by which chunks are cut. Answers of many chats take each step together, in little more time than one of them:
        a chunk of chats holds more of them. At a server each is a request of its own.
        """
        return -(-self.length // TOGETHER) if self.chat and self.ids else self.length

    @property
    def places(self) -> int:
        """Positions of the longest sequence that it becomes in the decoder."""
        return len(self.ids) + (self.chat.max_tokens if self.chat else 0)


@dataclass(frozen=True, slots=True)
class Workload:
    """How much a whole run asks of a model, for an engine that sizes its buffers by it.

    Engines see only some of the rows when they are loaded (a replica on another machine above all); what they are sized for
    is all of them.

    Attributes:
        rows: distinct rows.
        tokens: their tokens together (the decoder's for `seq2seq`).
        longest: tokens of the longest one.
    """

    rows: int
    tokens: int
    longest: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Workload":
        """Of all the rows of a run."""
        lengths = [row.places for row in rows]
        return cls(len(lengths), sum(lengths), max(lengths, default=1))

    def holding(self, rows: Sequence[Row]) -> "Workload":
        """The same with room for these rows, whether or not they are among the run's."""
        return replace(self, longest=max(self.longest, Workload.of(rows).longest))


@dataclass(frozen=True, slots=True)
class Read:
    """Where one token's log-probability is found: lookup `lookup` of row `row`."""

    row: int
    lookup: int


@functools.cache
def read_at(row: int, lookup: int) -> Read:
    """The read of this row and lookup, one object wherever it occurs: there is one for each token of every text."""
    return Read(row, lookup)


@dataclass(frozen=True, slots=True)
class EncodedCandidate:
    """A candidate's token ids and, for each, where its log-probability is read."""

    tokens: tuple[int, ...]
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of some texts a tokenizer knows: their tokens, and how many of them stand for what it doesn't know.

    Attributes:
        tokens: tokens of the texts, without the model's own special tokens.
        unknown: those that are the unknown token: what they stood for is lost.
        byte_pieces: those that are only a part of a character that has no token: one byte (`<0x..>`), or of byte-level
            tokenizers tokens that hold not all of its bytes.
    """

    tokens: int = 0
    unknown: int = 0
    byte_pieces: int = 0

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(self.tokens + other.tokens, self.unknown + other.unknown, self.byte_pieces + other.byte_pieces)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request turned into rows for one model. `reads` refer to `rows` by index.

    `coverage` is that of the request's text, with its first candidate where candidates are words in a text.
    """

    request: str
    rows: tuple[Row, ...]
    candidates: tuple[EncodedCandidate, ...]
    coverage: Coverage = Coverage()


@dataclass(frozen=True, slots=True)
class Merged:
    """The distinct forward passes behind many requests.

    `rows` are distinct inputs with the union of their lookups; `places[i][j]` lists, for row j of request i, which merged
    row it became and, per lookup, which lookup of that row answers it.
    """

    rows: tuple[Row, ...]
    places: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]


def _causal_hosts(keys: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """For each sequence, a longest given sequence that it is a prefix of (itself if none)."""
    hosts: dict[tuple[int, ...], tuple[int, ...]] = {}
    host: tuple[int, ...] | None = None
    # In descending order every extension of a prefix stands before the prefix, with no stranger between them.
    for key in sorted(set(keys), reverse=True):
        if host is None or host[: len(key)] != key:
            host = key
        hosts[key] = host
    return hosts


def merge(encoded: Sequence[Encoded]) -> Merged:
    """Reduce many requests' rows to distinct forward passes.

    Rows with the same input become one with the union of their lookups. A causal row whose ids begin another row's ids is
    read from that longer row: a causal model's outputs don't depend on what follows (`checks.causality` makes sure). Rows that
    stand `alone` aren't.
    """
    all_rows = [row for item in encoded for row in item.rows]
    hosts = _causal_hosts([r.ids for r in all_rows if r.head == "causal" and not r.alone])
    order: dict[tuple[Head, tuple[int, ...], tuple[int, ...] | None, tuple[int, ...] | None, Chat | None], int] = {}
    lookups: list[dict[tuple[int, int], int]] = []
    places = []
    for item in encoded:
        spots = []
        for row in item.rows:
            ids = hosts.get(row.ids, row.ids) if row.head == "causal" else row.ids
            # What `_inputs` says of a row; a Row made for each would take most of the time.
            index = order.setdefault((row.head, ids, row.type_ids, row.encoder_ids, row.chat), len(order))
            if index == len(lookups):
                lookups.append({})
            spots.append((index, tuple(lookups[index].setdefault(pair, len(lookups[index])) for pair in row.lookups)))
        places.append(tuple(spots))
    rows = tuple(
        Row(head, ids, tuple(read), types, encoder, chat)
        for (head, ids, types, encoder, chat), read in zip(order, lookups, strict=True)
    )
    return Merged(rows, tuple(places))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A unit of work that is scored and stored whole: some requests and exactly the rows that they need.

    Rows come longest first, so that a batch that doesn't fit shows itself at the start and time left is overestimated
    rather than underestimated.
    """

    encoded: tuple[Encoded, ...]
    merged: Merged

    @property
    def tokens(self) -> int:
        """Forward tokens of the chunk."""
        return sum(row.length for row in self.merged.rows)


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


def _single(index: int, item: Encoded, merged: Merged) -> _Block:
    needs: dict[int, int] = {}
    for row, (place, _) in zip(item.rows, merged.places[index], strict=True):
        needs[place] = max(row.weight, needs.get(place, 0))
    return _Block([index], needs, sum(needs.values()))


def _blocks(singles: Sequence[_Block], rank: Mapping[int, int], tokens: int) -> list[_Block]:
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

    reads = [(length, row, i) for i, one in enumerate(singles) for row, length in one.needs.items()]
    last: dict[int, int] = {}
    for _, row, i in sorted(reads, key=lambda read: (-read[0], read[1], rank[read[2]])):
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


def chunks(encoded: Sequence[Encoded], *, tokens: int) -> list[Chunk]:
    """Cut requests into chunks of about `tokens` forward tokens (of chats `Row.weight`), longest rows first.

    A chunk takes less than `tokens` and what one request takes. Requests that share a forward pass fall into one chunk
    unless those that hang together so take more than `tokens`: then their shortest shared rows are computed once a chunk.
    """
    merged = merge(encoded)
    singles = [_single(i, item, merged) for i, item in enumerate(encoded)]

    def longest(block: _Block) -> tuple[int, tuple[int, ...], str]:
        first = encoded[min(block.members)]
        # Chats that begin alike stay together: engines compute a beginning once where they can.
        chat = next((row.ids for row in first.rows if row.chat), ())
        return -max(block.needs.values(), default=0), chat, first.request

    rank = {one.members[0]: place for place, one in enumerate(sorted(singles, key=longest))}
    cut: list[Chunk] = []
    filling = _Block([], {}, 0)

    def close() -> None:
        nonlocal filling
        if filling.members:
            cut.append(make_chunk([encoded[i] for i in filling.members]))
        filling = _Block([], {}, 0)

    for block in sorted(_blocks(singles, rank, tokens), key=longest):
        block.members.sort()
        if filling.cost + filling.extra(block) >= tokens + max(singles[i].cost for i in block.members):
            close()
        filling.take(block)
        if filling.cost >= tokens:
            close()
    close()
    return cut


def make_chunk(encoded: Sequence[Encoded]) -> Chunk:
    """One chunk of exactly these requests, its rows merged and ordered longest first."""
    merged = merge(encoded)
    order = sorted(range(len(merged.rows)), key=lambda r: (-merged.rows[r].length, merged.rows[r].ids))
    new = {old: i for i, old in enumerate(order)}
    places = tuple(tuple((new[index], lookups) for index, lookups in spots) for spots in merged.places)
    return Chunk(tuple(encoded), Merged(tuple(merged.rows[r] for r in order), places))


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
    return [make_chunk([chunk.encoded[i] for group in groups[a:b] for i in group]) for a, b in itertools.pairwise(bounds)]
