"""Batches: which rows go through a model together. Pure functions, used by every engine that batches by itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from evaluator_serving.packing import shared
from evaluator_serving.rows import Row

Mates = Literal["any", "equal", "none"]
"""Rows that may stand beside a row in a batch: any, those of equal length (encoder's and decoder's), none."""


def positions(row: Row) -> tuple[int, ...]:
    """The distinct positions that a row is read at, ascending."""
    return tuple(sorted({at for at, _ in row.lookups}))


def batches(rows: Sequence[Row], *, tokens: int, reads: int, mates: Mates = "any") -> list[tuple[int, ...]]:
    """Cut rows into batches of at most `tokens` padded tokens and `reads` read positions (at least one row each).

    Rows are taken longest first, so that a batch that doesn't fit in memory shows itself at the start, and rows of one
    length stand together, so that little is padding, as do rows with one encoder text. `mates` says which rows may share a
    batch. Returns indices into `rows`.
    """
    if mates == "none":
        return [(i,) for i in sorted(range(len(rows)), key=lambda i: _place(rows[i]))]
    order = sorted(range(len(rows)), key=lambda i: (_shape(rows[i]) if mates == "equal" else (), _place(rows[i])))
    cut: list[tuple[int, ...]] = []
    batch: list[int] = []
    widest = deepest = read = 0
    for i in order:
        width, depth = len(rows[i].ids), len(rows[i].encoder_ids or ())
        count = len(positions(rows[i]))
        padded = (len(batch) + 1) * (max(widest, width) + max(deepest, depth))
        apart = mates == "equal" and bool(batch) and _shape(rows[batch[-1]]) != _shape(rows[i])
        if batch and (padded > tokens or read + count > reads or apart):
            cut.append(tuple(batch))
            batch, widest, deepest, read = [], 0, 0, 0
        batch.append(i)
        widest, deepest, read = max(widest, width), max(deepest, depth), read + count
    if batch:
        cut.append(tuple(batch))
    return cut


def prefix_batches(rows: Sequence[Row], *, tokens: int, reads: int) -> list[tuple[int, ...]]:
    """Cut rows into batches like `batches`, but with rows that begin alike together, each shared beginning counted once."""
    cut: list[tuple[int, ...]] = []
    batch: list[int] = []
    size = read = 0
    for i in sorted(range(len(rows)), key=lambda i: rows[i].ids):
        count = len(positions(rows[i]))
        new = len(rows[i].ids) - (shared(rows[batch[-1]].ids, rows[i].ids) if batch else 0)
        if batch and (size + new > tokens or read + count > reads):
            cut.append(tuple(batch))
            batch, size, read, new = [], 0, 0, len(rows[i].ids)
        batch.append(i)
        size, read = size + new, read + count
    if batch:
        cut.append(tuple(batch))
    return sorted(cut, key=lambda batch: -max(len(rows[i].ids) for i in batch))


def parted(rows: Sequence[Row], turn: int | None) -> list[list[int]]:
    """Indices of the rows of more than `turn` tokens and of the others: no batch may hold some of both."""
    if turn is None:
        return [list(range(len(rows)))]
    far = [i for i, row in enumerate(rows) if len(row.ids) > turn]
    near = [i for i, row in enumerate(rows) if len(row.ids) <= turn]
    return [part for part in (far, near) if part]


def _shape(row: Row) -> tuple[int, int]:
    return -len(row.encoder_ids or ()), -len(row.ids)


def _place(row: Row) -> tuple[int, tuple[int, ...], int, tuple[int, ...]]:
    encoder = row.encoder_ids or ()
    return -len(encoder), encoder, -len(row.ids), row.ids


def narrow(row: Row, reads: int) -> list[tuple[Row, tuple[int, ...]]]:
    """Split a row that is read at more than `reads` positions into rows of the same input that are read at fewer.

    Returns (row, which of the original's lookups it answers) pairs; one with everything where it fits.
    """
    at = positions(row)
    if len(at) <= reads:
        return [(row, tuple(range(len(row.lookups))))]
    parts = []
    for start in range(0, len(at), reads):
        wanted = set(at[start : start + reads])
        which = tuple(i for i, (position, _) in enumerate(row.lookups) if position in wanted)
        parts.append((replace(row, lookups=tuple(row.lookups[i] for i in which)), which))
    return parts
