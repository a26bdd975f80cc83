"""Chunks survive workers that die; the request that kills them is found and nothing else is lost."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.scoring.pending_chunks import PendingChunks
from evaluator.scoring.score import requests_of_row
from evaluator_serving.chunks import Chunk, chunks
from evaluator_serving.rows import Encoded, Row


def encoded(count: int) -> list[Encoded]:
    return [Encoded(f"r{i}", (Row("masked", (*range(i % 7 + 1), i), ((0, 1),)),), ()) for i in range(count)]


def ids(chunk: Chunk) -> list[str]:
    return [item.request for item in chunk.encoded]


@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=4), st.integers(1, 60), st.integers(0, 9))
def test_poison_is_isolated_and_everything_else_is_scored_once(count: int, poison: set[int], tokens: int, seed: int) -> None:
    dice = random.Random(seed)
    work = PendingChunks.of(chunks(encoded(count), tokens=tokens))
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


def shared(count: int, *, alike: int = 1) -> list[Encoded]:
    """Requests that all read the row of the first token besides their own; `alike` of them have the same rows."""
    texts = [(0, 1, *range(i % 7), 100 + i) for i in range(count)]
    rows = [(Row("causal", (0,), ((0, 1),)), Row("causal", text, ((1, 1),))) for text in texts]
    return [Encoded(f"r{i}-{k}", rows[i], ()) for i in range(count) for k in range(alike)]


@given(st.integers(2, 60), st.sets(st.integers(0, 59), min_size=1, max_size=3))
def test_requests_that_share_a_row_are_given_up_alone(count: int, poison: set[int]) -> None:
    """The poison is in a request's own row; the chunk's requests all hang together by another one."""
    work = PendingChunks.of(chunks(shared(count), tokens=10**6))
    killers = {f"r{i}-0" for i in poison if i < count}
    scored, lost, deaths = [], [], 0
    while chunk := work.take():
        if killers & set(ids(chunk)):
            lost += work.killed(chunk)
            deaths += 1
        else:
            scored += ids(chunk)
    assert sorted(lost) == sorted(killers)
    assert sorted(scored) == sorted({item.request for item in shared(count)} - killers)
    assert deaths <= 5 * max(1, len(killers))


@given(st.integers(1, 40), st.integers(0, 39), st.integers(1, 3))
def test_a_row_that_can_not_be_scored_takes_only_requests_of_its_inputs(count: int, wrong: int, alike: int) -> None:
    """The engine names a merged row, which may be one that all requests of the chunk begin."""
    work = PendingChunks.of(chunks(shared(count, alike=alike), tokens=10**6))
    bad = {f"r{wrong}-{k}" for k in range(alike)} if wrong < count else set()
    scored, lost, calls = [], [], 0
    while chunk := work.take():
        calls += 1
        row = next((r for r, row in enumerate(chunk.merged.rows) if row.ids[-1] == 100 + wrong), None)
        if row is None:
            scored += ids(chunk)
        else:
            lost += work.failed(chunk, requests_of_row(chunk, row))
    assert set(lost) == bad
    assert len(lost) == len(bad)
    assert sorted(scored) == sorted({item.request for item in shared(count, alike=alike)} - bad)
    assert calls <= 30


def test_failed_keeps_the_rest() -> None:
    work = PendingChunks.of(chunks(encoded(5), tokens=1000))
    chunk = work.take()
    assert chunk is not None
    assert work.failed(chunk, ["r3"]) == ["r3"]
    rest = work.take()
    assert rest is not None
    assert sorted(ids(rest)) == ["r0", "r1", "r2", "r4"]
    assert work.take() is None


def test_poison_is_alone_after_five_deaths_and_takes_all_requests_of_its_inputs() -> None:
    """400 requests in one chunk, two of them read from one poisonous row."""
    items = encoded(400)
    twin = Encoded("twin", items[123].rows, ())
    work = PendingChunks.of(chunks([*items, twin], tokens=10**6))
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


@pytest.mark.parametrize(
    ("failed", "total", "hopeless"), [(100, 300, False), (101, 300, True), (300, 3000, False), (2, 4, False), (3, 4, True)]
)
def test_hopeless(failed: int, total: int, hopeless: bool) -> None:
    assert PendingChunks.hopeless(failed, total) is hopeless
