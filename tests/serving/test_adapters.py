"""Models with a PEFT adapter: scored as base weights plus B·A·scale by hand in float64, known by both, or refused."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import tiny_model, tiny_tokenizer

from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.identity import fingerprint, identity
from evaluator_serving.models import adapters
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.opening import open_engine
from evaluator_serving.rows import Head, Row
from tests.json_files import edit

peft = pytest.importorskip("peft", reason="peft isn't installed: install the lora extra")

IDS = (2, 17, 9, 30, 3)
RANK, ALPHA = 4, 12


pytestmark = pytest.mark.usefixtures("module_cache")


def adapter_for(
    base: Path, folder: Path, auto: str, prepare: Callable[[Any], Any] = lambda model: None, **config: Any
) -> tuple[Path, Any]:
    """Save an adapter of random weights for the model in `base` into `folder`; returns it and the unmerged float64 model."""
    model = getattr(transformers, auto).from_pretrained(base)
    prepare(model)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, **config))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    wrapped.save_pretrained(folder)
    return folder, wrapped.eval().double()


def by_hand(base: Path, adapter: Path, auto: str, *, transposed: bool = False) -> Any:
    """The base model in float64 with B·A·α/r added to the weights that the adapter's file names."""
    model = getattr(transformers, auto).from_pretrained(base, dtype=torch.float64).eval()
    tensors = {key: tensor.double() for key, tensor in load_file(adapter / "adapter_model.safetensors").items()}
    changed = 0
    with torch.no_grad():
        for key, down in tensors.items():
            if key.endswith("lora_A.weight"):
                delta = tensors[key.replace("lora_A", "lora_B")] @ down * (ALPHA / RANK)
                name = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                model.get_submodule(name).weight += delta.T if transposed else delta
                changed += 1
    assert changed == len(tensors) / 2
    return model


def scores(spec: Path, head: Head, engine: str = "transformers") -> np.ndarray:
    """log P of every token at every position, as the program has it."""
    source = resolve(str(spec))
    size = source.config.vocab_size
    positions = (2,) if head == "masked" else tuple(range(len(IDS)))
    row = Row(head, IDS, tuple((at, token) for at in positions for token in range(size)))
    options = EngineOptions() if engine == "onnx" else EngineOptions(dtype="float64")
    opened = open_engine(engine, source, options, [row])
    try:
        return opened.score([row])[0].reshape(len(positions), size)
    finally:
        opened.close()


def expected(model: Any, head: Head) -> np.ndarray:
    with torch.no_grad():
        found = torch.log_softmax(model(torch.tensor([IDS])).logits[0], -1).numpy()
    return found[2:3] if head == "masked" else found


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal but for float32's rounding of the merged weights."""
    np.testing.assert_allclose(found, wanted, atol=2e-4)


CAUSAL, MASKED = "AutoModelForCausalLM", "AutoModelForMaskedLM"


# --- scores ---


