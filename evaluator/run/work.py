"""The chunks of one model that are still to be scored, whatever happens to the workers that score them. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from evaluator_serving.rows import Chunk, make_chunk, pieces

KILLS_BEFORE_SPLIT = 2
"""A chunk during which a worker died this often is cut up: workers also die by chance, and a restart costs seconds."""
KILLS_OF_ONE = 2
"""Requests that share one row and are alone in their chunk are given up after this many deaths."""


@dataclass(slots=True)
class Work:
    """A queue of chunks. Each chunk is at any time either waiting here, in flight with one worker, done, or given up."""

    waiting: deque[Chunk]
    share_prefixes: bool = True
    _kills: dict[tuple[str, ...], int] = field(default_factory=dict)
    _suspects: set[tuple[str, ...]] = field(default_factory=set)

    @classmethod
    def of(cls, chunks: Iterable[Chunk], *, share_prefixes: bool = True) -> "Work":
        """Work that consists of these chunks, in this order."""
        return cls(deque(chunks), share_prefixes)

    def take(self) -> Chunk | None:
        """The next chunk for a worker, None if none waits."""
        return self.waiting.popleft() if self.waiting else None

    def give_back(self, chunk: Chunk) -> None:
        """A worker ended before it began this chunk: it waits again, first in line."""
        self.waiting.appendleft(chunk)

    def killed(self, chunk: Chunk) -> list[str]:
        """A worker died while it was scoring this chunk. Returns the ids of the requests that are given up now.

        The chunk is tried again, then cut into about as many pieces as each then has requests; a piece that kills once more
        is cut into single rows. So the row that kills workers is given up after five deaths, however large the chunk.
        """
        key = tuple(item.request for item in chunk.encoded)
        kills = self._kills[key] = self._kills.get(key, 0) + 1
        suspect = key in self._suspects
        cut = pieces(chunk, len(key) if suspect else max(2, round(len(key) ** 0.5)), share_prefixes=self.share_prefixes)
        if len(cut) == 1 and kills >= KILLS_OF_ONE:
            return list(key)
        if len(cut) > 1 and (kills >= KILLS_BEFORE_SPLIT or suspect):
            for piece in reversed(cut):
                self._suspects.add(tuple(item.request for item in piece.encoded))
                self.waiting.appendleft(piece)
        else:
            self.waiting.appendleft(chunk)
        return []

    def without(self, chunk: Chunk, requests: Sequence[str]) -> None:
        """Some requests of a chunk can't be scored: the rest of it waits again."""
        bad = set(requests)
        rest = [item for item in chunk.encoded if item.request not in bad]
        if rest:
            self.waiting.appendleft(make_chunk(rest, share_prefixes=self.share_prefixes))

    @staticmethod
    def hopeless(failed: int, total: int) -> bool:
        """Whether so many requests have failed that the model, not the requests, is at fault."""
        return failed > max(100, total // 10)
