"""Which samples a limit takes: spread over the data set's groups, drawn with a recorded seed, the same for every model.

Groups take turns; which of them comes first, and the order of a group's samples, is drawn. The order doesn't depend on the
limit: the samples of a small limit are among those of a larger one, so that raising a limit (or leaving it out) asks only for
what is new.
"""

import random
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import polars as pl

from evaluator.tasks.base import DataSource, Samples, Task

SEED = 0

ORDER = "order"
"""Column of a sample's place in the order, from 0: a limit N takes the places below N."""


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


def chosen(frame: pl.DataFrame, order: Sequence[int]) -> pl.DataFrame:
    """These rows, as they stand in `frame`, with their places in the order."""
    places = pl.DataFrame({"row": order, ORDER: range(len(order))}, schema={"row": pl.Int64, ORDER: pl.Int64}).sort("row")
    return frame[places["row"]].with_columns(places[ORDER])


@runtime_checkable
class LoadsLimited(Protocol):
    """A task that needn't read everything for a few samples."""

    def load_limited(self, data: DataSource, limit: int) -> Samples:
        """What `limited(self, data, limit)` would give."""


def limited(task: Task, data: DataSource, limit: int | None) -> Samples:
    """The task's samples, or those that the limit takes, with their places in the column ORDER.

    A task's `strata` name the columns of its samples that are its groups; without them all samples are one.
    """
    if limit is not None and isinstance(task, LoadsLimited):
        return task.load_limited(data, limit)
    samples = task.load(data)
    order = spread(samples.frame, getattr(task, "strata", ()), limit)
    return replace(samples, frame=chosen(samples.frame, order), whole=samples.frame.height)


# --- what models were asked, in run.json -------------------------------------------------------------------------------

Asked = Mapping[str, Any]
"""{"limit": N or null, "seed": …, "samples": how many it comes to for this model}, by task in a model's entry.

Where samples can't be asked of the model: also "skipped", how many of them, and "reason", why the first one can't.
"""


def asked(limit: int | None, samples: int) -> Asked:
    """The record of what a model is asked of a task."""
    return {"limit": limit, "seed": SEED, "samples": samples}


def widened(known: Mapping[str, Any], now: Mapping[str, Asked]) -> dict[str, Asked]:
    """What a model (`known`: its entry) has been asked by task, when it is asked `now` besides.

    A smaller limit takes nothing back. An older version recorded no limits: as long as a limit is asked, all that such a model
    has answered counts.
    """
    merged = dict(known.get("asked", {}))
    for task, new in now.items():
        old = merged.get(task)
        if old is None:
            if task not in known.get("heads_used", {}) or new["limit"] is None:
                merged[task] = new
        elif new["limit"] is None or (old["limit"] is not None and new["limit"] >= old["limit"]):
            merged[task] = new
    return merged


def asked_rows(table: pl.DataFrame, entry: Mapping[str, Any], task: str) -> pl.DataFrame:
    """The rows of a task's table that the model of this entry was asked."""
    limit = entry.get("asked", {}).get(task, {}).get("limit")
    if ORDER not in table.columns:
        return table
    return (table if limit is None else table.filter(pl.col(ORDER) < limit)).drop(ORDER)
