"""What the cache knows of models: the same as transformers says, or nothing."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import FAMILIES, tiny_model, tiny_talker, tiny_tokenizer
from tokenizers import Tokenizer, pre_tokenizers

from evaluator_serving.chats import Chat, Turn
from evaluator_serving.checks import verify
from evaluator_serving.checks.verify import verify_engine
from evaluator_serving.encoding import encoder_for
from evaluator_serving.encoding.text import TextTokenizer
from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models import checkpoint, known_tokenizer, model_cache
from evaluator_serving.models.config import context, load_config, vocabulary
from evaluator_serving.models.known_tokenizer import KnownTokenizer, tokenizer_of
from evaluator_serving.models.model_cache import CachedConfig
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.onnx.engine import OnnxEngine
from evaluator_serving.onnx.export import refusal
from evaluator_serving.rows import Row
from tests.json_files import edit

TEXTS = ("The nurse said that she is a strong woman.", " He  is\nnot ж é [MASK] <s>", "Woman", "I'm 12 years <|endoftext|>")


pytestmark = pytest.mark.usefixtures("module_cache")


def made(tokenizer: Any, source: ModelSource) -> list[Any]:
    """What a tokenizer makes of TEXTS, as encoders ask it, and the roles of its tokens."""
    text = TextTokenizer(source, tokenizer)
    results: list[Any] = [text.front, text.unk_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.mask_token]
    for asked in TEXTS:
        try:
            tokens = text.tokens(asked)
            results += [tokens, tokenizer.convert_ids_to_tokens(list(tokens.ids)), text.decode(tokens.ids)]
        except InputError as error:
            results.append(str(error))
    return results


@pytest.mark.parametrize("family", FAMILIES)
def test_a_known_model_is_what_transformers_says_it_is(family: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path)
    right = load_config(folder, "")
    first, again = resolve(str(folder)), resolve(str(folder))
    for config in (first.config, again.config, pickle.loads(pickle.dumps(again.config))):
        assert isinstance(config, CachedConfig)
        assert config == first.config
        assert (context(config), vocabulary(config)) == (context(right), vocabulary(right))
        for name in dir(right):
            if not hasattr(right, name):
                assert not hasattr(config, name), name
                continue
            value = getattr(right, name)
            if not name.startswith("_") and not callable(value) and name != "name_or_path":
                plain = value is None or isinstance(value, bool | int | float | str | list | tuple | dict)
                assert (getattr(config, name) == value) if plain else (type(getattr(config, name)) is type(value)), name
        assert getattr(config, "no_such_thing", None) is None
        assert not hasattr(config, "_no_such_thing")
        assert config.to_dict() | {"_name_or_path": right.name_or_path} == right.to_dict()
    plain = replace(first, config=right)
    assert (again.heads, again.context, again.parameters) == (first.heads, context(right), first.parameters)
    for head in ("masked", "causal"):
        assert refusal(again, head) == refusal(plain, head)
    assert made(tokenizer_of(again), again) == made(load_tokenizer(plain), plain)
    light = tokenizer_of(again)
    assert isinstance(light, KnownTokenizer)
    assert made(light, again) == made(load_tokenizer(plain), plain)


def test_a_known_model_takes_neither_torch_nor_transformers(tmp_path: Path) -> None:
    """In this process and in one that encodes for it."""
    source = resolve(str(tiny_model("llama", tmp_path, seed=5)))
    tokenizer_of(source)
    program = """
import pickle, sys
from evaluator_serving.encoding import encoder_for, likeness
from evaluator_serving.models.file_tokens import with_file_tokens
from evaluator_serving.models.resolving import resolve
from evaluator_serving.requests import Continuation
source = pickle.loads(pickle.dumps(with_file_tokens(resolve(sys.argv[1]), [])))
encoder_for(source).encode(Continuation("The nurse said that", (" she is", " he is")))
likeness(source)
assert not {"torch", "transformers"} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_config_is_whole_on_a_machine_without_the_folder(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path / "model", seed=6)
    written, right = pickle.dumps(resolve(str(folder)).config), load_config(folder, "")
    folder.rename(tmp_path / "gone")
    config = pickle.loads(written)
    assert (config.dtype, config.id2label) == (right.dtype, right.id2label)


