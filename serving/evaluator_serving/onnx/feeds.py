"""From rows to the graphs' inputs: which rows go through a graph together, and where its answers belong. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.batching import batches, narrow, positions, prefix_batches
from evaluator_serving.onnx.manifest import Manifest
from evaluator_serving.packing import pack
from evaluator_serving.rows import Row

Inputs = Mapping[str, NDArray[np.int64]]
"""A graph's inputs by name, without what is asked of the head."""

Place = tuple[int, int]
"""Where an answer belongs: (row, lookup)."""


@dataclass(frozen=True, slots=True)
class RowPart:
    """A row or a part of one: the row, its index, and which of its lookups `row` asks for."""

    index: int
    row: Row
    which: tuple[int, ...]

    def places(self, at: int) -> list[tuple[int, Place]]:
        """(token, place) of each lookup at position `at`."""
        pairs = zip(self.row.lookups, self.which, strict=True)
        return [(token, (self.index, place)) for (position, token), place in pairs if position == at]


@dataclass(frozen=True, slots=True)
class Feed:
    """One batch.

    Attributes:
        inputs: the graph's.
        wanted: token ids at each position read, in the order in which the graph gives them.
        places: for each of those positions and each of its tokens, the places that it answers.
    """

    inputs: Inputs
    wanted: list[tuple[int, ...]]
    places: list[list[list[Place]]]


class Feeds(Protocol):
    """How rows of one head are fed."""

    def parts(self, rows: Sequence[Row]) -> list[RowPart]:
        """Rows, cut where too much is read of one."""

    def batches(self, parts: Sequence[RowPart]) -> list[tuple[int, ...]]:
        """Which of the parts go together."""

    def feed(self, parts: Sequence[RowPart]) -> Feed:
        """The inputs of one batch."""


class MaskedFeeds:
    """Padded rows, read at their masked positions; at most `tokens` padded tokens and `reads` positions a batch."""

    def __init__(self, manifest: Manifest, *, tokens: int, reads: int) -> None:
        self._manifest, self._tokens, self._reads = manifest, tokens, reads

    def parts(self, rows: Sequence[Row]) -> list[RowPart]:
        """Rows; those with more masks than a batch may have in parts."""
        return [RowPart(i, part, which) for i, row in enumerate(rows) for part, which in narrow(row, self._reads)]

    def batches(self, parts: Sequence[RowPart]) -> list[tuple[int, ...]]:
        """Longest first."""
        return batches([part.row for part in parts], tokens=self._tokens, reads=self._reads)

    def feed(self, parts: Sequence[RowPart]) -> Feed:
        """Ids padded on the right, and the masked positions in ascending order."""
        longest = max(len(part.row.ids) for part in parts)
        ids = np.full((len(parts), longest), self._manifest.padding, np.int64)
        mask = np.zeros((len(parts), longest), np.int64)
        types = np.zeros((len(parts), longest), np.int64)
        for i, part in enumerate(parts):
            ids[i, : len(part.row.ids)] = part.row.ids
            mask[i, : len(part.row.ids)] = 1
            if part.row.type_ids is not None:
                types[i, : len(part.row.ids)] = part.row.type_ids
        spots = [(i, at) for i, part in enumerate(parts) for at in positions(part.row)]
        where = np.array(spots, np.int64).reshape(-1, 2)
        inputs = {"input_ids": ids, "attention_mask": mask, "mask_positions": where}
        if self._manifest.types:
            inputs["token_type_ids"] = types
        asked = [parts[i].places(at) for i, at in spots]
        return Feed(inputs, [tuple(t for t, _ in some) for some in asked], [[[place] for _, place in some] for some in asked])


class CausalFeeds:
    """Trees of rows that begin alike: about `tokens` nodes a batch, and no more of attention's scores than `score_bytes`."""

    def __init__(self, manifest: Manifest, *, tokens: int, score_bytes: int) -> None:
        self._heads, self._tokens, self._score_bytes = manifest.heads, tokens, score_bytes

    def parts(self, rows: Sequence[Row]) -> list[RowPart]:
        """The rows that are read."""
        return [RowPart(i, row, tuple(range(len(row.lookups)))) for i, row in enumerate(rows) if row.lookups]

    def batches(self, parts: Sequence[RowPart]) -> list[tuple[int, ...]]:
        """Rows that begin alike together; the longest first, so that a batch that doesn't fit shows itself at the start."""
        rows = [part.row for part in parts]
        found: list[tuple[int, ...]] = []
        pending = prefix_batches(rows, tokens=self._tokens, reads=1 << 30)[::-1]
        while pending:
            batch = pending.pop()
            longest = max(len(rows[i].ids) for i in batch)
            # Attention's rows are padded to the longest, and a shared beginning stands in each of them.
            large = len(batch) * longest > 8 * self._tokens or len(batch) * longest**2 * self._heads * 4 > self._score_bytes
            if large and len(batch) > 1:
                half = len(batch) // 2
                pending += [batch[half:], batch[:half]]
            else:
                found.append(batch)
        return found

    def feed(self, parts: Sequence[RowPart]) -> Feed:
        """The rows' tree; each node is read once, whatever rows read it."""
        sequences = [part.row.ids for part in parts]
        packed = pack(sequences, width=sum(map(len, sequences)))
        (tree,) = packed.packs
        rows = np.zeros((len(parts), max(map(len, sequences))), np.int64)
        places = np.zeros(len(tree.ids), np.int64)
        asked: dict[int, dict[int, list[Place]]] = {}
        for i, (part, (_, path)) in enumerate(zip(parts, packed.paths, strict=True)):
            rows[i, : len(path)] = path
            places[list(path)] = i * rows.shape[1] + np.arange(len(path))
            for (at, token), lookup in zip(part.row.lookups, part.which, strict=True):
                asked.setdefault(path[at], {}).setdefault(token, []).append((part.index, lookup))
        inputs = {"input_ids": np.array(tree.ids), "row_nodes": rows, "node_places": places, "reads": np.array(list(asked))}
        return Feed(inputs, [tuple(tokens) for tokens in asked.values()], [list(tokens.values()) for tokens in asked.values()])
