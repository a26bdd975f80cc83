"""The chunks of one model that are still to be scored, whatever happens to the workers that score them. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from evaluator_serving.chunks import Chunk, pieces

KILLS_BEFORE_SPLIT = 2
"""A chunk during which a worker died this often is cut up: workers also die by chance, and a restart costs seconds."""
KILLS_OF_ONE = 2
"""Requests that have equal inputs and are alone in their chunk are given up after this many deaths."""


@dataclass(slots=True)
class PendingChunks:
    """A queue of chunks. Each chunk is at any time either waiting here, in flight with one worker, done, or given up."""

    waiting: deque[Chunk]
    _kills: dict[tuple[str, ...], int] = field(default_factory=dict)
    _suspects: set[tuple[str, ...]] = field(default_factory=set)

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> "PendingChunks":
        """Work that consists of these chunks, in this order."""
        return cls(deque(chunks))

    def take(self) -> Chunk | None:
        """The next chunk for a worker, None if none waits."""
        return self.waiting.popleft() if self.waiting else None

    @property
    def next(self) -> Chunk | None:
        """What the next worker takes."""
        return self.waiting[0] if self.waiting else None

    def doubtful(self, chunk: Chunk) -> bool:
        """Whether a worker may die of this chunk: one has, or of a larger one of which it is a part."""
        return bool(self._kills or self._suspects) and (chunk.requests in self._kills or chunk.requests in self._suspects)

    def give_back(self, chunk: Chunk) -> None:
        """A worker ended before it began this chunk: it waits again, first in line."""
        self.waiting.appendleft(chunk)

    def killed(self, chunk: Chunk) -> list[str]:
        """A worker died while it was scoring this chunk. Returns the ids of the requests that are given up now.

        The chunk is tried again, then cut into about as many pieces as each then has requests; a piece that kills once more
        is cut into single requests. So a request that kills workers is given up after five deaths, however large the chunk,
        and alone: those that only share a row with it are scored.
        """
        key = chunk.requests
        kills = self._kills[key] = self._kills.get(key, 0) + 1
        suspect = key in self._suspects
        cut = pieces(chunk, len(key) if suspect else max(2, round(len(key) ** 0.5)))
        if len(cut) == 1 and kills >= KILLS_OF_ONE:
            return list(key)
        if len(cut) > 1 and (kills >= KILLS_BEFORE_SPLIT or suspect):
            for piece in reversed(cut):
                self._suspects.add(piece.requests)
                self.waiting.appendleft(piece)
        else:
            self.waiting.appendleft(chunk)
        return []

    def failed(self, chunk: Chunk, requests: Sequence[str]) -> list[str]:
        """A row that these requests of a chunk read from can't be scored. Returns the ids of those that are given up now.

        Where they have other inputs besides, one of them is at fault (only the end of a row that the others begin, say):
        they wait in smaller chunks. So does the rest of the chunk.
        """
        bad = set(requests)
        if rest := [i for i, request in enumerate(chunk.requests) if request not in bad]:
            self.waiting.appendleft(chunk.part(rest))
        shared = chunk.part([i for i, request in enumerate(chunk.requests) if request in bad])
        apart = pieces(shared, max(2, round(len(bad) ** 0.5)))
        if len(apart) == 1:
            return list(requests)
        self.waiting.extendleft(reversed(apart))
        return []

    @staticmethod
    def hopeless(failed: int, total: int) -> bool:
        """Whether so many requests have failed that the model, not the requests, is at fault: a tenth and 100, or half."""
        return failed > max(100, total // 10) or 2 * failed > total
