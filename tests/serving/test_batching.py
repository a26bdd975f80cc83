"""Batches: everything once, budgets kept, longest first."""

from hypothesis import given
from hypothesis import strategies as st

from evaluator_serving.batching import batches, narrow, positions
from evaluator_serving.rows import Row


def rows_of(lengths: list[tuple[int, int, int]]) -> list[Row]:
    """Rows of (decoder length, encoder length, reads)."""
    return [
        Row("seq2seq", (1,) * n, tuple((i % n, 5) for i in range(reads)), encoder_ids=(1,) * encoder if encoder else None)
        for n, encoder, reads in lengths
    ]


shapes = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20), st.integers(1, 12)), max_size=40)


@given(shapes, st.integers(1, 200), st.integers(1, 30))
def test_every_row_is_in_one_batch_and_budgets_hold(lengths: list[tuple[int, int, int]], tokens: int, reads: int) -> None:
    rows = rows_of(lengths)
    cut = batches(rows, tokens=tokens, reads=reads)
    assert sorted(i for batch in cut for i in batch) == list(range(len(rows)))
    for batch in cut:
        padded = len(batch) * (max(len(rows[i].ids) for i in batch) + max(len(rows[i].encoder_ids or ()) for i in batch))
        assert len(batch) == 1 or padded <= tokens
        assert len(batch) == 1 or sum(len(positions(rows[i])) for i in batch) <= reads


@given(shapes, st.integers(1, 200), st.integers(1, 30))
def test_only_rows_that_may_share_a_batch_do(lengths: list[tuple[int, int, int]], tokens: int, reads: int) -> None:
    rows = rows_of(lengths)
    equal = batches(rows, tokens=tokens, reads=reads, mates="equal")
    shapes_of = [{(len(rows[i].ids), len(rows[i].encoder_ids or ())) for i in batch} for batch in equal]
    assert all(len(shape) == 1 for shape in shapes_of)
    alone = batches(rows, tokens=tokens, reads=reads, mates="none")
    for cut in (equal, alone):
        assert sorted(i for batch in cut for i in batch) == list(range(len(rows)))
    assert all(len(batch) == 1 for batch in alone)


def test_equal_lengths_are_not_cut_without_need() -> None:
    texts = [(1, 2), (1, 2, 4), (3, 4), (1, 2)]
    rows = [Row("seq2seq", (0,) * n, ((0, 1),), encoder_ids=ids) for n, ids in zip((5, 4, 5, 3), texts, strict=True)]
    assert batches(rows, tokens=99, reads=99, mates="equal") == [(1,), (0, 2), (3,)]


def test_longest_rows_come_first_and_equal_lengths_together() -> None:
    rows = rows_of([(3, 0, 1), (7, 0, 1), (3, 0, 1), (5, 0, 1), (7, 0, 1)])
    assert batches(rows, tokens=14, reads=99) == [(1, 4), (3, 0), (2,)]


def test_rows_with_one_encoder_text_stand_together() -> None:
    texts = [(1, 2, 3), (1, 2, 4), (1, 2, 3), (1, 2, 4)]
    rows = [Row("seq2seq", (0,) * n, ((0, 1),), encoder_ids=ids) for n, ids in zip((5, 4, 3, 6), texts, strict=True)]
    assert batches(rows, tokens=18, reads=99) == [(0, 2), (3, 1)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=30), st.integers(1, 12))
def test_a_narrowed_row_reads_everything_once(lookups: list[tuple[int, int]], reads: int) -> None:
    row = Row("causal", tuple(range(10)), tuple(lookups))
    parts = narrow(row, reads)
    assert sorted(i for _, which in parts for i in which) == list(range(len(lookups)))
    for part, which in parts:
        assert part.ids == row.ids
        assert part.lookups == tuple(row.lookups[i] for i in which)
        assert len(positions(part)) <= reads
