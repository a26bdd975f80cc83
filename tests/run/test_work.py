"""Chunks survive workers that die; the request that kills them is found and nothing else is lost."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.run.work import Work
from evaluator_serving.rows import Chunk, Encoded, Row, chunks


def encoded(count: int) -> list[Encoded]:
    return [Encoded(f"r{i}", (Row("masked", (*range(i % 7 + 1), i), ((0, 1),)),), ()) for i in range(count)]


def ids(chunk: Chunk) -> list[str]:
    return [item.request for item in chunk.encoded]


@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=4), st.integers(1, 60), st.integers(0, 9))
def test_poison_is_isolated_and_everything_else_is_scored_once(count: int, poison: set[int], tokens: int, seed: int) -> None:
    dice = random.Random(seed)
    work = Work.of(chunks(encoded(count), tokens=tokens))
    killers = {f"r{i}" for i in poison if i < count}
    scored: list[str] = []
    lost: list[str] = []
    for _ in range(10_000):
        chunk = work.take()
        if chunk is None:
            break
        if dice.random() < 0.05:
            work.give_back(chunk)  # its worker ended for another reason before it began
        elif killers & set(ids(chunk)):
            lost += work.killed(chunk)
        else:
            scored += ids(chunk)
    assert work.take() is None, "did not end"
    assert sorted(lost) == sorted(killers)
    assert sorted(scored) == sorted({f"r{i}" for i in range(count)} - killers)


def test_without_keeps_the_rest() -> None:
    work = Work.of(chunks(encoded(5), tokens=1000))
    chunk = work.take()
    assert chunk is not None
    work.without(chunk, ["r3"])
    rest = work.take()
    assert rest is not None
    assert sorted(ids(rest)) == ["r0", "r1", "r2", "r4"]
    work.without(rest, ids(rest))
    assert work.take() is None


def test_poison_is_alone_after_five_deaths_and_takes_all_requests_of_its_row() -> None:
    """400 requests in one chunk, two of them read from one poisonous row."""
    items = encoded(400)
    twin = Encoded("twin", items[123].rows, ())
    work = Work.of(chunks([*items, twin], tokens=10**6))
    deaths, lost, scored = 0, [], 0
    while chunk := work.take():
        if {"r123", "twin"} & set(ids(chunk)):
            deaths += 1
            lost += work.killed(chunk)
        else:
            scored += len(ids(chunk))
    assert sorted(lost) == ["r123", "twin"]
    assert deaths == 5
    assert scored == 399


@pytest.mark.parametrize(("failed", "total", "hopeless"), [(100, 50, False), (101, 50, True), (300, 3000, False)])
def test_hopeless(failed: int, total: int, hopeless: bool) -> None:
    assert Work.hopeless(failed, total) is hopeless