def test_an_adapter_alone_is_applied_to_the_base_that_it_names(tmp_path: Path) -> None:
    """GPT-2 stores its matrices transposed."""
    base = tiny_model("gpt2", tmp_path / "base")
    adapter, _ = adapter_for(base, tmp_path / "adapter", CAUSAL, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
    close(scores(adapter, "causal"), expected(by_hand(base, adapter, CAUSAL, transposed=True), "causal"))
    assert np.abs(scores(adapter, "causal") - scores(base, "causal")).max() > 0.1


def test_a_base_folder_may_be_given_relative_to_the_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where no ../base is
    base = tiny_model("gpt2", tmp_path / "base")
    adapter, model = adapter_for(base, tmp_path / "adapter", CAUSAL, fan_in_fan_out=True)
    edit(adapter / "adapter_config.json", base_model_name_or_path="../base")
    close(scores(adapter, "causal"), expected(model, "causal"))


@pytest.mark.parametrize("named", ["there", "nowhere"])
def test_an_adapter_beside_weights_is_applied_to_those(tmp_path: Path, named: str) -> None:
    """Whatever base the adapter names: the weights that stand beside it are the ones that were given."""
    base = tiny_model("llama", tmp_path / "model")
    other = tiny_model("llama", tmp_path / "other", seed=9)
    adapter_for(base, base, CAUSAL, target_modules="all-linear")
    edit(base / "adapter_config.json", base_model_name_or_path=str(other) if named == "there" else "/no/such/folder")
    wanted = tiny_model("llama", tmp_path / "plain")
    close(scores(base, "causal"), expected(by_hand(wanted, base, CAUSAL), "causal"))


def test_every_engine_scores_the_same_merged_weights(tmp_path: Path) -> None:
    base = tiny_model("bert", tmp_path / "base")
    adapter, _ = adapter_for(base, tmp_path / "adapter", MASKED, target_modules=["query", "value", "dense"])
    wanted = expected(by_hand(base, adapter, MASKED), "masked")
    close(scores(adapter, "masked"), wanted)
    close(scores(adapter, "masked", "onnx"), wanted)


def test_a_berts_two_heads_are_kept(tmp_path: Path) -> None:
    base = tiny_model("bert-pretraining", tmp_path / "base")
    adapter, model = adapter_for(base, tmp_path / "adapter", "AutoModelForPreTraining", target_modules=["query"])
    assert resolve(str(adapter)).heads == {"masked", "pair"}
    with torch.no_grad():
        wanted = torch.log_softmax(model(torch.tensor([IDS])).prediction_logits[0], -1).numpy()
    close(scores(adapter, "masked"), wanted[2:3])


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_tied_head_and_embeddings_part_where_the_adapter_changes_one(tmp_path: Path, target: str) -> None:
    base = tiny_model("llama", tmp_path / "base", tie_word_embeddings=True)
    adapter, model = adapter_for(base, tmp_path / "adapter", CAUSAL, target_modules=["q_proj", target])
    close(scores(adapter, "causal"), expected(model, "causal"))


def test_bfloat16_weights_are_merged_in_float32(tmp_path: Path) -> None:
    base = tiny_model("llama", tmp_path / "base")
    transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).save_pretrained(base)
    adapter, _ = adapter_for(base, tmp_path / "adapter", CAUSAL, target_modules=["q_proj", "up_proj"])
    close(scores(adapter, "causal"), expected(by_hand(base, adapter, CAUSAL), "causal"))


# --- tokens ---


def test_added_tokens_come_with_their_tokenizer_and_embeddings(tmp_path: Path) -> None:
    base = tiny_model("llama", tmp_path / "base")
    tokens = tiny_tokenizer("llama")
    tokens.add_tokens(["strongwoman", "<turn>"])
    config = {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}
    resize = lambda model: model.resize_token_embeddings(len(tokens))  # noqa: E731
    adapter, model = adapter_for(base, tmp_path / "adapter", CAUSAL, resize, **config)
    tokens.save_pretrained(adapter)
    source = resolve(str(adapter))
    assert source.config.vocab_size == len(tokens) == len(load_tokenizer(source))
    assert load_tokenizer(source)("strongwoman").input_ids == tokens("strongwoman").input_ids
    close(scores(adapter, "causal"), expected(model, "causal"))


def test_added_tokens_without_embeddings_are_refused(tmp_path: Path) -> None:
    """peft leaves the head's new rows out where it is not tied to the embeddings that are targeted: they would be random."""
    base = tiny_model("llama", tmp_path / "base")
    resize = lambda model: model.resize_token_embeddings(130)  # noqa: E731
    adapter, _ = adapter_for(base, tmp_path / "adapter", CAUSAL, resize, target_modules=["q_proj", "embed_tokens"])
    with pytest.raises(InputError, match="adds tokens without their embeddings"):
        resolve(str(adapter))


# --- identity ---


