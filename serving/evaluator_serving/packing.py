"""Packing: sequences with common prefixes as one tree, so that each prefix is computed once.

A pack is one input of a causal model. Each node is a token that attends to its ancestors only, at its position in its
sequences; with the corresponding attention mask, the outputs equal those of the plain sequences. Pure functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WIDTH = 256
"""Nodes of a pack. Attention's cost grows with the width, what is shared hardly does beyond this."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Token, position and parent (-1 for a first token) of each node; parents stand before their children."""

    ids: tuple[int, ...]
    places: tuple[int, ...]
    parents: tuple[int, ...]

    def mask(self, width: int) -> NDArray[np.bool_]:
        """The attention mask [width, width]; nodes beyond the pack attend to themselves."""
        seen = np.eye(width, dtype=np.bool_)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] |= seen[parent]
        return seen


@dataclass(frozen=True, slots=True)
class Packed:
    """Packs and, for each sequence, its pack and nodes."""

    packs: tuple[Pack, ...]
    paths: tuple[tuple[int, tuple[int, ...]], ...]


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two sequences."""
    same = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        same += 1
    return same


def pack(sequences: Sequence[tuple[int, ...]], width: int = WIDTH) -> Packed:
    """Arrange sequences in packs of at most `width` nodes, or twice a sequence's length if that is more."""
    packs: list[Pack] = []
    paths: list[tuple[int, tuple[int, ...]]] = [(0, ())] * len(sequences)
    ids: list[int] = []
    places: list[int] = []
    parents: list[int] = []
    last: tuple[int, ...] = ()
    path: tuple[int, ...] = ()
    # In lexicographic order the longest beginning that a sequence shares with any earlier one, it shares with the last.
    for i in sorted(range(len(sequences)), key=lambda i: sequences[i]):
        sequence = sequences[i]
        common = shared(last, sequence)
        if ids and len(ids) + len(sequence) - common > max(width, 2 * len(sequence)):
            packs.append(Pack(tuple(ids), tuple(places), tuple(parents)))
            ids, places, parents, path, common = [], [], [], (), 0
        new = tuple(range(len(ids), len(ids) + len(sequence) - common))
        ids += sequence[common:]
        places += range(common, len(sequence))
        parents += [*path[common - 1 : common], *new][: len(new)] if common else [-1, *new][: len(new)]
        last, path = sequence, path[:common] + new
        paths[i] = (len(packs), path)
    if ids:
        packs.append(Pack(tuple(ids), tuple(places), tuple(parents)))
    return Packed(tuple(packs), tuple(paths))
