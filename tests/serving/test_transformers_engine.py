"""The transformers engine's own duties: memory, refusals, precision, and a head that is computed where it is read."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import drawn_wide, tiny_longrope, tiny_model, tiny_tokenizer

from evaluator_serving.answers import assemble
from evaluator_serving.chunks import chunks
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models import config
from evaluator_serving.models.config import load_config
from evaluator_serving.models.config import padding as padding_of
from evaluator_serving.models.resolving import resolve
from evaluator_serving.opening import open_engine
from evaluator_serving.requests import Continuation
from evaluator_serving.rows import Head, Row
from evaluator_serving.transformers_engine import engine as transformers_engine
from evaluator_serving.transformers_engine import forward as forward_pass
from evaluator_serving.transformers_engine import products
from evaluator_serving.transformers_engine.engine import TransformersEngine
from evaluator_serving.transformers_engine.forward import Forward, log_probs
from evaluator_serving.transformers_engine.products import PackedLinear
from tests.float64_loop import row_answers, saved_answers
from tests.json_files import edit

ROWS = [Row("causal", tuple((7 * i + j) % 50 + 5 for j in range(i + 2)), ((i, 9), (i + 1, 11), (i + 1, 12))) for i in range(12)]
TWO = [Row("causal", (5, 6, 7), ((2, 9),)), Row("causal", (5, 6), ((1, 9), (0, 6)))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2."""
    return tiny_model("gpt2", tmp_path_factory.mktemp("gpt2"))


def engine_of(folder: Path, rows: Sequence[Row] = ROWS, **options: Any) -> TransformersEngine:
    return TransformersEngine(resolve(str(folder)), EngineOptions(device="cpu", **options), rows)


def largest(got: Sequence[np.ndarray], expected: Sequence[Sequence[float]]) -> float:
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(got, expected, strict=True))


# --- numbers ---


@pytest.mark.parametrize(
    ("dtype", "tolerance", "kind"),
    [
        ("float64", 1e-9, np.float64),
        ("float32", 1e-4, np.float32),
        ("bf16x2", 1e-3, np.float32),
        ("bfloat16", 0.6, np.float32),
        ("float16", 0.1, np.float32),
    ],
)
def test_every_dtype_is_as_exact_as_it_can_be(folder: Path, dtype: str, tolerance: float, kind: type) -> None:
    engine = engine_of(folder, dtype=dtype)
    got = engine.score(ROWS)
    assert {array.dtype for array in got} == {np.dtype(kind)}
    assert largest(got, saved_answers(folder, ROWS)) < tolerance
    assert engine.details()["device"] == "cpu"
    assert ("linear_layers" in engine.details()) == (dtype in ("bf16x2", "bfloat16"))


