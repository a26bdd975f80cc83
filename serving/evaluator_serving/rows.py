"""Rows: what an engine computes. Encoders turn requests into rows; engines never see text.

A row is one forward pass over one token sequence and the log-probabilities to read from it. Everything here is pure.
"""

import functools
from collections.abc import Sequence
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


@functools.cache
def reads_of(row: int, count: int) -> tuple[Read, ...]:
    """The reads of a row's first `count` lookups."""
    return tuple(read_at(row, lookup) for lookup in range(count))


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

    `coverage` is that of the request's text, with its first candidate where candidates are words in a text; `kind` is the
    request's (see `requests.kind`).
    """

    request: str
    rows: tuple[Row, ...]
    candidates: tuple[EncodedCandidate, ...]
    coverage: Coverage = Coverage()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    """The distinct forward passes behind many requests.

    `rows` are distinct inputs with the union of their lookups; `places[i][j]` lists, for row j of request i, which merged
    row it became and, per lookup, which lookup of that row answers it.
    """

    rows: tuple[Row, ...]
    places: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]
