"""Generative models in the onnx engine: every family against float64 transformers, one plain sequence at a time there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from decoders import DECODERS, VOCABULARY, random_decoder
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evaluator_serving.choose import choose_engine, why_slower
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx import runners
from evaluator_serving.onnx.engine import OnnxEngine
from evaluator_serving.onnx.export import export, refusal
from evaluator_serving.onnx.families import alibi_slopes
from evaluator_serving.onnx.feeds import CausalFeeds
from evaluator_serving.onnx.manifest import read_manifest
from evaluator_serving.rows import Row
from tests.float64_loop import row_answers

TOLERANCE = 1e-4


def forked_rows() -> list[Row]:
    """Rows that begin alike and part at several places, longer than every window above; some are beginnings of others."""
    generator = np.random.default_rng(1)
    base = generator.integers(3, VOCABULARY, 20).tolist()
    rows = []
    for kept in (1, 4, 9, 20):
        for more in (0, 1, 7, 16):
            ids = (*base[:kept], *generator.integers(3, VOCABULARY, more).tolist())
            places = sorted({0, len(ids) // 2, len(ids) - 1})
            rows.append(Row("causal", ids, (*((at, int(ids[0])) for at in places), (len(ids) - 1, 5), (len(ids) - 1, 6))))
    return rows


def expected(model: Any, rows: Sequence[Row]) -> NDArray[np.float64]:
    """log P of every lookup, row by row."""
    return np.concatenate(row_answers(model, rows))


def saved(name: str, folder: Path) -> tuple[ModelSource, Any]:
    """A random model on disk, and the same in float64."""
    model = random_decoder(name)
    model.save_pretrained(folder)
    exact = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    return ModelSource(name, folder, f"sha256:{name}", frozenset({"causal"}), model.config, 64), exact.eval()


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALUATOR_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> tuple[OnnxEngine, Any, ModelSource]:
    """An engine with grouped-query attention and a window, the float64 model, and where it came from."""
    source, exact = saved("mistral-window", tmp_path_factory.mktemp("grouped"))
    return OnnxEngine(source, EngineOptions(), forked_rows()), exact, source


@pytest.mark.parametrize("name", DECODERS)
def test_every_family_equals_float64_in_both_graphs(name: str, tmp_path: Path) -> None:
    source, exact = saved(name, tmp_path)
    rows = forked_rows()
    wanted = expected(exact, rows)
    assert wanted.std() > 1  # far from a model whose every token is as probable
    engine = OnnxEngine(source, EngineOptions(), rows)
    np.testing.assert_allclose(np.concatenate(engine.score(rows)), wanted, rtol=0, atol=TOLERANCE)
    assert engine.details()["graph"] == "pruned"
    assert engine.fall_back()
    np.testing.assert_allclose(np.concatenate(engine.score(rows)), wanted, rtol=0, atol=TOLERANCE)


@given(st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=14).map(tuple), min_size=1, max_size=12), st.data())
@settings(max_examples=25, deadline=None)
def test_any_tree_equals_its_rows_alone(
    grouped: tuple[OnnxEngine, Any, ModelSource], sequences: list[tuple[int, ...]], data: st.DataObject
) -> None:
    engine, exact, _ = grouped
    rows = []
    for ids in sequences:
        read = data.draw(st.lists(st.tuples(st.integers(0, len(ids) - 1), st.integers(0, VOCABULARY - 1)), max_size=4))
        rows.append(Row("causal", ids, tuple(read)))
    found = engine.score(rows)
    assert [len(numbers) for numbers in found] == [len(row.lookups) for row in rows]
    np.testing.assert_allclose(np.concatenate(found), expected(exact, rows), rtol=0, atol=TOLERANCE)


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), min_size=1, max_size=25),
    st.integers(1, 60),
    st.integers(200, 5000),
)
def test_batches_hold_every_row_once_and_their_trees_spell_it(
    sequences: list[tuple[int, ...]], tokens: int, score_bytes: int
) -> None:
    class Two:
        heads = 2

    rows = [Row("causal", ids, ((len(ids) - 1, i), (0, 7))) for i, ids in enumerate(sequences)]
    feeds = CausalFeeds(Two(), tokens=tokens, score_bytes=score_bytes)  # type: ignore[arg-type]
    parts = feeds.parts(rows)
    batches = feeds.batches(parts)
    assert sorted(i for batch in batches for i in batch) == list(range(len(rows)))
    answered = set()
    for batch in batches:
        feed = feeds.feed([parts[i] for i in batch])
        ids, nodes, places, reads = (feed.inputs[name] for name in ("input_ids", "row_nodes", "node_places", "reads"))
        assert len(batch) == 1 or (len(ids) <= tokens and nodes.size * nodes.shape[1] * 2 * 4 <= score_bytes)
        assert len(set(reads.tolist())) == len(reads)
        np.testing.assert_array_equal(nodes.reshape(-1)[places], np.arange(len(ids)))
        for i, path in zip(batch, nodes, strict=True):
            assert tuple(ids[path[: len(sequences[i])]]) == sequences[i]
        for node, some, spots in zip(reads, feed.wanted, feed.places, strict=True):
            for token, found in zip(some, spots, strict=True):
                for row, lookup in found:
                    at, wanted = rows[row].lookups[lookup]
                    assert (token, nodes[batch.index(row)][at]) == (wanted, node)
                    answered.add((row, lookup))
    assert len(answered) == 2 * len(rows)


def test_numbers_do_not_depend_on_the_batch_and_long_reads_go_through_the_pool(
    grouped: tuple[OnnxEngine, Any, ModelSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, exact, source = grouped
    rows = [Row("causal", row.ids, tuple((at, 5) for at in range(len(row.ids)))) for row in forked_rows()]
    together = engine.score(rows)
    np.testing.assert_allclose(np.concatenate(together), expected(exact, rows), rtol=0, atol=TOLERANCE)
    monkeypatch.setitem(runners.POOL, "cpu", 3)  # the head runs several times a batch
    small = OnnxEngine(source, EngineOptions(batch_tokens=1), rows)
    for numbers, few in zip(together, small.score(rows), strict=True):
        np.testing.assert_allclose(numbers, few, rtol=0, atol=2e-5)


def test_int8_drifts_a_little_and_depends_on_no_other_row(grouped: tuple[OnnxEngine, Any, ModelSource]) -> None:
    _, exact, source = grouped
    rows = forked_rows()
    engine = OnnxEngine(source, EngineOptions(dtype="int8"), rows)
    found = engine.score(rows)
    assert 1e-4 < np.abs(np.concatenate(found) - expected(exact, rows)).max() < 1.0
    for row, numbers in zip(rows, found, strict=True):  # scales are each token's own
        np.testing.assert_allclose(engine.score([row])[0], numbers, rtol=0, atol=1e-4)


def test_logits_that_are_no_numbers_name_their_row(tmp_path: Path) -> None:
    model = random_decoder("llama")
    model.model.embed_tokens.weight.data[50] = float("nan")
    model.save_pretrained(tmp_path)
    source = ModelSource("m", tmp_path, "sha256:nan", frozenset({"causal"}), model.config, 64)
    good, bad = Row("causal", (4, 5, 6), ((2, 5),)), Row("causal", (4, 5, 50), ((2, 5),))
    engine = OnnxEngine(source, EngineOptions(), [good])
    assert np.isfinite(engine.score([good])[0]).all()
    with pytest.raises(EngineError, match="NaN") as raised:
        engine.score([good, bad])
    assert raised.value.row == 1


def test_an_export_says_what_it_is_and_is_used_for_no_other_head(tmp_path: Path) -> None:
    source, _ = saved("gpt2", tmp_path / "model")
    export(source, tmp_path / "out", "float32")
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.head, manifest.family, manifest.dtype, manifest.heads) == ("causal", "gpt2", "float32", 4)
    with pytest.raises(InputError, match="float32 or int8"):
        export(source, tmp_path / "half", "float16")
    options = EngineOptions(extra={"folder": str(tmp_path / "out")})
    both = ModelSource("m", source.path, source.revision, frozenset({"masked", "causal"}), transformers.BertConfig(), 64)
    with pytest.raises(InputError, match="contains another model, head or dtype"):
        OnnxEngine(both, options, [Row("masked", (3, 4), ((0, 5),))])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.FalconConfig(), "no ONNX graph for generative falcon models"),
        (transformers.LlamaConfig(hidden_act="laplace"), "activation laplace"),
        (transformers.GPT2Config(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx = True"),
        (transformers.OPTConfig(do_layer_norm_before=False), "do_layer_norm_before = False"),
        (transformers.OPTConfig(word_embed_proj_dim=512), "projected embeddings"),
        (transformers.OPTConfig(layer_norm_elementwise_affine=False), "layer_norm_elementwise_affine = False"),
        (transformers.Gemma3TextConfig(attn_logit_softcapping=50.0), "attn_logit_softcapping = 50.0"),
        (
            transformers.Phi3Config(
                original_max_position_embeddings=4096,
                rope_parameters={
                    **{"rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * 48, "long_factor": [1.0] * 48},
                    "original_max_position_embeddings": 4096,
                },
            ),
            "longrope",
        ),
    ],
)
def test_what_has_no_graph_is_refused_before_anything_is_loaded(config: Any, reason: str) -> None:
    source = ModelSource("some/model", Path("nowhere"), "r", frozenset({"causal"}), config, 64)
    assert reason in str(refusal(source, "causal"))
    with pytest.raises(InputError, match=r"some/model: no ONNX graph .*; use --engine transformers"):
        OnnxEngine.check(source, EngineOptions(), frozenset({"causal"}))
    cpu = EngineOptions(device="cpu")
    assert choose_engine(source, ["causal"], cpu) == "transformers"
    assert reason in str(why_slower(source, ["causal"], cpu))


def test_auto_takes_it_on_cpus_in_its_dtypes() -> None:
    source = ModelSource("some/model", Path("nowhere"), "r", frozenset({"causal"}), transformers.LlamaConfig(), 64)
    chosen = {
        dtype: choose_engine(source, ["causal"], EngineOptions(dtype, "cpu")) for dtype in ("float32", "int8", "bfloat16")
    }
    assert chosen == {"float32": "onnx", "int8": "onnx", "bfloat16": "transformers"}
    assert why_slower(source, ["causal"], EngineOptions("bfloat16", "cpu")) is None


def test_slopes_are_those_of_the_paper() -> None:
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-i for i in range(1, 9)])
    # Sixteen heads' slopes are 2^(-1/2), 2^(-1), …; twelve heads take every second of them behind those of eight.
    np.testing.assert_allclose(alibi_slopes(12), [*(2.0**-i for i in range(1, 9)), *(2.0 ** -(i + 0.5) for i in range(4))])
