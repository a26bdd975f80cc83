"""Rows of a causal model packed into trees, so that a beginning that rows share is computed once and nothing is padded.

A pack is one sequence of tokens in which every token attends to its ancestors only: the tokens before it in the rows that it
belongs to. Pure functions; which models can be given such a sequence is the engine's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.rows import Row


@dataclass(frozen=True, slots=True)
class Pack:
    """A forest of token sequences in one sequence.

    Attributes:
        ids: [nodes] token ids; a parent stands before its children.
        parents: [nodes] index of the token before, −1 for a first one.
        nodes: per row, the node of each of its tokens.
    """

    ids: tuple[int, ...]
    parents: tuple[int, ...]
    nodes: tuple[tuple[int, ...], ...]

    def depths(self) -> tuple[int, ...]:
        """[nodes] position of each token in the rows that it belongs to."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return tuple(depths)

    def visible(self) -> NDArray[np.bool_]:
        """[nodes, nodes]: whether the first node may attend to the second: itself and its ancestors."""
        seen = np.eye(len(self.ids), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] |= seen[parent]
        return seen


def pack(rows: Sequence[Row]) -> Pack:
    """Rows as one pack. A token with the same tokens before it becomes one node."""
    ids: list[int] = []
    parents: list[int] = []
    children: dict[tuple[int, int], int] = {}
    nodes = []
    for row in rows:
        path = []
        parent = -1
        for token in row.ids:
            node = children.setdefault((parent, token), len(ids))
            if node == len(ids):
                ids.append(token)
                parents.append(parent)
            path.append(node)
            parent = node
        nodes.append(tuple(path))
    return Pack(tuple(ids), tuple(parents), tuple(nodes))


def packs(rows: Sequence[Row], *, tokens: int) -> list[tuple[int, ...]]:
    """Cut rows into packs of at most `tokens` nodes (at least one row each). Returns indices into `rows`.

    Rows are taken in the order of their ids, in which rows with a common beginning stand together.
    """
    cut: list[tuple[int, ...]] = []
    members: list[int] = []
    size = 0
    before: tuple[int, ...] = ()
    for i in sorted(range(len(rows)), key=lambda i: rows[i].ids):
        new = len(rows[i].ids) - (_common(before, rows[i].ids) if members else 0)
        if members and size + new > tokens:
            cut.append(tuple(members))
            members, size, new = [], 0, len(rows[i].ids)
        members.append(i)
        size += new
        before = rows[i].ids
    if members:
        cut.append(tuple(members))
    return cut


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    shorter = min(len(first), len(second))
    return next((i for i in range(shorter) if first[i] != second[i]), shorter)
