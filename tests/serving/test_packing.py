"""Trees of sequences: every token's path leads back to its own sequence, and shared beginnings stand once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import tiny_model

from evaluator_serving.batching import positions, prefix_batches
from evaluator_serving.packing import pack, shared
from evaluator_serving.rows import Encoded, Row
from evaluator_serving.table import EncodedTable
from evaluator_serving.transformers_engine.forward import Forward

sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), max_size=30)


@given(sequences, st.integers(1, 40))
def test_paths_spell_the_sequences(given_: list[tuple[int, ...]], width: int) -> None:
    packed = pack(given_, width)
    for sequence, (number, path) in zip(given_, packed.paths, strict=True):
        tree = packed.packs[number]
        assert tuple(tree.ids[node] for node in path) == sequence
        assert tuple(tree.places[node] for node in path) == tuple(range(len(sequence)))
        assert [tree.parents[node] for node in path] == [-1, *path[:-1]]
        # A node sees exactly its path: its ancestors and itself.
        mask = tree.mask(len(tree.ids) + 2)
        assert tuple(np.flatnonzero(mask[path[-1]])) == path


@given(sequences)
def test_one_wide_pack_has_a_node_for_each_distinct_beginning(given_: list[tuple[int, ...]]) -> None:
    packed = pack(given_, 10_000)
    assert len(packed.packs) == bool(given_)
    beginnings = {sequence[:n] for sequence in given_ for n in range(1, len(sequence) + 1)}
    assert sum(len(tree.ids) for tree in packed.packs) == len(beginnings)


@given(sequences)
def test_a_beginning_that_a_requests_rows_share_is_computed_once(given_: list[tuple[int, ...]]) -> None:
    beginnings = {sequence[:n] for sequence in given_ for n in range(1, len(sequence) + 1)}
    request = Encoded("r", tuple(Row("causal", sequence, ()) for sequence in given_), ())
    again = Encoded("s", request.rows, ())
    assert EncodedTable.of([request, again]).forwards.computed == len(beginnings)


@given(sequences, st.integers(1, 40))
def test_packs_keep_their_width_unless_a_sequence_is_long(given_: list[tuple[int, ...]], width: int) -> None:
    for tree in pack(given_, width).packs:
        assert len(tree.ids) <= max(width, 24)


def test_shared_beginnings() -> None:
    assert [shared((1, 2, 3), other) for other in ((1, 2, 3), (1, 2), (1, 3), (2,), ())] == [3, 2, 1, 0, 0]


@given(sequences, st.integers(1, 60), st.integers(1, 20))
def test_batches_by_beginning_hold_every_row_once(given_: list[tuple[int, ...]], tokens: int, reads: int) -> None:
    rows = [Row("causal", ids, tuple((at, 0) for at in range(len(ids)))) for ids in given_]
    cut = prefix_batches(rows, tokens=tokens, reads=reads)
    assert sorted(i for batch in cut for i in batch) == list(range(len(rows)))
    for batch in cut:
        assert len(batch) == 1 or sum(len(positions(rows[i])) for i in batch) <= reads
        assert len(batch) == 1 or sum(len(t.ids) for t in pack([rows[i].ids for i in batch], 10_000).packs) <= tokens
    longest = [max(len(rows[i].ids) for i in batch) for batch in cut]
    assert longest == sorted(longest, reverse=True)


def forward_of(family: str, folder: Path, **config: Any) -> Forward:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model(family, folder, **config), dtype=torch.float64)
    return Forward(model.eval(), "causal")


def row(*ids: int) -> Row:
    return Row("causal", ids, tuple((at, 3) for at in range(len(ids))))


FORKED = [row(5, 6, 7, 8), row(5, 6, 9), row(5, 6), row(4), row(5, 9, 9, 9, 9)]


ROUNDING = {"gpt2": 1e-9, "llama": 1e-9, "gemma2": 1e-5}
"""Newer transformers compute parts of Gemma in float32 whatever the dtype; a wrong mask shows in the first digit."""


def plain(model: Any, rows: list[Row]) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([model(torch.tensor([row.ids])).logits[0] for row in rows])


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2"])
def test_a_tree_gives_what_the_sequences_give(family: str, tmp_path: Path) -> None:
    forward = forward_of(family, tmp_path)
    forward.check(FORKED[:2])
    assert forward.packs
    seen = []
    forward.model.get_input_embeddings().register_forward_hook(lambda m, inputs, output: seen.append(inputs[0].shape))
    got = forward._read(FORKED)
    assert seen == [(1, 10)]
    assert torch.allclose(got, plain(forward.model, FORKED), atol=ROUNDING[family])


def test_sequences_longer_than_an_attention_window_are_not_packed(tmp_path: Path) -> None:
    forward = forward_of("gemma2", tmp_path, sliding_window=4, layer_types=["sliding_attention", "full_attention"])
    assert torch.allclose(forward._read(FORKED), plain(forward.model, FORKED), atol=ROUNDING["gemma2"])
    assert torch.allclose(forward._read(FORKED[:4]), plain(forward.model, FORKED[:4]), atol=ROUNDING["gemma2"])


def test_a_model_that_ignores_positions_is_not_packed(tmp_path: Path) -> None:
    forward = forward_of("gpt2", tmp_path)
    own = forward.model.transformer.forward
    forward.model.transformer.forward = lambda *args, position_ids=None, **kw: own(*args, **kw)
    forward.check(FORKED[:2])
    assert forward.gathers
    assert not forward.packs
    assert torch.allclose(forward._read(FORKED), plain(forward.model, FORKED), atol=1e-9)
