"""The planner: every lookup answered once, by a place whose meaning follows from vLLM's contract alone."""

from collections import Counter
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator_serving.rows import Row
from evaluator_serving.vllm_engine.plan import WIDTH, Query, leaders_first, plan


def forward_tokens(query: Query) -> int:
    """Tokens that the model computes: the prompt, and the forced token (what is decoded last isn't computed)."""
    return query.length + query.steps - 1


def row(ids: tuple[int, ...], *lookups: tuple[int, int]) -> Row:
    return Row("causal", ids, lookups)


def asked(row: Row, query: Query, lookup: int) -> tuple[int, int]:
    """What vLLM computes at the place where the planner says that a lookup's answer stands: (position, token id)."""
    (cell,) = [c for c in query.cells if c.lookup == lookup]
    if cell.source == "step":
        return query.length - 1 + cell.line, query.tokens[cell.column]
    position = query.start + cell.line
    if query.grid:
        return position, query.grid[cell.line][cell.column]
    assert query.prompt_scores
    assert cell.column == 0
    return position, row.ids[position + 1]


def check(row: Row, *, grid: bool) -> list[Query]:
    queries = plan(row, grid=grid)
    answered = Counter(cell.lookup for query in queries for cell in query.cells)
    assert answered == Counter(range(len(row.lookups)))
    for query in queries:
        assert 1 <= query.length <= len(row.ids)
        assert query.forced is None or query.forced == row.ids[query.length]
        assert 1 <= len(query.tokens) <= WIDTH
        assert not query.grid or len(query.grid) == query.length - 1 - query.start
        assert all(len(tokens) <= WIDTH for tokens in query.grid)
        assert not (query.grid and query.prompt_scores)
        for cell in query.cells:
            assert asked(row, query, cell.lookup) == row.lookups[cell.lookup]
            if cell.source == "prompt":
                assert query.start + cell.line <= query.length - 2, "the prompt's last position is not scored"
            else:
                assert cell.line < query.steps
    return queries


IDS = tuple(range(100, 110))


ONE_REQUEST = {
    "the last position": ([(9, 1), (9, 2)], {"length": 10, "forced": None, "prompt_scores": False}),
    "ids after the last lookup are not computed": ([(3, 1)], {"computed": 4}),
    "two neighbouring positions: the token between them is forced": (
        [(8, 1), (8, 2), (9, 3), (9, 4)],
        {"length": 9, "forced": 109, "tokens": (1, 2, 3, 4), "computed": 10},
    ),
    "a word of two tokens": ([(8, 109), (9, 5)], {"prompt_scores": False, "forced": 109}),
    "the whole text": ([*((p, IDS[p + 1]) for p in range(9)), (9, 7)], {"prompt_scores": True, "computed": 10}),
    "the shorter word is read from the row of the longer one": (
        [(7, 108), (8, 7), (8, 109), (9, 8)],
        {"prompt_scores": True, "forced": 109},
    ),
    "a lookup that is asked twice": ([(9, 1), (9, 1)], {"tokens": (1,)}),
}


@pytest.mark.parametrize("case", ONE_REQUEST)
def test_one_request_answers_all_lookups(case: str) -> None:
    lookups, expected = ONE_REQUEST[case]
    (query,) = check(row(IDS, *lookups), grid=False)
    found = asdict(query) | {"computed": forward_tokens(query)}
    assert {name: found[name] for name in expected} == expected


def test_far_positions_need_one_request_each() -> None:
    queries = check(row(IDS, (9, 1), (4, 2)), grid=False)
    assert sorted(forward_tokens(q) for q in queries) == [5, 10]


def test_scored_prompt_is_the_shortest_that_reaches() -> None:
    queries = check(row(IDS, (2, 103), (4, 1), (9, 1)), grid=False)
    assert [q.length for q in queries if q.prompt_scores] == [5]


def test_grid_answers_everything_in_one_forward() -> None:
    (query,) = check(row(IDS, (2, 1), (2, 2), (7, 3), (9, 4)), grid=True)
    assert query.grid == ((1, 2), (), (), (), (), (3,), ())
    assert (query.start, forward_tokens(query)) == (2, 10)


def test_more_tokens_than_vllm_scores_at_once_are_spread() -> None:
    lookups = [(9, t) for t in range(WIDTH * 2 + 1)]
    assert len(check(row(IDS, *lookups), grid=False)) == 3
    assert len(check(row(IDS, (8, 3), *lookups), grid=True)) == 3


def test_nothing_asked() -> None:
    assert plan(row(IDS), grid=False) == []


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8).flatmap(
        lambda ids: st.tuples(
            st.just(tuple(ids)),
            st.lists(st.tuples(st.integers(0, len(ids) - 1), st.integers(0, 5)), max_size=20),
        )
    ),
    st.booleans(),
)
def test_any_lookups_are_answered_exactly_once(case: tuple[tuple[int, ...], list[tuple[int, int]]], grid: bool) -> None:
    ids, lookups = case
    queries = check(row(ids, *lookups), grid=grid)
    if grid:
        assert len(queries) <= 1
    positions = {p for p, _ in lookups}
    assert sum(forward_tokens(q) for q in queries) <= sum(p + 1 for p in positions), "never worse than one each"


def test_prompts_that_begin_alike_wait_for_the_first_of_them() -> None:
    prompts = [(1, 2, 3, 4, 9), (7, 7), (1, 2, 3, 5), (7, 8, 9, 9), (1, 2, 3, 4, 5)]
    order = leaders_first(prompts)
    assert sorted(order) == list(range(5))
    assert [prompts[i] for i in order] == [(1, 2, 3, 4, 5), (7, 7), (7, 8, 9, 9), (1, 2, 3, 4, 9), (1, 2, 3, 5)]
    assert leaders_first([]) == []