def test_base_and_adapter_are_both_in_the_identity(tmp_path: Path) -> None:
    base = tiny_model("gpt2", tmp_path / "base")
    adapter, _ = adapter_for(base, tmp_path / "adapter", CAUSAL, fan_in_fan_out=True)
    first = resolve(str(adapter))
    assert first.adapter is not None
    assert (first.adapter.kind, first.adapter.base) == ("LORA", str(base))
    assert first.adapter.base_revision == resolve(str(base)).revision
    info = identity("transformers", first, EngineOptions())
    assert info.details["adapter"]["adapter"] == first.adapter.revision
    assert "peft" in info.versions
    tensors = load_file(adapter / "adapter_model.safetensors")
    save_file({key: tensor * 2 for key, tensor in tensors.items()}, adapter / "adapter_model.safetensors")
    other_adapter = resolve(str(adapter))
    tiny_model("gpt2", base, seed=5)
    other_base = resolve(str(adapter))
    sources = (first, other_adapter, other_base)
    assert len({source.revision for source in sources}) == len({source.path for source in sources}) == 3
    assert len({fingerprint(identity("transformers", source, EngineOptions())) for source in sources}) == 3
    without = replace(first, adapter=None)
    assert fingerprint(identity("transformers", without, EngineOptions())) != fingerprint(info)


def test_merged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tiny_model("gpt2", tmp_path / "base")
    adapter, _ = adapter_for(base, tmp_path / "adapter", CAUSAL, fan_in_fan_out=True)
    path = resolve(str(adapter)).path
    monkeypatch.setattr(adapters, "_merge", None)
    assert resolve(str(adapter)).path == path
    assert not [file for file in path.parent.iterdir() if file.name.startswith(".")]


# --- refusals ---


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter for a small GPT-2; tests that change it copy it first."""
    folder = tmp_path_factory.mktemp("saved")
    return adapter_for(tiny_model("gpt2", folder / "base"), folder / "adapter", CAUSAL, fan_in_fan_out=True)[0]


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "adapter"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"base_model_name_or_path": "/no/where"},
            "base model /no/where can't be used .no such folder.*correct base_model",
        ),
        ({"base_model_name_or_path": None}, "without the name of a base model: correct base_model_name_or_path"),
        ({"base_model_name_or_path": "../adapter"}, "is an adapter without weights itself"),
        ({"peft_type": "PREFIX_TUNING"}, "PREFIX_TUNING adapters can't be merged into weights"),
        ({"peft_type": "FROM_TOMORROW"}, "does not support FROM_TOMORROW adapters: install a newer version"),
        ({"alora_invocation_tokens": [1, 2]}, "only after its invocation tokens"),
        ({"a_new_setting": True}, "doesn't know all of its settings: .*a_new_setting"),
    ],
)
def test_what_cannot_be_merged_is_refused_in_a_line(copied: Path, changes: dict[str, object], reason: str) -> None:
    edit(copied / "adapter_config.json", **changes)
    with pytest.raises(InputError, match=reason) as caught:
        resolve(str(copied))
    assert "\n" not in str(caught.value)


def test_an_adapter_of_another_model_is_refused(copied: Path, tmp_path: Path) -> None:
    edit(copied / "adapter_config.json", base_model_name_or_path=str(tiny_model("gpt2", tmp_path / "wide", n_embd=64)))
    with pytest.raises(InputError, match=r"can't be applied .*size mismatch"):
        resolve(str(copied))
    edit(copied / "adapter_config.json", base_model_name_or_path=str(tiny_model("gpt2", tmp_path / "short", n_layer=1)))
    with pytest.raises(InputError, match=r"h\.1\..* is a tensor of another model's adapter"):
        resolve(str(copied))


def test_half_an_adapter_is_refused(copied: Path) -> None:
    config = (copied / "adapter_config.json").read_bytes()
    (copied / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"without its adapter_config\.json"):
        resolve(str(copied))
    (copied / "adapter_config.json").write_bytes(config)
    (copied / "adapter_model.safetensors").unlink()
    with pytest.raises(InputError, match=r"without adapter_model\.safetensors"):
        resolve(str(copied))


def test_without_peft_the_line_says_what_to_install(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(adapters, "version", version)
    with pytest.raises(InputError, match=r"needs peft: pip install 'stereotype-evaluator\[lora\]', or .*merge_and_unload"):
        resolve(str(saved))
