"""Answers: per-token log-probabilities of each candidate of a request, or what was said to a chat."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.chats import Reply
from evaluator_serving.chunks import Chunk
from evaluator_serving.table import Offsets, Ragged, offsets_of, spans


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one request.

    Attributes:
        request: the request's id.
        tokens: token ids of each candidate.
        logprobs: log P (natural log) of each of these tokens, same lengths.
        replies: generated answers; only for chats, which have no candidates.
        kind: the request's kind.
    """

    request: str
    tokens: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[float, ...], ...]
    replies: tuple[Reply, ...] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers to several requests in columns.

    Attributes:
        requests, kinds: of each.
        candidates: those of request i are numbers candidates[i] to candidates[i + 1].
        tokens, logprobs: of each candidate.
        replies: place of a chat among the requests → its replies.
    """

    requests: Sequence[str]
    kinds: Sequence[str]
    candidates: Offsets
    tokens: Ragged
    logprobs: Ragged
    replies: Mapping[int, tuple[Reply, ...]]

    def __iter__(self) -> Iterator[Answer]:
        tokens, logprobs = (map(tuple, lists.lists()) for lists in (self.tokens, self.logprobs))
        counts = np.diff(self.candidates).tolist()
        for place, (request, kind, count) in enumerate(zip(self.requests, self.kinds, counts, strict=True)):
            read = tuple(islice(tokens, count)), tuple(islice(logprobs, count))
            yield Answer(request, *read, self.replies.get(place, ()), kind)

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> "Answers":
        """The columns of some answers."""
        found = list(answers)
        tokens, logprobs = (
            Ragged.of([each for answer in found for each in getattr(answer, name)], dtype)
            for name, dtype in (("tokens", np.int32), ("logprobs", np.float64))
        )
        counts = np.array([len(answer.tokens) for answer in found], dtype=np.int64)
        replies = {place: answer.replies for place, answer in enumerate(found) if answer.replies}
        names = [answer.request for answer in found], [answer.kind for answer in found]
        return cls(*names, offsets_of(counts), tokens, logprobs, replies)

    def of_kind(self, kind: str) -> "Answers":
        """Those to requests of one kind."""
        which = np.array([place for place, each in enumerate(self.kinds) if each == kind], dtype=np.intp)
        if len(which) == len(self.kinds):
            return self
        chosen, candidates = spans(self.candidates, which)
        requests = [self.requests[place] for place in which]
        replies = {new: self.replies[old] for new, old in enumerate(which.tolist()) if old in self.replies}
        lists = self.tokens.take(chosen), self.logprobs.take(chosen)
        return Answers(requests, [kind] * len(which), candidates, *lists, replies)


Values = NDArray[np.floating] | tuple[Reply, ...]
"""What an engine gives for a row: a number a lookup, or the replies to a chat."""


def assemble(chunk: Chunk, values: Sequence[Values]) -> Answers:
    """Convert an engine's output for a chunk's rows into answers to its requests."""
    columns, passes = chunk.table.columns, chunk.table.forwards
    numbers = [np.zeros(0) if isinstance(value, tuple) else value for value in values]
    lengths = np.array([len(each) for each in numbers], dtype=np.intp)
    start = np.empty(len(passes), dtype=np.intp)
    start[chunk.order] = np.cumsum(lengths) - lengths
    # A candidate's reads name rows and lookups of its request, which are numbered within it.
    first = np.repeat(columns.rows[:-1], np.diff(columns.candidates))
    row = np.repeat(first, columns.reads.lengths) + columns.reads.flat
    lookup = columns.at.offsets[row] + columns.lookups.flat
    found = np.concatenate([np.zeros(0), *numbers])[start[passes.of_row[row]] + passes.reads.spot[lookup]]
    replies: dict[int, tuple[Reply, ...]] = {}
    place = {number: i for i, number in enumerate(chunk.order)}
    for at in sorted(columns.chats):
        said = values[place[int(passes.of_row[at])]]
        assert isinstance(said, tuple), "a chat is answered in words"
        whose = int(passes.request[at])
        replies[whose] = replies.get(whose, ()) + said
    logprobs = Ragged(found, columns.tokens.offsets)
    return Answers(columns.requests, columns.kinds, columns.candidates, columns.tokens, logprobs, replies)
