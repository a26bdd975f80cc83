"""Which samples a limit takes: spread over the data set's groups, drawn with a recorded seed, the same for every model.

Groups take turns; which of them comes first, and the order of a group's samples, is drawn. The order doesn't depend on the
limit: the samples of a small limit are among those of a larger one, so that raising a limit (or leaving it out) asks only for
what is new.
"""

import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import polars as pl

from evaluator.vocabulary import ORDER, Samples

SEED = 0

Path = tuple[Hashable, ...]
"""A group: its value in each of the columns."""

T = TypeVar("T")


def spread(frame: pl.DataFrame, strata: Sequence[str], limit: int | None = None, seed: int = SEED) -> list[int]:
    """Rows of `frame` in the order in which a limit takes them, the first `limit` of them.

    Rows with equal values in the columns `strata` are a group; without such columns all rows are one. A limit takes a second
    sample of a group only after one of every other. The first columns' values alternate as far as there are groups for it.
    """
    groups: dict[Path, Sequence[int]] = {(): range(frame.height)}
    if strata:
        rows = frame.select(*strata, pl.int_range(pl.len()).alias(ORDER)).group_by(*strata, maintain_order=True).agg(ORDER)
        groups = {tuple(path): members for *path, members in rows.iter_rows()}
    order = _alternating(list(groups), 0, seed)
    shares = _shares([len(groups[path]) for path in order], min(frame.height, frame.height if limit is None else limit))
    taken = (
        [groups[path][i] for i in _drawn(len(groups[path]), share, _dice(seed, path))]
        for path, share in zip(order, shares, strict=True)
    )
    return list(_in_turn(taken))


def _dice(seed: int, path: Path) -> random.Random:
    return random.Random("/".join(map(str, (seed, *path))))


def _alternating(groups: Sequence[Path], column: int, seed: int) -> list[Path]:
    """Groups that agree in the first `column` columns, so that those of different values in the next one take turns."""
    if len(groups) < 2:
        return list(groups)
    inner: dict[Hashable, list[Path]] = {}
    for path in groups:
        inner.setdefault(path[column], []).append(path)
    parts = [_alternating(part, column + 1, seed) for part in inner.values()]
    _dice(seed, groups[0][:column]).shuffle(parts)
    return list(_in_turn(parts))


def _in_turn(parts: Iterable[Sequence[T]]) -> Iterator[T]:
    """The first item of each part, then the second ones, and so on."""
    left = list(parts)
    turn = 0
    while left := [part for part in left if turn < len(part)]:
        yield from (part[turn] for part in left)
        turn += 1


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """How many of `count` turns each of several groups gets, where one that has no more samples is passed over."""
    shares = [0] * len(sizes)
    while count:
        open_ = [i for i, size in enumerate(sizes) if shares[i] < size]
        turns = min(count // len(open_), min(sizes[i] - shares[i] for i in open_))
        for i in open_ if turns else open_[:count]:
            shares[i] += max(turns, 1)
            count -= max(turns, 1)
    return shares


def _drawn(size: int, count: int, dice: random.Random) -> Iterator[int]:
    """The first `count` numbers of a random order of 0 … size − 1."""
    moved: dict[int, int] = {}
    for i in range(count):
        chosen = dice.randrange(i, size)
        here = moved.pop(i, i)
        yield here if chosen == i else moved.get(chosen, chosen)
        if chosen != i:
            moved[chosen] = here


def select_samples(frame: pl.DataFrame, order: Sequence[int]) -> pl.DataFrame:
    """These rows, as they stand in `frame`, with their places in the order."""
    places = pl.DataFrame({"row": order, ORDER: range(len(order))}, schema={"row": pl.Int64, ORDER: pl.Int64}).sort("row")
    return frame[places["row"]].with_columns(places[ORDER])


def limited(samples: Samples, strata: Sequence[str], limit: int | None) -> Samples:
    """The samples, or those that the limit takes, with their places in the column ORDER.

    `strata` name the columns of the samples that are their groups; without them all samples are one.
    """
    order = spread(samples.frame, strata, limit)
    return replace(samples, frame=select_samples(samples.frame, order), whole=samples.frame.height)


def sample_counts(limit: int | None, samples: int) -> dict[str, Any]:
    """The record of what a model is asked of a task: see `evaluator.store.sample_counts`."""
    return {"limit": limit, "seed": SEED, "samples": samples}