def test_a_tokenizer_that_reads_back_otherwise_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model("gpt2", tmp_path, seed=1)
    from_file = Tokenizer.from_file

    def other(path: str) -> Tokenizer:
        found = from_file(path)
        if path.startswith(str(folder)):
            found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        return found

    monkeypatch.setattr(Tokenizer, "from_file", staticmethod(other))
    source = resolve(str(folder))
    right = load_tokenizer(source)
    tokenizer_of(source)
    found = tokenizer_of(source)  # a copy, or none
    assert made(found, source) == made(right, source)


def test_another_version_or_configuration_is_not_the_known_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = resolve(str(tiny_model("llama", tmp_path, seed=2)))
    tokenizer_of(source)
    loadings: list[Path] = []
    monkeypatch.setattr(checkpoint, "load_config", lambda path, spec: loadings.append(path) or load_config(path, spec))
    assert resolve(str(tmp_path)).config == source.config
    assert isinstance(tokenizer_of(source), KnownTokenizer)
    assert loadings == []
    with monkeypatch.context() as patch:
        patch.setattr(model_cache, "version", lambda name: "0.1")
        assert resolve(str(tmp_path)).config == source.config
        assert loadings == [tmp_path]
        assert not isinstance(tokenizer_of(source), KnownTokenizer)
    edit(tmp_path / "config.json", rms_norm_eps=0.125)
    assert resolve(str(tmp_path)).config.rms_norm_eps == 0.125


def test_a_chat_template_is_rendered_by_transformers(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, seed=3)
    tokens = tiny_tokenizer("llama")
    tokens.chat_template = "{% for m in messages %}<s>{{ m['content'] }}{% endfor %}I said: "
    tokens.save_pretrained(folder)
    source = resolve(str(folder), chat_template="user")
    expected = TextTokenizer(source, load_tokenizer(source)).prompt_ids("he is")
    tokenizer_of(source)
    light = tokenizer_of(source)
    assert isinstance(light, KnownTokenizer)
    assert TextTokenizer(source, light).prompt_ids("he is") == expected


def test_all_chats_of_a_known_model_take_one_loading_of_its_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_talker(tmp_path)
    source = resolve(str(folder))
    chats = [Chat((Turn("user", text),)) for text in ("he is", "she is", "they are")]
    expected = [encoder_for(source).encode(chat).rows[0].ids for chat in chats]
    loadings: list[ModelSource] = []
    monkeypatch.setattr(known_tokenizer, "load_tokenizer", lambda asked: loadings.append(asked) or load_tokenizer(asked))
    encoder = encoder_for(source)
    assert isinstance(tokenizer_of(source), KnownTokenizer)
    assert [encoder.encode(chat).rows[0].ids for chat in chats] == expected
    assert len(loadings) == 1


ROWS = [Row("causal", tuple(range(5, 6 + n)), ((n, 9), (n, 11))) for n in range(1, 30)]


class Shifted(OnnxEngine):
    """An engine whose numbers are off by `by`."""

    by = 0.0

    def score(self, rows: Any) -> Any:
        return [numbers + self.by for numbers in super().score(rows)]


@pytest.fixture(scope="module")
def checked(module_cache: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shifted, ModelSource, float]:
    """An engine, its model, and how far it was from the oracle when it was checked on ROWS."""
    source = resolve(str(tiny_model("llama", tmp_path_factory.mktemp("model"), seed=4)))
    engine = Shifted(source, EngineOptions(device="cpu"), ROWS)
    found = verify_engine(engine, source, EngineOptions(device="cpu"), ROWS[::2])
    assert found.method == "transformers"
    return engine, source, found.difference


