"""Merging and chunking: every lookup keeps its meaning, nothing is computed twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evaluator_serving.answers import assemble
from evaluator_serving.rows import Encoded, EncodedCandidate, Read, Row, chunks, merge


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


@given(requests(), st.booleans(), st.integers(1, 40))
def test_chunks_answer_what_was_asked(encoded: list[Encoded], share: bool, tokens: int) -> None:
    cut = chunks(encoded, tokens=tokens, share_prefixes=share)
    assert sorted(item.request for chunk in cut for item in chunk.encoded) == sorted(item.request for item in encoded)
    # Masked rows depend on the whole input; value_of only sees the prefix, so compare them by their whole input instead.
    for chunk in cut:
        values = [np.array([value_of(row, *pair) for pair in row.lookups]) for row in chunk.merged.rows]
        for item, answer in zip(chunk.encoded, assemble(chunk, values), strict=True):
            assert [list(numbers) for numbers in answer.logprobs] == plain(item)
        lengths = [row.length for row in chunk.merged.rows]
        assert lengths == sorted(lengths, reverse=True)


@given(requests())
def test_no_input_is_computed_twice(encoded: list[Encoded]) -> None:
    keys = [(row.head, row.ids) for chunk in chunks(encoded, tokens=5, share_prefixes=True) for row in chunk.merged.rows]
    assert len(keys) == len(set(keys))
    causal = [ids for head, ids in keys if head == "causal"]
    assert not [a for a in causal for b in causal if a != b and b[: len(a)] == a], "a prefix was not read from its extension"
    masked = {ids for head, ids in keys if head == "masked"}
    assert masked == {row.ids for item in encoded for row in item.rows if row.head == "masked"}


def test_generative_templates_share_one_pass() -> None:
    """`"s",` and `"s", the`: two requests, one forward, lookups at the last two positions."""
    short = Encoded("a", (Row("causal", (5, 6), ((1, 10), (1, 11))),), ())
    long = Encoded("b", (Row("causal", (5, 6, 7), ((2, 12), (2, 13))),), ())
    merged = merge([short, long])
    assert merged.rows == (Row("causal", (5, 6, 7), ((1, 10), (1, 11), (2, 12), (2, 13))),)
    assert merged.places == (((0, (0, 1)),), ((0, (2, 3)),))
    assert len(merge([short, long], share_prefixes=False).rows) == 2


def test_masked_rows_never_share_prefixes() -> None:
    rows = [Encoded(str(i), (Row("masked", ids, ((0, 1),)),), ()) for i, ids in enumerate([(1, 2), (1, 2, 3)])]
    assert len(merge(rows).rows) == 2
