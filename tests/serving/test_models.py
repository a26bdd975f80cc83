"""Model specs to sources: what is found, what is refused, and what a source's revision depends on."""

import os
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from tiny_models import FAMILIES, tiny_model, tiny_tokenizer

from evaluator_serving import cache
from evaluator_serving.cache import content_hash
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.config import UNLIMITED
from evaluator_serving.models.gguf import restore_bos
from evaluator_serving.models.heads import next_label
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.rows import Head, Row
from evaluator_serving.transformers_engine.engine import TransformersEngine
from evaluator_serving.weights.files import count_parameters, tensor_names
from tests.json_files import edit

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT; tests that change it copy it first."""
    return tiny_model("bert", tmp_path_factory.mktemp("bert"))


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def load(folder: Path, head: Head, *, allow_pickle: bool = False) -> TransformersEngine:
    row = Row(head, (2, 5, 3), ((0 if head == "pair" else 1, 1 if head == "pair" else 6),))
    return TransformersEngine(resolve(str(folder), allow_pickle=allow_pickle), EngineOptions(), [row])


HEADS = {
    **{family: {"masked"} for family in FAMILIES},
    **{family: {"causal"} for family in ("gpt2", "llama", "gemma2")},
    **{family: {"seq2seq"} for family in ("t5", "mt5")},
    "bert-nsp": {"pair"},
    "bert-pretraining": {"masked", "pair"},
}


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "t5", "bert-nsp", "bert-pretraining"])
def test_heads_and_context_of_a_folder(family: str, tmp_path: Path) -> None:
    source = resolve(str(tiny_model(family, tmp_path)))
    assert source.heads == HEADS[family]
    # RoBERTa numbers positions from its padding id + 1 = 2; T5 has no absolute positions.
    assert source.context == {"roberta": 126, "t5": UNLIMITED}.get(family, 128)


@pytest.mark.parametrize("family", ["bert", "electra", "xlm-roberta", "modernbert", "gpt2", "llama", "t5", "bert-pretraining"])
def test_heads_without_an_architecture_in_the_config(family: str, tmp_path: Path) -> None:
    edit(tiny_model(family, tmp_path) / "config.json", architectures=None)
    assert resolve(str(tmp_path)).heads == HEADS[family]


def test_original_berts_next_sentence_head_is_found_by_its_tensors(tmp_path: Path) -> None:
    edit(tiny_model("bert-pretraining", tmp_path) / "config.json", architectures=["BertForMaskedLM"])
    assert resolve(str(tmp_path)).heads == {"masked", "pair"}


def test_relative_home_and_absolute_paths_and_bin_files(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = transformers.BertForMaskedLM.from_pretrained(copied).state_dict()
    expected = resolve(str(copied))
    (copied / "model.safetensors").unlink()
    torch.save(state, copied / "pytorch_model.bin")
    monkeypatch.chdir(copied.parent)
    monkeypatch.setenv("HOME", str(copied.parent))
    for spec in (str(copied), "model", "./model", "~/model"):
        with pytest.raises(InputError, match=r"pickled \(pytorch_model.bin\).*--allow-pickle"):
            resolve(spec)
        source = resolve(spec, allow_pickle=True)
        assert source.pickled
        assert (source.spec, source.path, source.heads) == (spec, copied.resolve(), expected.heads)
    assert count_parameters(copied) >= sum(p.numel() for p in transformers.BertForMaskedLM.from_pretrained(copied).parameters())
    load(copied, "masked", allow_pickle=True).close()


def test_bin_files_of_old_versions_of_pytorch(copied: Path) -> None:
    state = transformers.BertForMaskedLM.from_pretrained(copied).state_dict()
    names = tensor_names([copied / "model.safetensors"])
    (copied / "model.safetensors").unlink()
    torch.save(state, copied / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert resolve(str(copied), allow_pickle=True).heads == {"masked"}
    assert tensor_names([copied / "pytorch_model.bin"]) >= names
    load(copied, "masked", allow_pickle=True).close()


def test_sharded_weights(saved: Path, copied: Path) -> None:
    model = transformers.BertForMaskedLM.from_pretrained(saved)
    (copied / "model.safetensors").unlink()
    model.save_pretrained(copied, max_shard_size="20KB")
    assert len(list(copied.glob("model-*.safetensors"))) > 1
    assert tensor_names(copied.glob("*.safetensors")) == tensor_names(saved.glob("*.safetensors"))
    assert count_parameters(copied) == count_parameters(saved) == sum(p.numel() for p in model.parameters())
    assert resolve(str(copied)).heads == {"masked"}
    next(iter(copied.glob("model-*.safetensors"))).unlink()
    with pytest.raises(InputError, match=r"weight file model-.*safetensors is missing"):
        resolve(str(copied))


# --- revisions ---


def test_revision_is_the_contents_hash(saved: Path, copied: Path) -> None:
    revision = resolve(str(saved)).revision
    assert revision.startswith("sha256:")
    (copied / "notes.md").write_text("not part of the model")
    assert resolve(str(copied)).revision == revision
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        changed = Path(shutil.copytree(saved, copied.parent / f"changed-{name}"))
        content = (changed / name).read_bytes()
        (changed / name).write_bytes(content[:-1] + b"\x01" if name.endswith("safetensors") else content + b" ")
        assert resolve(str(changed)).revision != revision, name


def test_a_large_files_digest_is_remembered_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SETTLED_NS", -1)
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"a" * 1_500_000)
    first = content_hash([file])
    calls = []
    digest = cache.hashlib.file_digest
    monkeypatch.setattr(cache.hashlib, "file_digest", lambda *a: calls.append(a) or digest(*a))
    assert content_hash([file]) == first
    assert not calls
    file.write_bytes(b"b" * 1_500_000)
    os.utime(file, ns=(1, 1))
    assert content_hash([file]) != first
    assert len(calls) == 1


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.bin").write_bytes(b"a" * 1_500_000)
    assert content_hash([tmp_path / "model.bin"]).startswith("sha256:")


# --- refusals ---


@pytest.mark.parametrize(
    ("missing", "said"),
    [("model.safetensors", "no weights in"), ("config.json", r"no config\.json"), ("tokenizer.json", "no tokenizer")],
)
def test_a_folder_without_one_of_its_parts(copied: Path, missing: str, said: str) -> None:
    (copied / missing).unlink()
    with pytest.raises(InputError, match=said):
        resolve(str(copied))


@pytest.mark.parametrize("kept", [4, 100, -100])
def test_truncated_safetensors(copied: Path, kept: int) -> None:
    file = copied / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(InputError, match="truncated"):
        resolve(str(copied))


def test_truncated_bin(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    torch.save({"a": torch.ones(1000)}, copied / "pytorch_model.bin")
    file = copied / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(InputError, match="truncated"):
        resolve(str(copied), allow_pickle=True)


def test_broken_config_and_tokenizer(copied: Path) -> None:
    (copied / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="tokenizer can't be loaded"):
        load_tokenizer(resolve(str(copied)))
    (copied / "config.json").write_text("{")
    with pytest.raises(InputError, match="configuration can't be read"):
        resolve(str(copied))


def test_truncated_gguf_and_two_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(InputError, match="can't be read as GGUF"):
        resolve(str(tmp_path))
    with pytest.raises(InputError, match="can't be read as GGUF"):
        resolve(str(tmp_path / "a.gguf"))
    (tmp_path / "b.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(InputError, match="2 GGUF files"):
        resolve(str(tmp_path))


@pytest.mark.parametrize("spec", ["/no/such/folder", "./nothing-here", "~/nothing-here", "a/b/c/d", "what is this?", ""])
def test_neither_folder_nor_hub_id(spec: str) -> None:
    with pytest.raises(InputError, match="no such folder"):
        resolve(spec)


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"must be a \.gguf file"):
        resolve(str(tmp_path / "weights.safetensors"))


@pytest.mark.parametrize("spec", ["someone/some-model", "someone/some-model@abc123"])
def test_hub_id_offline_is_one_line_that_says_what_to_do(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="go online") as caught:
        resolve(spec)
    assert spec in str(caught.value)
    assert "\n" not in str(caught.value)


def test_body_without_a_head_is_refused_before_and_at_loading(copied: Path) -> None:
    body = transformers.BertForMaskedLM.from_pretrained(copied).bert
    (copied / "model.safetensors").unlink()
    body.save_pretrained(copied)
    with pytest.raises(InputError, match="BertModel has no language-model"):
        resolve(str(copied))
    edit(copied / "config.json", architectures=["BertForMaskedLM"])
    with pytest.raises(InputError, match="its masked head would be random"):
        load(copied, "masked")


def test_untied_head_that_is_missing_is_refused_and_a_tied_one_is_not(tmp_path: Path) -> None:
    for tied in (True, False):
        folder = tiny_model("llama", tmp_path / str(tied), tie_word_embeddings=tied)
        load(folder, "causal").close()
        model = transformers.LlamaForCausalLM.from_pretrained(folder)
        state = {name: tensor.clone() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
        model.save_pretrained(folder, state_dict=state)
        if tied:
            load(folder, "causal").close()
        else:
            with pytest.raises(InputError, match=r"lm_head\.weight not in the checkpoint"):
                load(folder, "causal")


def test_electras_discriminator_is_no_masked_model(tmp_path: Path) -> None:
    edit(tiny_model("electra", tmp_path) / "config.json", architectures=["ElectraForPreTraining"])
    with pytest.raises(InputError, match="ElectraForPreTraining has no language-model"):
        resolve(str(tmp_path))


def test_a_classifier_needs_a_label_that_means_is_next() -> None:
    config = transformers.BertConfig(architectures=["BertForSequenceClassification"])
    assert next_label(config) is None
    config = transformers.BertConfig(
        architectures=["BertForSequenceClassification"],
        id2label={0: "not_next", 1: "IS_NEXT"},
        label2id={"not_next": 0, "IS_NEXT": 1},
    )
    assert next_label(config) == 1
    assert next_label(transformers.BertConfig(architectures=["BertForNextSentencePrediction"])) == 0


def test_unknown_chat_template(saved: Path) -> None:
    with pytest.raises(InputError, match="unknown chat template 'system'"):
        resolve(str(saved), chat_template="system")


# --- BOS lost in a GGUF conversion ---


def test_lost_bos_is_put_back_once_and_survives_saving(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer("llama")
    expected = tokenizer("the man")["input_ids"]
    tokenizer.backend_tokenizer.post_processor = None
    assert tokenizer("the man")["input_ids"] == expected[1:]
    for _ in range(2):
        restore_bos(tokenizer, wanted=True)
        assert tokenizer("the man")["input_ids"] == expected
    tokenizer.save_pretrained(tmp_path)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)("the man")["input_ids"] == expected


def test_bos_stays_away_where_the_model_uses_none() -> None:
    tokenizer = tiny_tokenizer("gpt2")
    expected = tokenizer("the man")["input_ids"]
    restore_bos(tokenizer, wanted=False)
    assert tokenizer("the man")["input_ids"] == expected


def test_a_folder_has_no_revisions(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no revisions: remove @step1"):
        resolve(f"{tmp_path}@step1")
