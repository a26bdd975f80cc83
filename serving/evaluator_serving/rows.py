"""Rows: what an engine computes. Encoders turn requests into rows; engines never see text.

A row is one forward pass over one token sequence and the log-probabilities to read from it. Everything here is pure.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Head = Literal["masked", "causal", "seq2seq", "pair"]

GREEDY = -1
"""As the last of a `seq2seq` row's ids: whatever token the model itself finds most probable there."""


@dataclass(frozen=True, slots=True)
class Row:
    """One input sequence and what to read from it.

    Attributes:
        head: which output the lookups refer to. `masked`: logits at the position itself. `causal`, `seq2seq`: logits at
            the position, which predict the *next* token. `pair`: the classifier's labels (position is 0).
        ids: token ids with the special tokens, unpadded (the decoder's ids for `seq2seq`).
        lookups: (position in ids, token id or label) pairs; an engine answers each with log P, natural log.
        type_ids: token type ids where the model has them, else None.
        encoder_ids: the encoder's token ids, `seq2seq` only.
    """

    head: Head
    ids: tuple[int, ...]
    lookups: tuple[tuple[int, int], ...]
    type_ids: tuple[int, ...] | None = None
    encoder_ids: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        """Tokens computed for this row, encoder included."""
        return len(self.ids) + len(self.encoder_ids or ())


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
        lengths = [len(row.ids) for row in rows]
        return cls(len(lengths), sum(lengths), max(lengths, default=1))

    def holding(self, rows: Sequence[Row]) -> "Workload":
        """The same with room for these rows, whether or not they are among the run's."""
        return replace(self, longest=max(self.longest, Workload.of(rows).longest))


@dataclass(frozen=True, slots=True)
class Read:
    """Where one token's log-probability is found: lookup `lookup` of row `row`."""

    row: int
    lookup: int


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
        byte_pieces: those that are one byte of a character that has no token (`<0x..>`; byte-level tokenizers have none).
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


def merge(encoded: Sequence[Encoded], *, share_prefixes: bool = True) -> Merged:
    """Reduce many requests' rows to distinct forward passes.

    Rows with the same input become one with the union of their lookups. With `share_prefixes`, a causal row whose ids
    begin another row's ids is read from that longer row (a causal model's outputs don't depend on what follows).
    """
    all_rows = [row for item in encoded for row in item.rows]
    hosts = _causal_hosts([r.ids for r in all_rows if r.head == "causal"]) if share_prefixes else {}
    order: dict[Row, int] = {}
    lookups: list[dict[tuple[int, int], int]] = []
    places = []
    for item in encoded:
        spots = []
        for row in item.rows:
            ids = hosts.get(row.ids, row.ids) if row.head == "causal" else row.ids
            key = replace(row, ids=ids, lookups=())
            index = order.setdefault(key, len(order))
            if index == len(lookups):
                lookups.append({})
            spots.append((index, tuple(lookups[index].setdefault(pair, len(lookups[index])) for pair in row.lookups)))
        places.append(tuple(spots))
    rows = tuple(replace(key, lookups=tuple(lookups[index])) for key, index in order.items())
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


def chunks(encoded: Sequence[Encoded], *, tokens: int, share_prefixes: bool = True) -> list[Chunk]:
    """Cut requests into chunks of about `tokens` forward tokens, longest rows first.

    Requests that share a forward pass always fall into one chunk, so that no row is computed twice in a run.
    """
    merged = merge(encoded, share_prefixes=share_prefixes)
    groups = _sharing(merged)

    def rows_of(members: Sequence[int]) -> set[int]:
        return {index for i in members for index, _ in merged.places[i]}

    def longest(members: Sequence[int]) -> tuple[int, str]:
        return -max((merged.rows[r].length for r in rows_of(members)), default=0), encoded[members[0]].request

    cut: list[Chunk] = []
    members: list[int] = []
    size = 0
    for group in sorted(groups, key=longest):
        members += group
        size += sum(merged.rows[r].length for r in rows_of(group))
        if size >= tokens:
            cut.append(make_chunk([encoded[i] for i in members], share_prefixes=share_prefixes))
            members, size = [], 0
    if members:
        cut.append(make_chunk([encoded[i] for i in members], share_prefixes=share_prefixes))
    return cut


def make_chunk(encoded: Sequence[Encoded], *, share_prefixes: bool = True) -> Chunk:
    """One chunk of exactly these requests, its rows merged and ordered longest first."""
    merged = merge(encoded, share_prefixes=share_prefixes)
    order = sorted(range(len(merged.rows)), key=lambda r: (-merged.rows[r].length, merged.rows[r].ids))
    new = {old: i for i, old in enumerate(order)}
    places = tuple(tuple((new[index], lookups) for index, lookups in spots) for spots in merged.places)
    return Chunk(tuple(encoded), Merged(tuple(merged.rows[r] for r in order), places))


def pieces(chunk: Chunk, count: int, *, share_prefixes: bool = True) -> list[Chunk]:
    """Cut a chunk into at most `count` chunks of about equally many requests, requests that share a row kept together.

    One chunk comes back where all its requests share rows.
    """
    groups = _sharing(chunk.merged)
    count = min(count, len(groups))
    bounds = [len(groups) * i // count for i in range(count + 1)]
    return [
        make_chunk([chunk.encoded[i] for group in groups[a:b] for i in group], share_prefixes=share_prefixes)
        for a, b in itertools.pairwise(bounds)
    ]