@pytest.fixture
def no_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> type[Engine]:
        raise AssertionError(f"{name} is loaded")

    monkeypatch.setattr(verify, "engine_class", load)


@pytest.mark.usefixtures("no_oracle")
def test_the_oracle_is_not_loaded_again_for_the_same_rows(checked: tuple[Shifted, ModelSource, float]) -> None:
    engine, source, difference = checked
    found = verify_engine(engine, source, EngineOptions(device="cpu"), ROWS[::2])
    assert found.method == "transformers (cached)"
    assert found.difference == pytest.approx(difference, abs=1e-12)


@pytest.mark.usefixtures("no_oracle")
def test_rows_that_are_no_longer_are_checked_by_those_of_an_earlier_run_and_alone(
    checked: tuple[Shifted, ModelSource, float],
) -> None:
    engine, source, _ = checked
    others = [replace(row, lookups=((0, 7),)) for row in ROWS[1:20:3]]
    found = verify_engine(engine, source, EngineOptions(device="cpu"), others)
    assert found.method.startswith("transformers (cached from an earlier run's rows) and itself")
    assert found.reads == len(others) + 2 * 12
    assert found.difference < 1e-4


def test_an_engine_without_room_for_longer_rows_is_not_asked_remembered_ones(
    checked: tuple[Shifted, ModelSource, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is loaded for these rows alone, as vLLM is."""
    engine, source, _ = checked
    asked: list[int] = []

    def score(rows: Any) -> Any:
        asked.extend(row.length for row in rows)
        return super(Shifted, engine).score(rows)

    short = [Row("causal", (7, 8, 9), ((2, 10),)), Row("causal", (8, 7), ((1, 10),))]
    for sized, longest in ((False, max(row.length for row in ROWS)), (True, 3)):
        asked.clear()
        monkeypatch.setattr(Shifted, "sized", sized)
        monkeypatch.setattr(engine, "score", score)
        found = verify_engine(engine, source, EngineOptions(device="cpu"), short)
        assert max(asked) == longest
        assert found.difference < 1e-4


@pytest.mark.usefixtures("no_oracle")
@pytest.mark.parametrize("rows", [ROWS[::2], ROWS[1:20:3]])
def test_a_wrong_engine_is_told_by_what_is_remembered(
    rows: list[Row], checked: tuple[Shifted, ModelSource, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, source, _ = checked
    monkeypatch.setattr(engine, "by", 0.01)
    with pytest.raises(InputError, match=r"by transformers \(cached"):
        verify_engine(engine, source, EngineOptions(device="cpu"), rows)


def test_longer_rows_other_dtypes_and_versions_are_asked_of_the_oracle(
    checked: tuple[Shifted, ModelSource, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, source, _ = checked
    longer = [Row("causal", tuple(range(3, 43)), ((39, 9),))]
    assert verify_engine(engine, source, EngineOptions(device="cpu"), longer).method == "transformers"
    assert verify_engine(engine, source, EngineOptions("bfloat16", device="cpu"), ROWS[::2]).method == "transformers"
    monkeypatch.setattr("evaluator_serving.checks.oracle_cache.version", lambda name: "0.1")
    assert verify_engine(engine, source, EngineOptions(device="cpu"), ROWS[::2]).method == "transformers"


def test_numbers_that_the_oracle_has_not_are_remembered_as_such(checked: tuple[Shifted, ModelSource, float]) -> None:
    from evaluator_serving.checks.oracle_cache import OracleCache

    _, source, _ = checked
    row = Row("causal", (1, 2), ((1, 3),), type_ids=(0, 0), encoder_ids=(4,))
    OracleCache.of(source, "float64").add([row, ROWS[0]], [None, np.array([0.1, -1 / 3])])
    again = OracleCache.of(source, "float64")
    assert again.answers[row] is None
    assert again.answers[ROWS[0]].tolist() == [0.1, -1 / 3]  # type: ignore[union-attr]
    assert again.like([replace(ROWS[0], lookups=())]) == [ROWS[0]]
    assert again.like([row, ROWS[1]]) == []
