"""The onnx engine by the way a run takes, against the transformers engine in float64, and its behaviour at the edges."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from tiny_models import tiny_model

from evaluator_serving.checks.verify import verify_engine
from evaluator_serving.choose import choose_engine
from evaluator_serving.chunks import merge
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx import export as export_module
from evaluator_serving.onnx import runners
from evaluator_serving.onnx.engine import OnnxEngine
from evaluator_serving.onnx.export import export
from evaluator_serving.onnx.manifest import read_manifest
from evaluator_serving.requests import Masked, SharedTokens
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.engine import TransformersEngine

FAMILIES = ("bert", "roberta", "albert", "electra", "distilbert", "xlm-roberta", "modernbert", "deberta-v2")

TEXTS = ("I cry when my boss is not happy.", "I work", "I am a (tired) nurse & he was 40, she said.")

REQUESTS = [
    Masked(("", f' said: "{text}"'), (("He",), ("She",), ("woman",)), method)  # type: ignore[arg-type]
    for text in TEXTS
    for method in ("sequential", "joint", "single")
] + [SharedTokens("She is a strong nurse.", "He is a strong nurse."), SharedTokens("the man", "the woman and I")]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def rows_of(source: ModelSource) -> tuple[Row, ...]:
    encoder = encoder_for(source)
    return merge([encoder.encode(request) for request in REQUESTS]).rows


def exact(source: ModelSource, rows: Sequence[Row]) -> np.ndarray:
    return np.concatenate(TransformersEngine(source, EngineOptions(dtype="float64"), rows).score(rows))


def tiny(folder: Path, family: str = "bert", **options: Any) -> ModelSource:
    return resolve(str(tiny_model(family, folder / "model", **options)))


@pytest.mark.parametrize("family", FAMILIES)
def test_equals_the_oracle_with_real_tokenizers(family: str, tmp_path: Path) -> None:
    source = tiny(tmp_path, family)
    rows = rows_of(source)
    engine = OnnxEngine(source, EngineOptions(batch_tokens=64), rows)
    expected = exact(source, rows)
    np.testing.assert_allclose(np.concatenate(engine.score(rows)), expected, rtol=0, atol=2e-4)
    assert engine.fall_back()
    np.testing.assert_allclose(np.concatenate(engine.score(rows)), expected, rtol=0, atol=2e-4)
    assert engine.details()["graph"] == "plain"
    assert not engine.fall_back()


def test_a_rows_numbers_do_not_depend_on_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tiny(tmp_path)
    rows = rows_of(source)
    engine = OnnxEngine(source, EngineOptions(), rows)
    together = engine.score(rows)
    monkeypatch.setitem(runners.POOL, "cpu", 2)  # the pool overflows with every batch
    small = OnnxEngine(source, EngineOptions(batch_tokens=1), rows)
    for row, numbers, few in zip(rows, together, small.score(rows), strict=True):
        alone = engine.score([row])[0]
        assert numbers.shape == (len(row.lookups),)
        np.testing.assert_allclose(alone, numbers, rtol=0, atol=1e-5)
        np.testing.assert_allclose(few, numbers, rtol=0, atol=1e-5)
    reversed_order = engine.score(rows[::-1])[::-1]
    for numbers, again in zip(together, reversed_order, strict=True):
        np.testing.assert_allclose(numbers, again, rtol=0, atol=1e-5)
    assert engine.score([]) == []


def test_a_row_read_everywhere_and_many_times(tmp_path: Path) -> None:
    source = tiny(tmp_path)
    ids = tuple(np.random.default_rng(0).integers(5, 60, 100).tolist())
    wide = Row("masked", ids, tuple((at, token) for at in range(100) for token in (7, 8, 7)), type_ids=(0,) * 50 + (1,) * 50)
    rows = [wide, Row("masked", ids[:1], ((0, 5),)), Row("masked", ids[:5], ())]
    got = OnnxEngine(source, EngineOptions(), rows).score(rows)
    assert [len(numbers) for numbers in got] == [300, 1, 0]
    np.testing.assert_allclose(np.concatenate(got), exact(source, rows), rtol=0, atol=2e-4)


def test_int8_is_an_approximation_that_says_so(tmp_path: Path) -> None:
    source = tiny(tmp_path)
    rows = rows_of(source)
    engine = OnnxEngine(source, EngineOptions(dtype="int8"), rows)
    found = engine.score(rows)
    difference = np.abs(np.concatenate(found) - exact(source, rows)).max()
    assert 1e-4 < difference < 3
    for row, numbers in zip(rows[::5], found[::5], strict=True):  # scales are each token's own
        np.testing.assert_allclose(engine.score([row])[0], numbers, rtol=0, atol=1e-4)
    drift = verify_engine(engine, source, EngineOptions(dtype="int8"), rows).difference
    assert 1e-4 < drift <= difference + 1e-4


def test_the_second_load_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tiny(tmp_path)
    rows = rows_of(source)
    first = OnnxEngine(source, EngineOptions(), rows)
    monkeypatch.setattr(export_module, "_load", lambda *_: pytest.fail("exported again"))
    second = OnnxEngine(source, EngineOptions(), rows)
    assert first.details() == second.details()
    assert second.details()["threads"] == 1


def test_an_export_describes_itself_and_stores_each_tensor_once(tmp_path: Path) -> None:
    source = tiny(tmp_path, hidden_size=256, intermediate_size=512)
    manifest = export(source, tmp_path / "exported", "float32")
    assert read_manifest(tmp_path / "exported") == manifest
    model = transformers.AutoModelForMaskedLM.from_pretrained(source.path)
    size = sum(parameter.numel() * 4 for parameter in model.parameters())  # tied ones count once
    assert size <= (tmp_path / "exported" / "weights.bin").stat().st_size < 1.1 * size + 4096 * 60
    session = onnxruntime.InferenceSession(tmp_path / "exported" / "scores.onnx")
    assert session.get_modelmeta().custom_metadata_map["revision"] == source.revision
    assert [i.name for i in session.get_inputs()] == [
        "input_ids",
        "attention_mask",
        "token_type_ids",
        "mask_positions",
        "candidate_ids",
    ]
    with pytest.raises(InputError, match="already contains an exported model"):
        export(source, tmp_path / "exported", "float32")
    (tmp_path / "exported" / "manifest.json").write_text(json.dumps({"format": 0}))
    with pytest.raises(InputError, match="export it again"):
        read_manifest(tmp_path / "exported")
    with pytest.raises(InputError, match=r"manifest\.json is missing"):
        read_manifest(tmp_path)


def test_an_untied_vocabulary_is_used(tmp_path: Path) -> None:
    source = tiny(tmp_path, tie_word_embeddings=False)
    rows = rows_of(source)
    got = OnnxEngine(source, EngineOptions(), rows).score(rows)
    np.testing.assert_allclose(np.concatenate(got), exact(source, rows), rtol=0, atol=2e-4)


def test_a_batch_that_does_not_fit_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tiny(tmp_path)
    rows = rows_of(source)
    engine = OnnxEngine(source, EngineOptions(), rows)
    expected = engine.score(rows)
    submit = runners.Pooled.submit
    most = 2

    def tight(self: runners.Pooled, inputs: runners.Inputs, wanted: Sequence[tuple[int, ...]]) -> None:
        if len(inputs["input_ids"]) > most:
            raise RuntimeError("Failed to allocate memory for requested buffer of size 123")
        submit(self, inputs, wanted)

    monkeypatch.setattr(runners.Pooled, "submit", tight)
    for numbers, again in zip(expected, engine.score(rows), strict=True):
        np.testing.assert_allclose(numbers, again, rtol=0, atol=1e-5)
    most = 0
    with pytest.raises(EngineError, match="don't fit in memory") as caught:
        engine.score(rows)
    assert caught.value.row is not None


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    folder = tiny_model("bert", tmp_path / "model")
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    with torch.no_grad():
        model.bert.embeddings.token_type_embeddings.weight[1] = float("nan")
    model.save_pretrained(folder)
    rows = [
        Row("masked", (2, 7, 4, 3), ((2, 8),)),
        Row("masked", (2, 7, 4, 3), ((2, 8),), type_ids=(0, 1, 0, 0)),
    ]
    engine = OnnxEngine(resolve(str(folder)), EngineOptions(), rows)
    with pytest.raises(EngineError, match="NaN or infinite") as caught:
        engine.score(rows)
    assert caught.value.row == 1
    assert np.isfinite(engine.score(rows[:1])[0]).all()  # the bad batch left nothing behind


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EngineOptions(tensor_parallel=2), "no option tensor_parallel"),
        (EngineOptions(quantization="awq"), "no option quantization"),
        (EngineOptions(extra={"colour": 1}), "no option colour"),
        (EngineOptions(extra={"graph": "blue"}), "no graph 'blue'"),
        (EngineOptions(extra={"tensorrt": "perhaps"}), "no tensorrt 'perhaps'"),
        (EngineOptions(extra={"intra_op_threads": "many"}), "must be a number: 'many'"),
        (EngineOptions(dtype="bfloat16"), "no dtype bfloat16"),
        (EngineOptions(dtype="float16", device="cpu"), "float16 on CUDA only"),
        (EngineOptions(device="tpu"), "doesn't run on 'tpu'"),
    ],
)
def test_options_it_has_no_use_for_are_refused(options: EngineOptions, message: str, tmp_path: Path) -> None:
    source = tiny(tmp_path)
    with pytest.raises(InputError, match=message):
        OnnxEngine(source, options, rows_of(source))


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="for machines without CUDA")
@pytest.mark.parametrize(
    ("options", "provider"),
    [
        (EngineOptions(device="cuda"), "CUDAExecutionProvider"),
        (EngineOptions(device="cuda:0", extra={"tensorrt": True}), "TensorrtExecutionProvider"),
    ],
)
def test_a_missing_provider_is_named(
    options: EngineOptions, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaluator_serving.engine.check_cuda", lambda name: None)  # a machine on which PyTorch finds the device
    source = tiny(tmp_path)
    with pytest.raises(InputError, match=f"has no {provider}"):
        OnnxEngine(source, options, rows_of(source))


def test_other_heads_and_families_are_refused_by_name(tmp_path: Path) -> None:
    source = tiny(tmp_path)
    with pytest.raises(InputError, match="need a pair head"):
        OnnxEngine(source, EngineOptions(), [Row("pair", (2, 3), ((0, 1),))])
    with pytest.raises(InputError, match="loaded for masked requests, not for causal ones"):
        OnnxEngine(source, EngineOptions(), rows_of(source)).score([Row("causal", (2, 3), ((0, 3),))])
    translator = resolve(str(tiny_model("t5", tmp_path / "t5")))
    with pytest.raises(InputError, match="only masked and generative language models"):
        export(translator, tmp_path / "x", "float32")
    for config, reason in (
        (transformers.MPNetConfig(), "no ONNX graph for mpnet models"),
        (transformers.DebertaConfig(), "no ONNX graph for deberta models"),
        (transformers.BertConfig(hidden_act="gelu_fast"), "bert models with hidden_act = gelu_fast"),
        (transformers.BertConfig(is_decoder=True), "bert models with is_decoder = True"),
    ):
        other = ModelSource("some/model", source.path, "r", frozenset({"masked"}), config, 512)
        with pytest.raises(InputError, match=f"some/model: .*{reason}"):
            export(other, tmp_path / "x", "float32")
        assert choose_engine(other, ["masked"]) == "transformers"
    cpu = EngineOptions(device="cpu")
    assert choose_engine(source, ["masked"], cpu) == "onnx"
    assert choose_engine(source, ["masked"], replace(cpu, dtype="int8")) == "onnx"
    for dtype in ("float64", "bfloat16", "float16"):
        assert choose_engine(source, ["masked"], replace(cpu, dtype=dtype)) == "transformers"


def test_verification_goes_over_to_the_plain_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pruned graph that is wrong here (weights of the last layer's keys and values damaged) is left behind."""
    source = tiny(tmp_path)
    rows = rows_of(source)
    collect = runners.Pooled.collect
    monkeypatch.setattr(runners.Pooled, "collect", lambda self: [numbers + 0.5 for numbers in collect(self)])
    engine = OnnxEngine(source, EngineOptions(), rows)
    verified = verify_engine(engine, source, EngineOptions(), rows)
    assert verified.difference < 1e-3
    assert "fell back" in str(verified)
    assert engine.details()["graph"] == "plain"


def test_verification_gives_up_when_the_plain_graph_is_wrong_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tiny(tmp_path)
    rows = rows_of(source)
    for runner in (runners.Pooled, runners.Plain):
        collect = runner.collect
        monkeypatch.setattr(runner, "collect", lambda self, c=collect: [numbers + 0.5 for numbers in c(self)])
    engine = OnnxEngine(source, EngineOptions(), rows)
    with pytest.raises(InputError, match="this engine is wrong here"):
        verify_engine(engine, source, EngineOptions(), rows)
