"""The planner: every lookup answered once, by a place whose meaning follows from vLLM's contract alone."""

from collections import Counter

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


def test_last_position_is_one_plain_request() -> None:
    (query,) = check(row(IDS, (9, 1), (9, 2)), grid=False)
    assert (query.length, query.steps, query.prompt_scores) == (10, 1, False)


def test_ids_after_the_last_lookup_are_not_computed() -> None:
    (query,) = check(row(IDS, (3, 1)), grid=False)
    assert forward_tokens(query) == 4


def test_two_neighbouring_positions_force_the_token_between_them() -> None:
    (query,) = check(row(IDS, (8, 1), (8, 2), (9, 3), (9, 4)), grid=False)
    assert (query.length, query.forced, query.tokens) == (9, 109, (1, 2, 3, 4))
    assert forward_tokens(query) == 10


def test_word_of_two_tokens_needs_no_scored_prompt() -> None:
    (query,) = check(row(IDS, (8, 109), (9, 5)), grid=False)
    assert not query.prompt_scores
    assert query.forced == 109


def test_whole_text_is_one_scored_prompt() -> None:
    (query,) = check(row(IDS, *((p, IDS[p + 1]) for p in range(9)), (9, 7)), grid=False)
    assert query.prompt_scores
    assert forward_tokens(query) == 10


def test_shared_beginning_of_two_words_is_one_request() -> None:
    # Candidates (101, 7) and (101, 102, 8) after id 100: the shorter is read from the longer's row.
    (query,) = check(row((100, 101, 102), (0, 101), (1, 7), (1, 102), (2, 8)), grid=False)
    assert query.prompt_scores
    assert query.forced == 102


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


def test_a_lookup_asked_twice_is_answered_twice() -> None:
    (query,) = check(row(IDS, (9, 1), (9, 1)), grid=False)
    assert query.tokens == (1,)


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
