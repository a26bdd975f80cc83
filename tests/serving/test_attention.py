"""Models whose attention transformers' fast kernels don't compute are scored with the plain one; and what their decoders ask of
an encoder beyond its states."""

import ast
from pathlib import Path
from typing import Any

import pytest
import transformers
from tiny_models import drawn_wide, tiny_tokenizer

from evaluator_serving.engine import EngineOptions
from evaluator_serving.identity import fingerprint, identity
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.engine import TransformersEngine
from tests.float64_loop import saved_answers

_SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_GEMMA: dict[str, Any] = {**_SIZES, "num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16}
_CAPPED: dict[str, Any] = {**_GEMMA, "attn_logit_softcapping": 0.5}
_IDS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1}

CAUSAL = {"Gemma2": _CAPPED, "VaultGemma": _CAPPED}


def made(name: str, folder: Path, kind: str, **options: Any) -> ModelSource:
    """A model with a tokenizer of GPT-2's kind or T5's."""
    tokens = tiny_tokenizer("gpt2" if kind == "ForCausalLM" else "t5")
    config = getattr(transformers, f"{name}Config")(**options)
    drawn_wide(getattr(transformers, name + kind)(config)).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return resolve(str(folder))


def check(source: ModelSource, rows: list[Row], auto: str) -> None:
    """The engine's numbers against plain attention in float64, one row at a time."""
    engine = TransformersEngine(source, EngineOptions(device="cpu"), rows)
    expected = saved_answers(source.path, rows, auto, attn_implementation="eager")
    assert [numbers.tolist() for numbers in engine.score(rows)] == [pytest.approx(one, abs=1e-4) for one in expected]
    engine.close()


@pytest.mark.parametrize("name", CAUSAL)
def test_scores_of_attention_are_capped(name: str, tmp_path: Path) -> None:
    source = made(name, tmp_path, "ForCausalLM", vocab_size=400, **_IDS, **CAUSAL[name])
    base = tuple(range(9, 33))
    rows = [Row("causal", ids, ((len(ids) - 1, 40), (2, 41))) for ids in (base, (*base[:12], *base[::-2]), base[::-3])]
    check(source, rows, "AutoModelForCausalLM")


def test_scores_of_attention_are_capped_in_encoder_and_decoder(tmp_path: Path) -> None:
    part: dict[str, Any] = {"vocab_size": 120, **_IDS, **_CAPPED}
    options: dict[str, Any] = {"encoder": part, "decoder": part, "vocab_size": 120, "decoder_start_token_id": 5, **_IDS}
    check(
        made("T5Gemma", tmp_path, "ForConditionalGeneration", **options),
        [Row("seq2seq", (5, 3, 7, 9), ((1, 20), (3, 21)), encoder_ids=(9, 3, 12, *range(20, 20 + n), 1)) for n in (2, 9)],
        "AutoModelForSeq2SeqLM",
    )


def test_numbers_without_the_cap_are_of_another_identity(tmp_path: Path) -> None:
    """A run that was begun before goes on with none of its answers."""
    capped = made("Gemma2", tmp_path / "capped", "ForCausalLM", vocab_size=400, **_IDS, **_CAPPED)
    plain = made("Gemma2", tmp_path / "plain", "ForCausalLM", vocab_size=400, **_IDS, **_GEMMA, attn_logit_softcapping=None)
    info = identity("transformers", capped, EngineOptions())
    assert info.details.pop("attention") == "eager"
    assert fingerprint(info) != fingerprint(identity("transformers", capped, EngineOptions()))
    assert "attention" not in identity("transformers", plain, EngineOptions()).details
    assert "attention" not in identity("onnx", capped, EngineOptions()).details


@pytest.mark.parametrize("name", ["SwitchTransformers", "NllbMoe"])
def test_a_decoder_gets_its_own_kind_of_output_from_the_encoder(name: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"d_model": 32, "num_experts": 4, "vocab_size": 120, "decoder_start_token_id": 0, **_IDS}
    switch = {"d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "expert_capacity": 64}
    nllb = {
        **{f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4))},
        **{"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_sparse_step": 2, "decoder_sparse_step": 2},
        "max_position_embeddings": 64,
    }
    options = sizes | (nllb if name == "NllbMoe" else switch)
    rows = [Row("seq2seq", (0, 3, 7), ((1, 20), (2, 21)), encoder_ids=(9, 3, 12, *range(20, 20 + n), 1)) for n in (2, 9)]
    check(made(name, tmp_path, "ForConditionalGeneration", **options), rows, "AutoModelForSeq2SeqLM")


def test_the_cap_is_all_that_the_fast_kernel_leaves_out() -> None:
    """What else plain attention is handed in models that may use the fast one: a new version of the library shows here."""
    ours = {"module", "query", "key", "value", "attention_mask", "dropout", "scaling", "is_causal", "position_bias", "cache"}
    ours |= {"kwargs", "sliding_window"}  # the window is in the mask
    left_out = set()
    for file in (Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"):
        text = file.read_text("utf8")
        # Where a part refuses the fast one, it is the vision's that may use it (Inkling 2, whose text has sinks).
        if "_supports_sdpa = True" not in text or "_supports_sdpa = False" in text or "def eager_attention_forward" not in text:
            continue
        plain = text[text.index("def eager_attention_forward") :]
        head = ast.parse(plain[: plain.index(":\n", plain.index("**")) + 2] + "    pass").body[0]
        assert isinstance(head, ast.FunctionDef)
        left_out |= {argument.arg for argument in (*head.args.args, *head.args.kwonlyargs)} - ours
    assert left_out == {"softcap"}