@pytest.mark.parametrize("trees", [True, False])
def test_rows_on_either_side_of_longropes_limit_share_no_batch(
    trees: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers rotates a whole batch by its longest row's frequencies: a row's numbers would hang on its neighbours."""
    tiny_longrope(tmp_path, 100)
    lengths = (9, 120, 100, 40, 101, 12)
    rows = [
        Row("causal", tuple((7 * i + j) % 90 + 5 for j in range(n)), ((n - 1, 9), (n // 2, 11))) for i, n in enumerate(lengths)
    ]
    if not trees:
        monkeypatch.setattr(Forward, "check", lambda forward, _, split: setattr(forward, "packs", False))
    engine = engine_of(tmp_path, rows, dtype="float64", batch_tokens=4096)
    assert engine._forwards["causal"].packs is trees
    assert engine._mates["causal"].mates == "any"
    got = engine.score(rows)
    assert largest(got, saved_answers(tmp_path, rows)) < 1e-6
    together = engine._forwards["causal"].numbers(rows)
    assert largest(together, saved_answers(tmp_path, rows)) > 0.1, "in one batch"


@pytest.mark.parametrize("padding", [-1, 10**6])
@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_a_padding_id_without_an_embedding_is_no_padding_id(family: str, padding: int, tmp_path: Path) -> None:
    """As in old Llamas' configurations; some libraries keep them so."""
    source = resolve(str(tiny_model(family, tmp_path)))
    ids = [(5, *range(9, 9 + n), 6) for n in (3, 9)]
    lookups = ((1, 12), (2, 13))
    rows = {
        "gpt2": [Row("causal", one, lookups) for one in ids],
        "bert": [Row("masked", one, lookups) for one in ids],
        "t5": [Row("seq2seq", (7, *one[:3]), lookups, encoder_ids=one) for one in ids],
    }[family]
    expected = TransformersEngine(source, EngineOptions(device="cpu"), rows).score(rows)
    edit(tmp_path / "config.json", pad_token_id=padding)
    made = load_config(tmp_path, "model")
    assert padding_of(made) is None
    source = replace(source, config=made)
    if padding < 0:  # transformers itself doesn't load the other
        got = TransformersEngine(source, EngineOptions(device="cpu"), rows).score(rows)
        assert largest(got, [one.tolist() for one in expected]) < 1e-4


@pytest.mark.parametrize("tokens", [1, 7, 30, 10_000])
def test_the_batch_makes_no_difference(folder: Path, tokens: int) -> None:
    assert largest(engine_of(folder, batch_tokens=tokens).score(ROWS), saved_answers(folder, ROWS)) < 1e-4


def test_no_rows_and_rows_that_read_nothing(folder: Path) -> None:
    engine = engine_of(folder, [])
    assert engine.score([]) == []
    assert [len(a) for a in engine.score([Row("causal", (5, 6), ())])] == [0]
    got = engine.score([Row("causal", (5, 6), ()), *TWO])
    assert [len(a) for a in got] == [0, 1, 2]
    assert largest(got[1:], saved_answers(folder, TWO)) < 1e-4


def test_log_probs_of_huge_logits_are_exact() -> None:
    logits = torch.tensor([[1e4, 1e4 - 1.0, -1e4, -torch.inf]])
    got = log_probs(logits, torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]))
    total = np.log(1 + np.exp(-1.0))
    assert got.tolist() == pytest.approx([-total, -1 - total, -2e4 - total], rel=1e-6)


