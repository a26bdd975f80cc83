"""Merging and chunking: every lookup keeps its meaning, nothing is computed twice."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evaluator_serving.answers import assemble
from evaluator_serving.checks.verify import sample_passes, sample_rows
from evaluator_serving.chunks import chunks, merge
from evaluator_serving.rows import Encoded, EncodedCandidate, Read, Row
from evaluator_serving.table import EncodedTable


def value_of(row: Row, position: int, target: int) -> float:
    """A made-up causal 'model': depends on the prefix up to the position only, and on the target."""
    return float(hash((row.head, row.ids[: position + 1], row.type_ids, target)) % 100_003)


def plain(encoded: Encoded) -> list[list[float]]:
    """What the request asks, read from its own rows."""
    return [
        [value_of(encoded.rows[r.row], *encoded.rows[r.row].lookups[r.lookup]) for r in candidate.reads]
        for candidate in encoded.candidates
    ]


@st.composite
def requests(draw: st.DrawFn) -> list[Encoded]:
    count = draw(st.integers(0, 12))
    out = []
    for i in range(count):
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            ids = tuple(draw(st.lists(st.integers(0, 2), min_size=1, max_size=6)))
            lookups = draw(st.lists(st.tuples(st.integers(0, len(ids) - 1), st.integers(0, 3)), min_size=1, max_size=4))
            head = draw(st.sampled_from(["causal", "masked"]))
            rows.append(Row(head, ids, tuple(lookups)))
        reads = tuple(Read(r, k) for r, row in enumerate(rows) for k in range(len(row.lookups)))
        candidate = EncodedCandidate(tuple(rows[r.row].lookups[r.lookup][1] for r in reads), reads)
        out.append(Encoded(f"{i}", tuple(rows), (candidate,)))
    return out


@given(requests(), st.integers(1, 40))
def test_chunks_answer_what_was_asked(encoded: list[Encoded], tokens: int) -> None:
    cut = chunks(encoded, tokens=tokens)
    assert sorted(item.request for chunk in cut for item in chunk.encoded) == sorted(item.request for item in encoded)
    # Masked rows depend on the whole input; value_of only sees the prefix, so compare them by their whole input instead.
    for chunk in cut:
        values = [np.array([value_of(row, *pair) for pair in row.lookups]) for row in chunk.merged.rows]
        for item, answer in zip(chunk.encoded, assemble(chunk, values), strict=True):
            assert [list(numbers) for numbers in answer.logprobs] == plain(item)
        lengths = [row.length for row in chunk.merged.rows]
        assert lengths == sorted(lengths, reverse=True)


def tokens_of(encoded: list[Encoded]) -> int:
    """Tokens of the distinct forward passes behind requests."""
    return sum(row.length for row in merge(encoded).rows)


def cost(item: Encoded) -> int:
    """Tokens of a request's distinct inputs, each by itself."""
    return sum(row.length for row in {replace(row, lookups=()) for row in item.rows})


def hanging_together(encoded: list[Encoded]) -> list[list[Encoded]]:
    """The plain way: requests that share a merged row, or share one with a request that does, and so on."""
    places = merge(encoded).places
    left = {i: {row for row, _ in spots} for i, spots in enumerate(places)}
    found = []
    while left:
        first = min(left)
        members, rows = [first], left.pop(first)
        while more := [i for i, others in left.items() if others & rows]:
            members += more
            rows = rows.union(*(left.pop(i) for i in more))
        found.append([encoded[i] for i in sorted(members)])
    return found


@given(requests(), st.integers(1, 40))
def test_chunks_are_bounded_and_compute_no_input_twice_where_it_can_be_helped(encoded: list[Encoded], tokens: int) -> None:
    cut = chunks(encoded, tokens=tokens)
    again = chunks(encoded, tokens=tokens)
    assert [chunk.requests for chunk in cut] == [chunk.requests for chunk in again], "a resumed run must cut the same chunks"
    largest = max((cost(item) for item in encoded), default=0)
    assert all(chunk.tokens < tokens + largest for chunk in cut)
    for group in hanging_together(encoded):
        if tokens_of(group) <= tokens:  # kept whole
            names = {item.request for item in group}
            assert sum(bool(names & {item.request for item in chunk.encoded}) for chunk in cut) == 1
    assert sum(chunk.tokens for chunk in cut) <= sum(tokens_of([item]) for item in encoded)


@given(requests())
def test_rows_of_a_chunk_are_distinct(encoded: list[Encoded]) -> None:
    (chunk,) = chunks(encoded, tokens=10**6) or [None]
    keys = [(row.head, row.ids) for row in chunk.merged.rows] if chunk else []
    assert len(keys) == len(set(keys))
    causal = [ids for head, ids in keys if head == "causal"]
    assert not [a for a in causal for b in causal if a != b and b[: len(a)] == a], "a prefix was not read from its extension"
    masked = {ids for head, ids in keys if head == "masked"}
    assert masked == {row.ids for item in encoded for row in item.rows if row.head == "masked"}


@given(st.integers(1, 120), st.integers(1, 6), st.integers(20, 300))
def test_a_row_that_all_share_does_not_make_one_chunk(count: int, family: int, tokens: int) -> None:
    """As in a whole-sentence protocol: every text reads the first token's row; `family` texts share a longer one too."""
    encoded = []
    for i in range(count):
        text = (0, 7 + i % 9, *[1] * (i % 5), 1000 + i)
        rows = [Row("causal", (0,), ((0, 5),)), Row("causal", text, ((1, 2),))]
        rows.append(Row("masked", (2, i // family, 3, 4, 5, 6), ((2, 2),)))
        encoded.append(Encoded(str(i), tuple(rows), ()))
    cut = chunks(encoded, tokens=tokens)
    assert sorted(item.request for chunk in cut for item in chunk.encoded) == sorted(item.request for item in encoded)
    largest = max(cost(item) for item in encoded)
    assert all(chunk.tokens < tokens + largest for chunk in cut)
    whole, apart = tokens_of(encoded), sum(chunk.tokens for chunk in cut)
    # Families are small enough to be kept whole, so that the first token is all that is computed once a chunk.
    if family * 9 + 7 <= tokens:
        assert apart <= whole + len(cut)
    assert len(cut) <= 1 + 2 * whole // tokens


def test_generative_templates_share_one_pass() -> None:
    """`"s",` and `"s", the`: two requests, one forward, lookups at the last two positions."""
    short = Encoded("a", (Row("causal", (5, 6), ((1, 10), (1, 11))),), ())
    long = Encoded("b", (Row("causal", (5, 6, 7), ((2, 12), (2, 13))),), ())
    merged = merge([short, long])
    assert merged.rows == (Row("causal", (5, 6, 7), ((1, 10), (1, 11), (2, 12), (2, 13))),)
    assert merged.places == (((0, (0, 1)),), ((0, (2, 3)),))


def test_masked_rows_never_share_prefixes() -> None:
    rows = [Encoded(str(i), (Row("masked", ids, ((0, 1),)),), ()) for i, ids in enumerate([(1, 2), (1, 2, 3)])]
    assert len(merge(rows).rows) == 2


@given(requests())
def test_a_tables_sample_is_that_of_its_merged_rows(encoded: list[Encoded]) -> None:
    table = EncodedTable.of(encoded)
    assert sample_passes(table.forwards) == sample_rows(merge(encoded).rows)
