"""Models that see ahead are refused in every engine, whatever they are called; causal ones aren't, in any dtype."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from completions_server import CompletionsServer
from tiny_models import drawn_wide, tiny_model, tiny_tokenizer
from transformers.models.t5 import modeling_t5

from evaluator_serving import opening
from evaluator_serving.checks.causality import LENGTH, probes
from evaluator_serving.chunks import merge
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine
from evaluator_serving.requests import Continuation
from evaluator_serving.rows import GREEDY, Row, Workload
from evaluator_serving.vllm_engine.plan import plan
from tests.float64_loop import row_answers, saved_answers

ROWS = [Row("causal", (0, *range(9, 9 + n)), ((n, 40), (n, 41))) for n in (6, 3, 11)]
_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}

AHEAD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "xlnet": ("XLNetConfig", "XLNetLMHeadModel", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
    "bert": ("BertConfig", "BertLMHeadModel", _SMALL),
    "roberta": ("RobertaConfig", "RobertaForCausalLM", _SMALL),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {**_SMALL, "num_key_value_heads": 2, "head_dim": 8, "use_bidirectional_attention": True},
    ),
}
CAUSAL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertLMHeadModel", {**_SMALL, "is_decoder": True}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**_SMALL, "num_key_value_heads": 2, "num_local_experts": 4}),
}


def made(kind: tuple[str, str, dict[str, Any]], folder: Path) -> ModelSource:
    """A model with a tokenizer of GPT-2's kind."""
    config_class, model_class, options = kind
    tokens = tiny_tokenizer("gpt2")
    ids = {"vocab_size": len(tokens), "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    model = drawn_wide(getattr(transformers, model_class)(getattr(transformers, config_class)(**ids, **options)))
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return resolve(str(folder))


@pytest.mark.parametrize("name", AHEAD)
def test_a_model_that_sees_ahead_is_refused(name: str, tmp_path: Path) -> None:
    source = made(AHEAD[name], tmp_path)
    assert source.heads == {"causal"}
    for dtype in ("float32", "bfloat16")[: 2 if name == "bert" else 1]:
        with pytest.raises(InputError, match="its attention is not causal") as caught:
            open_engine("transformers", source, EngineOptions(dtype=dtype, device="cpu"), ROWS)
        assert str(source.spec) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert ('"is_decoder": true' in str(caught.value)) == (name in ("bert", "roberta"))


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_models_are_scored_as_a_float64_loop_scores_them(name: str, tmp_path: Path) -> None:
    source = made(CAUSAL[name], tmp_path)
    eager = {"experts_implementation": "eager"} if name == "mixtral" else {}
    expected = saved_answers(tmp_path, ROWS, **eager)
    for dtype, tolerance in (("float32", 1e-4), ("bfloat16", 0.6)):
        got = open_engine("transformers", source, EngineOptions(dtype=dtype, device="cpu"), ROWS).score(ROWS)
        assert [numbers.tolist() for numbers in got] == [pytest.approx(one, abs=tolerance) for one in expected]


def test_a_decoder_that_hides_what_comes_later_only_beside_the_encoders_text(tmp_path: Path) -> None:
    """FSMT makes its mask where it gets the text: with the encoder's states alone it sees ahead."""
    tokens = tiny_tokenizer("t5")
    size = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = transformers.FSMTConfig(
        langs=["en", "de"],
        src_vocab_size=len(tokens),
        tgt_vocab_size=len(tokens),
        d_model=32,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
        **size,
    )
    model = drawn_wide(transformers.FSMTForConditionalGeneration(config)).eval()
    model.save_pretrained(tmp_path)
    tokens.save_pretrained(tmp_path)
    texts = ((9, 3, 12, 1), (9, 14, 1), (9, 3, 12, 1))
    rows = [Row("seq2seq", (1, 5 + i, 7, 8), ((1, 20), (3, 21)), encoder_ids=text) for i, text in enumerate(texts)]
    got = open_engine("transformers", resolve(str(tmp_path)), EngineOptions(device="cpu"), rows).score(rows)
    expected = row_answers(model, rows, use_cache=False)  # in float32: transformers' own mask can't be made in float64
    assert [numbers.tolist() for numbers in got] == [pytest.approx(one, abs=1e-4) for one in expected]


def test_the_decoder_of_an_encoder_decoder_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = resolve(str(tiny_model("t5", tmp_path)))
    rows = [
        Row("seq2seq", (0, 3, GREEDY), ((2, 20),), encoder_ids=(9, 3, 12, 1)),
        Row("seq2seq", (0, 3), ((1, 20),), None, (9, 1)),
    ]
    open_engine("transformers", source, EngineOptions(device="cpu"), rows)
    plain = modeling_t5.T5Stack.forward

    def sees_all(self: Any, *args: Any, **options: Any) -> Any:
        if self.is_decoder:
            length = options["input_ids"].shape[1]
            options["attention_mask"] = torch.zeros(1, 1, length, length)
        return plain(self, *args, **options)

    monkeypatch.setattr(modeling_t5.T5Stack, "forward", sees_all)
    with pytest.raises(InputError, match="its attention is not causal"):
        open_engine("transformers", source, EngineOptions(device="cpu"), rows)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rounding_of_a_real_model_is_no_false_alarm(smollm: ModelSource, dtype: str) -> None:
    """Trained weights round more than random ones: neither is it refused, nor do its rows stop sharing trees and batches."""
    encoder = encoder_for(smollm)
    asked = [Continuation(f'"{said}",', (" he", " she")) for said in ("I cry", "I always cook for my family and my friends")]
    rows = merge([encoder.encode(request) for request in asked]).rows
    engine = open_engine("transformers", smollm, EngineOptions(dtype=dtype, device="cpu"), rows)
    assert "padding" not in engine.details()
    assert engine._forwards["causal"].packs  # type: ignore[attr-defined]
    engine.close()


# --- any engine ---


class Made(Engine):
    """An engine whose log P of a token is given by `says(the row's ids, position, token)`."""

    says: Callable[[Sequence[int], int, int], float]
    device_kind = "cpu"
    closed = False
    calls = 0

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        Made.closed, Made.calls = False, 0

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        Made.calls += 1
        return [np.array([type(self).says(row.ids, at, token) for at, token in row.lookups]) for row in rows]

    def close(self) -> None:
        Made.closed = True


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """A small GPT-2, for its tokenizer and configuration."""
    return resolve(str(tiny_model("gpt2", tmp_path_factory.mktemp("gpt2"))))


def opened(source: ModelSource, monkeypatch: pytest.MonkeyPatch, says: Callable[[Sequence[int], int, int], float]) -> None:
    monkeypatch.setattr(Made, "says", staticmethod(says), raising=False)
    monkeypatch.setattr(opening, "engine_class", lambda name: Made)
    open_engine("own", source, EngineOptions(), ROWS)


def test_an_engine_of_ones_own_is_asked_four_times(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(source, monkeypatch, lambda ids, at, token: -0.1 * sum(ids[: at + 1]) - token)
    assert (Made.calls, Made.closed) == (4, False)
    with pytest.raises(InputError, match="its attention is not causal"):
        opened(source, monkeypatch, lambda ids, at, token: -0.1 * sum(ids) - token)
    assert Made.closed


def test_numbers_that_depend_on_the_length_are_refused(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"depends on the length of the text after it \(log P changes by 0\.12"):
        opened(source, monkeypatch, lambda ids, at, token: -0.01 * len(ids) - token)


def test_prophetnets_decoder_is_refused(tmp_path: Path) -> None:
    """In transformers itself, in float64, a token's probability moves when tokens follow it."""
    options = {
        "hidden_size": 32,
        "num_decoder_layers": 2,
        "num_decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
    }
    source = made(("ProphetNetConfig", "ProphetNetForCausalLM", options), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    with torch.no_grad():
        whole, half = (torch.log_softmax(model(torch.arange(5, n).unsqueeze(0)).logits[0, :7], -1) for n in (29, 17))
    assert float((whole - half).abs().max()) > 0.1
    with pytest.raises(InputError, match="depends on the length of the text after it"):
        open_engine("transformers", source, EngineOptions(device="cpu"), ROWS)


def test_an_engine_that_rolls_dice_is_refused(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(0)
    with pytest.raises(InputError, match="is not deterministic"):
        opened(source, monkeypatch, lambda ids, at, token: -float(dice.random()))


def test_what_a_probe_cannot_answer_is_left_to_the_run(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(ids: Sequence[int], at: int, token: int) -> float:
        raise EngineError("row 0: the model's logits are NaN or infinite", 0)

    opened(source, monkeypatch, says)
    assert Made.calls == 1


def test_a_server_is_asked_for_what_it_computes_itself(source: ModelSource) -> None:
    def answer(body: dict[str, Any], _before: int) -> tuple[int, Any]:
        completed = server.complete(body)
        for choice, ids in zip(completed["choices"][::-1], body["prompt"], strict=True):
            for entry in (choice.get("prompt_logprobs") or [])[1:]:
                for value in entry.values():
                    value["logprob"] -= ahead * (sum(ids) % 89) * (len(ids) == LENGTH)
        return 200, completed

    server = CompletionsServer(failure=answer)
    try:
        for ahead in (0.0, 0.01):
            options = EngineOptions(dtype="float32", extra={"url": server.url})
            rows = [Row("causal", row.ids, row.lookups) for row in ROWS]
            if ahead:
                with pytest.raises(InputError, match="its attention is not causal"):
                    open_engine("openai", source, options, rows)
            else:
                open_engine("openai", source, options, rows).close()
    finally:
        server.close()


# --- probes ---


@pytest.mark.parametrize("grid", [True, False])
def test_vllm_computes_a_whole_probe_to_answer_it(grid: bool) -> None:
    (probe,) = probes(ROWS, 128)
    for row in (probe.one, probe.other):
        (query,) = plan(row, grid=grid)  # a prompt that ended earlier would hide what stands behind it
        assert query.length == len(row.ids) == LENGTH
        assert grid or query.prompt_scores


@pytest.mark.parametrize("context", [4, 5, 10, 128, 10**6])
def test_probes_begin_alike_and_have_no_later_token_in_common(context: int) -> None:
    one_token = Row("causal", (7,), ((0, 7),))
    for rows in ([one_token], ROWS, [Row("causal", (0, 0, 0), ((2, 0),))]):
        for probe in probes(rows, context):
            pairs = list(zip(probe.one.ids, probe.other.ids, strict=True))
            half = len(pairs) // 2
            assert len(pairs) < context or context > LENGTH
            assert all(a == b for a, b in pairs[:half])
            assert all(a != b for a, b in pairs[half:])
            assert probe.one.lookups == probe.other.lookups
            assert all(at + 1 < half and probe.one.ids[at + 1] == token for at, token in probe.one.lookups[:-1])
            assert all(token >= 0 for token in (*probe.one.ids, *probe.other.ids))


def test_masked_rows_and_no_rows_have_no_probe() -> None:
    assert probes([], 128) == ()
    assert probes([Row("masked", (2, 4, 3), ((1, 9),)), Row("pair", (2, 3), ((0, 0),))], 128) == ()