def test_half_precision_logits_are_summed_in_float32() -> None:
    logits = torch.randn(3, 50_000, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    got = log_probs(logits, torch.arange(3), torch.tensor([1, 2, 3]))
    assert got.dtype == torch.float32
    expected = torch.log_softmax(logits.double(), -1)[torch.arange(3), torch.tensor([1, 2, 3])]
    assert float((got.double() - expected).abs().max()) < 1e-5


def test_masked_and_pair_heads_of_one_checkpoint(tmp_path: Path) -> None:
    folder = tiny_model("bert-pretraining", tmp_path)
    rows = [
        Row("pair", (2, 8, 9, 3, 10, 3), ((0, 0), (0, 1)), type_ids=(0, 0, 0, 0, 1, 1)),
        Row("masked", (2, 8, 4, 3), ((2, 9),)),
    ]
    pair, masked = open_engine("transformers", resolve(str(folder)), EngineOptions(), rows).score(rows)
    assert float(np.exp(pair.astype(float)).sum()) == pytest.approx(1.0, abs=1e-6)
    model = transformers.BertForPreTraining.from_pretrained(folder, dtype=torch.float64).eval()
    with torch.no_grad():
        both = model(torch.tensor([rows[0].ids]), token_type_ids=torch.tensor([rows[0].type_ids]))
        one = model(torch.tensor([rows[1].ids]))
    assert pair.tolist() == pytest.approx(torch.log_softmax(both.seq_relationship_logits[0], -1).tolist(), abs=1e-4)
    assert float(masked[0]) == pytest.approx(float(torch.log_softmax(one.prediction_logits[0, 2], -1)[9]), abs=1e-4)


# --- the head where it is read ---


@pytest.mark.parametrize(("family", "head"), [("gpt2", "lm_head"), ("bert", "cls"), ("electra", "generator_lm_head")])
def test_the_head_sees_only_the_positions_that_are_read(family: str, head: str, tmp_path: Path) -> None:
    kind: Any = "causal" if family == "gpt2" else "masked"
    rows = [Row(kind, (5,) * n, ((0, 1), (1, 1), (1, 2))) for n in (4, 6, 6)]
    engine = engine_of(tiny_model(family, tmp_path), rows)
    shapes = []
    model = engine._forwards[kind].model
    getattr(model, head).register_forward_hook(lambda module, inputs, output: shapes.append(inputs[0].shape[:2]))
    engine.score(rows)
    # The causal rows are each other's beginnings: they share their two positions, and the head computes them once.
    assert shapes == [(1, 2 if family == "gpt2" else 6)]


def test_a_head_that_looks_at_neighbours_gets_all_positions(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    head = model.lm_head.forward
    model.lm_head.forward = lambda states: head(states) + head(states).cumsum(dim=1)
    expected = torch.cat([model(torch.tensor([row.ids])).logits[0][sorted({at for at, _ in row.lookups})] for row in TWO])
    forward = Forward(model, "causal")
    assert forward.gathers
    forward.packs = False  # a tree's nodes have other neighbours
    assert not torch.allclose(forward._read(TWO), expected, atol=1e-3)
    forward.check(TWO)
    assert not forward.gathers
    assert torch.allclose(forward._read(TWO), expected, atol=1e-4)


# --- products and attention ---


def linears(forward: Forward) -> set[type]:
    return {type(module) for module in forward.model.modules() if isinstance(module, torch.nn.Linear)}


@pytest.mark.parametrize(("dtype", "kind"), [("float32", PackedLinear), ("float64", torch.nn.Linear)])
def test_weights_are_laid_out_for_products_in_float32_only(tmp_path: Path, dtype: str, kind: type) -> None:
    folder = tiny_model("llama", tmp_path)
    engine = engine_of(folder, dtype=dtype)
    assert linears(engine._forwards["causal"]) == {kind}
    assert largest(engine.score(ROWS), saved_answers(folder, ROWS)) < 1e-4


@pytest.mark.parametrize("copied", [True, False])
def test_a_head_tied_to_the_embeddings_is_copied_if_it_is_small(
    tmp_path: Path, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("gpt2", tmp_path)
    if not copied:
        monkeypatch.setattr(products, "_COPY", 0)
    engine = engine_of(folder)
    model = engine._forwards["causal"].model
    assert (type(model.lm_head) is PackedLinear) == copied
    assert model.transformer.wte.weight.is_mkldnn is False
    assert largest(engine.score(ROWS), saved_answers(folder, ROWS)) < 1e-4


@pytest.mark.parametrize(
    ("family", "head", "fuses"),
    [("gpt2", "causal", True), ("llama", "causal", True), ("bert", "masked", True), ("gemma2", "causal", False)],
)
@pytest.mark.parametrize("gathers", [True, False])
def test_the_fused_vocabulary_head_gives_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, head: Head, fuses: bool, gathers: bool
) -> None:
    """Gemma 2 caps its logits behind the head: it is left alone. Positions are read several times, and by several rows."""
    monkeypatch.setattr(forward_pass, "_FUSED", ("cpu",))
    monkeypatch.setattr(forward_pass, "possible", lambda model: False)  # no weights are laid out, as on CUDA
    model = transformers.AutoModelForMaskedLM if head == "masked" else transformers.AutoModelForCausalLM
    plain = model.from_pretrained(tiny_model(family, tmp_path), dtype=torch.float64).eval()
    forward = Forward(model.from_pretrained(tmp_path, dtype=torch.float32).eval(), head)
    forward.gathers &= gathers
    first = Row(head, (5, 8, 11, 14, 9), ((3, 7), (3, 9), (1, 4), (3, 7)))
    rows = [first, Row(head, (5, 8, 11, 20), ((3, 2), (2, 40))), replace(first, lookups=((0, 1),))]
    forward.check(rows)
    assert forward.fuses == fuses
    expected = row_answers(plain, rows)
    for batch in ([0, 1, 2], [0], [1]):
        got = forward.numbers([rows[i] for i in batch])
        assert largest(got, [expected[i] for i in batch]) < 1e-4


def test_a_model_that_looks_into_its_weights_keeps_them(tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model("llama", tmp_path)).eval()
    weight = model.lm_head.weight.detach().clone()
    model.lm_head.forward = lambda states: (states[..., None, :] * model.lm_head.weight).sum(-1)
    forward = Forward(model, "causal")
    forward.check(TWO)
    assert linears(forward) == {torch.nn.Linear}
    assert torch.equal(model.lm_head.weight, weight)


def test_weights_without_a_layout_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A MobileBERT whose embeddings are as wide as its layers has a head of width 0, for which oneDNN has no layout."""
    tokens = tiny_tokenizer("wordpiece")
    size = {"hidden_size": 32, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32}
    depth = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "num_feedforward_networks": 1}
    config = transformers.MobileBertConfig(vocab_size=len(tokens), pad_token_id=0, **size, **depth)
    drawn_wide(transformers.MobileBertForMaskedLM(config)).save_pretrained(tmp_path)
    tokens.save_pretrained(tmp_path)
    rows = [Row("masked", (2, *range(7, 7 + n), 4, 3), ((n + 1, 20), (n + 1, 21))) for n in (3, 5, 9)]
    engine = engine_of(tmp_path, rows)
    assert linears(engine._forwards["masked"]) == {torch.nn.Linear}
    expected = saved_answers(tmp_path, rows, "AutoModelForMaskedLM", attn_implementation="eager")
    assert largest(engine.score(rows), expected) < 1e-4


def test_attention_goes_row_by_row_over_what_rows_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows with a common beginning: the layers see 9 + 4 tokens, attention four rows of 10, without a mask."""
    folder = tiny_model("llama", tmp_path)
    rows = [Row("causal", (*range(5, 14), last), ((8, last), (9, 7))) for last in (20, 21, 22, 23)]
    engine = engine_of(folder, rows)
    attend = torch.nn.functional.scaled_dot_product_attention
    seen = set()

    def watched(query: Any, *arguments: Any, **options: Any) -> Any:
        seen.add((query.shape[0], query.shape[2], options["attn_mask"] is None and options["is_causal"]))
        return attend(query, *arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    scores = engine.score(rows)
    assert seen == {(4, 10, True)}
    assert largest(scores, saved_answers(folder, rows)) < 1e-4


def test_rows_that_share_nearly_all_are_a_tree_with_a_mask(tmp_path: Path) -> None:
    """Thirty rows of 21 tokens are 50 nodes: attention row by row would be more than 8 times as long."""
    folder = tiny_model("llama", tmp_path)
    rows = [Row("causal", (*range(5, 25), last), ((19, last), (20, 7))) for last in range(5, 35)]
    forward = engine_of(folder, rows)._forwards["causal"]
    inputs, _, fold = forward._inputs(rows)
    assert fold is None
    assert inputs["attention_mask"].shape == (1, 1, 50, 50)
    assert largest(engine_of(folder, rows).score(rows), saved_answers(folder, rows)) < 1e-4


def test_attention_that_can_not_be_replaced_keeps_the_mask(tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model("llama", tmp_path), attn_implementation="eager").eval()
    forward = Forward(model, "causal")
    forward.check(TWO)
    assert (forward.packs, forward.folds, model.config._attn_implementation) == (True, False, "eager")


# --- trees of models that don't bear them ---


def made(kind: str, folder: Path, **options: Any) -> Path:
    """A small model of a family that tiny_models doesn't have."""
    tokens = tiny_tokenizer("llama-bytes")
    ids = {"vocab_size": len(tokens), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "head_dim": 8}
    config = getattr(transformers, f"{kind}TextConfig", None) or getattr(transformers, f"{kind}Config")
    model = getattr(transformers, f"{kind}ForCausalLM")
    drawn_wide(model(config(**ids, **{**size, "max_position_embeddings": 512, **options}))).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


SPARSE: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 2,
    "index_head_dim": 16,
    "index_n_heads": 4,
    "index_topk": 40,
}
TEMPERED: dict[str, Any] = {
    "num_key_value_heads": 2,
    "intermediate_size_mlp": 48,
    "no_rope_layers": [1, 0],
    "attn_temperature_tuning": True,
    "attn_scale": 0.1,
    "attention_chunk_size": 8192,
    "num_local_experts": 1,
}


PLAINLY = {"attn_implementation": "eager", "experts_implementation": "eager", "use_cache": False}


def spread_rows(*lengths: int) -> list[Row]:
    return [
        Row("causal", tuple((7 * i + 3 * j) % 90 + 5 for j in range(n)), ((n - 1, 9), (n // 2, 11)))
        for i, n in enumerate(lengths)
    ]


@pytest.mark.parametrize("kind", ["DeepseekV32", "GlmMoeDsa"])
def test_attention_that_chooses_among_earlier_tokens(kind: str, tmp_path: Path) -> None:
    """Rows of more tokens than are chosen: without the choice, or with one among a batch's longest, they get other numbers."""
    folder = made(kind, tmp_path, **SPARSE)
    rows = spread_rows(12, 90, 70, 41, 85, 90, 30, 66)
    engine = engine_of(folder, rows)
    assert largest(engine.score(rows), saved_answers(folder, rows, **PLAINLY)) < 1e-4
    assert engine._forwards["causal"].packs is False
    assert engine.details()["padding"]["causal"]["mates"] == "equal"


def test_a_choice_among_equals_depends_on_the_length_so_no_text_is_read_off_a_longer_one(tmp_path: Path) -> None:
    """With one head that scores, half of the scores are zero."""
    folder = made("DeepseekV32", tmp_path, **SPARSE | {"index_topk": 8, "index_n_heads": 1})
    source = resolve(str(folder))
    text = "The doctor said that she is tired, but the man from the village is not my friend and I cook"
    asked = [Continuation(text[:n], (text[n:],)) for n in (20, 50, 70)] + [
        Continuation(text[:n], (text[n : n + 9],)) for n in (30, 60)
    ]
    (chunk,) = chunks([encoder_for(source).encode(request) for request in asked], tokens=10**6)
    plain = [row for item in chunk.encoded for row in item.rows]
    numbers = saved_answers(folder, plain, **PLAINLY)
    shorter = [replace(row, ids=row.ids[:-1], lookups=row.lookups[:1]) for row in plain]
    off = [abs(one[0] - other[0]) for one, other in zip(numbers, saved_answers(folder, shorter, **PLAINLY), strict=True)]
    assert max(off) > 1e-3, "a shorter text has other numbers"
    got = assemble(chunk, TransformersEngine(source, EngineOptions(device="cpu"), chunk.merged.rows).score(chunk.merged.rows))
    assert largest([np.concatenate(answer.logprobs) for answer in got], numbers) < 1e-4


def test_attention_that_has_no_choice_yet_is_folded(tmp_path: Path) -> None:
    folder = made("DeepseekV32", tmp_path, **SPARSE | {"index_topk": 60})
    rows = spread_rows(12, 50, 37, 41, 50)
    engine = engine_of(folder, rows)
    assert engine._forwards["causal"].folds is True
    assert largest(engine.score(rows), saved_answers(folder, rows, **PLAINLY)) < 1e-4
    longer = spread_rows(90, 75)  # than any that it was checked with
    assert largest(engine.score(longer), saved_answers(folder, longer, **PLAINLY)) < 1e-4


def test_a_temperature_taken_from_the_place_in_the_input(tmp_path: Path) -> None:
    """Llama 4's, which counts places: in a tree of more tokens than the rows of the check it may be another one."""
    folder = made("Llama4", tmp_path, **TEMPERED, floor_scale=8192)
    rows = spread_rows(12, 15, 18, 14, 16, 17, 12, 19)
    engine = engine_of(folder, rows)
    assert engine._forwards["causal"].packs is False
    assert largest(engine.score(rows), saved_answers(folder, rows, **PLAINLY)) < 1e-4


@pytest.mark.parametrize("window", [None, 40])
def test_a_window_that_no_config_names(window: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is seen by the masks: with weights this small and in half precision numbers don't show that it was left out."""
    monkeypatch.setattr(config, "_WINDOWS", ())
    folder = made("Mistral", tmp_path, num_key_value_heads=2, sliding_window=window)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 0.1
    model.save_pretrained(folder)
    rows = spread_rows(12, 60, 55, 40, 18)
    assert engine_of(folder, rows, dtype="bfloat16")._forwards["causal"].packs is (window is None)


@pytest.mark.parametrize("kind", ["Emu3", "Mllama"])
def test_text_parts_that_no_auto_class_has(kind: str, tmp_path: Path) -> None:
    folder = made(kind, tmp_path, num_key_value_heads=2, cross_attention_layers=[])
    rows = spread_rows(12, 15, 9)
    expected = saved_answers(folder, rows, f"{kind}ForCausalLM", **PLAINLY)
    assert largest(engine_of(folder, rows).score(rows), expected) < 1e-4


# --- memory ---


def out_of_memory_above(most: int, plain: Callable[..., Any]) -> Callable[..., Any]:
    def logits(self: Forward, rows: Sequence[Row]) -> Any:
        if len(rows) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self, rows)

    return logits


def test_out_of_memory_halves_the_batch_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(folder, batch_tokens=10_000)
    monkeypatch.setattr(Forward, "logits", out_of_memory_above(2, Forward.logits))
    assert largest(engine.score(ROWS), saved_answers(folder, ROWS)) < 1e-4


def test_one_row_that_does_not_fit_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(folder)
    monkeypatch.setattr(Forward, "logits", out_of_memory_above(0, Forward.logits))
    with pytest.raises(EngineError, match="tokens don't fit in memory") as caught:
        engine.score(ROWS)
    assert str(caught.value).startswith(f"row {caught.value.row}: {len(ROWS[caught.value.row or 0].ids)} tokens")


def test_other_errors_are_not_taken_for_want_of_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(folder)

    def fail(self: Forward, rows: Sequence[Row]) -> Any:
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(Forward, "logits", fail)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        engine.score(ROWS)


def test_logits_of_a_row_are_bounded_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Row("causal", tuple(range(5, 45)), tuple((at, 7) for at in range(40)))
    expected = saved_answers(folder, [whole])
    widths = []
    plain = Forward.logits
    monkeypatch.setattr(Forward, "logits", lambda self, rows: widths.append(plain(self, rows)[0]) or plain(self, rows))
    engine = engine_of(folder, TWO)
    monkeypatch.setitem(transformers_engine._LOGIT_BYTES, "cpu", 3 * 4 * engine._forwards["causal"].vocabulary)
    widths.clear()
    assert largest(engine.score([whole]), expected) < 1e-4
    assert [len(w) for w in widths] == [3] * 13 + [1]


# --- refusals ---


def poisoned(folder: Path, path: Path, **entries: tuple[int, float]) -> Path:
    """A copy of a model with entries (row, value) of its weights overwritten."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for name, (row, value) in entries.items():
            dict(model.named_parameters())[name.replace("__", ".")][row] = value
    model.save_pretrained(path)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(path)
    return path


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_with_nan_or_infinite_logits_is_named(folder: Path, tmp_path: Path, value: float) -> None:
    bad = poisoned(folder, tmp_path, transformer__wpe__weight=(9, value))
    good = [row for row in ROWS if len(row.ids) <= 9]
    engine = engine_of(bad, good)
    assert largest(engine.score(good), saved_answers(folder, good)) < 1e-4
    rows = [*good, ROWS[9], *good]
    with pytest.raises(EngineError, match=f"row {len(good)}: the model's logits are NaN or infinite") as caught:
        engine.score(rows)
    assert caught.value.row == len(good)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "int8"}, "no dtype int8"),
        ({"tensor_parallel": 2}, "no option tensor_parallel"),
        ({"pipeline_parallel": 2}, "no option pipeline_parallel"),
        ({"quantization": "awq"}, "no option quantization"),
        ({"extra": {"graph": True}}, "no option graph"),
    ],
)
def test_options_without_a_use_are_refused(folder: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        engine_of(folder, **options)


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda:99"])
def test_devices_that_are_not_there(folder: Path, device: str) -> None:
    with pytest.raises(InputError, match=device):
        TransformersEngine(resolve(str(folder)), EngineOptions(device=device), TWO)
