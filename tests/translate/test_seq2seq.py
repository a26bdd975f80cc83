"""Local encoder-decoder translators on tiny random weights: a hand-written greedy loop, kills, Ray."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tiny_models import tiny_model

from evaluator.translate import seq2seq
from evaluator.translate.seq2seq import Seq2SeqTranslator
from evaluator_serving.errors import InputError


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights rarely write the token that ends a text, and nothing is learnt from hundreds of tokens."""
    monkeypatch.setattr(seq2seq, "MAX_TOKENS", 24)


TEXTS = ["I cook.", "I work with my friends every day.", "I always think quietly."]


def greedy(folder: Path, architecture: str, text: str, first: str | None) -> str:
    """One text alone, the likeliest token again and again, the whole decoder for each."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model: Any = getattr(transformers, architecture).from_pretrained(folder).eval()
    source = torch.tensor([tokenizer(text)["input_ids"]])
    written = [model.config.decoder_start_token_id]
    if first is not None:
        written.append(tokenizer.convert_tokens_to_ids(first))
    with torch.inference_mode():
        while len(written) <= seq2seq.MAX_TOKENS and written[1:][-1:] != [tokenizer.eos_token_id]:
            if len(written) == seq2seq.MAX_TOKENS and model.generation_config.forced_eos_token_id is not None:
                break  # Marian's last token has to be the end's
            logits = model(input_ids=source, decoder_input_ids=torch.tensor([written])).logits[0, -1]
            if model.config.model_type == "marian":
                logits[model.config.pad_token_id] = -torch.inf  # Marian starts with it and never writes it
            written.append(int(logits.argmax()))
    return str(tokenizer.decode(written, skip_special_tokens=True)).strip()


@pytest.mark.parametrize(
    ("family", "architecture", "first", "seed"),
    [("m2m100", "M2M100ForConditionalGeneration", "slk_Latn", 2), ("marian", "MarianMTModel", None, 1)],
)
def test_equals_a_greedy_loop(tmp_path: Path, family: str, architecture: str, first: str | None, seed: int) -> None:
    """The seeds are ones whose random weights write different things of different texts."""
    folder = tiny_model(family, tmp_path / "model", seed=seed)
    found = Seq2SeqTranslator(str(folder)).translate(TEXTS, "sk")
    assert found == [greedy(folder, architecture, text, first) for text in TEXTS]
    assert all(found)
    assert len(set(found)) > 1


def test_the_language_is_the_models_own(tmp_path: Path) -> None:
    translator = Seq2SeqTranslator(str(tiny_model("m2m100", tmp_path / "model")))
    assert translator.translate(TEXTS, "sk") != translator.translate(TEXTS, "pl")
    assert translator.translate(TEXTS, "sk") == translator.translate(TEXTS, "slk_Latn")
    with pytest.raises(InputError, match="has no code for language 'de'"):
        translator.translate(TEXTS, "de")
    with pytest.raises(InputError, match="is not an encoder-decoder model"):
        Seq2SeqTranslator(str(tiny_model("gpt2", tmp_path / "causal")))


@pytest.mark.parametrize("prefix", ["", ">>sk<< "])
def test_a_texts_own_characters_are_no_control_tokens(tmp_path: Path, prefix: str) -> None:
    folder = tiny_model("marian", tmp_path / "model", tokenizer="roberta")
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    if prefix:
        tokens.add_special_tokens({"additional_special_tokens": [prefix.strip()]})
        tokens.save_pretrained(folder)
    found = Seq2SeqTranslator(str(folder))._inputs(["I cook.", "I </s> cook <mask>."], prefix)
    ids, mask = found["input_ids"].tolist(), found["attention_mask"].tolist()
    plain, odd = ([i for i, m in zip(row, seen, strict=True) if m] for row, seen in zip(ids, mask, strict=True))
    assert plain == tokens(prefix + "I cook.")["input_ids"], "as it has always been"
    assert (odd.count(tokens.eos_token_id), odd.count(tokens.mask_token_id)) == (1, 0), "the template's own"
    assert tokens.decode(odd, skip_special_tokens=True).strip() == "I </s> cook <mask>."
    assert (tokens.convert_tokens_to_ids(prefix.strip()) in odd) == bool(prefix)


def test_a_text_that_can_not_stay_text_is_named(tmp_path: Path) -> None:
    """A tokenizer that has the control token among its pieces."""
    translator = Seq2SeqTranslator(str(tiny_model("marian", tmp_path / "model")))
    with pytest.raises(InputError, match=r"'I </s> cook\.' can't be translated by model .*: the text contains '</s>'"):
        translator.translate(["I cook.", "I </s> cook."], "sk")


def command(model: Path, out: Path, *more: str) -> list[str]:
    program = [sys.executable, "-m", "evaluator", "translate", "gest-demo", "--to", "sk"]
    return [*program, "--translator", f"model:{model}", "--out", str(out), *more]


def table(out: Path) -> list[list[str]]:
    (path,) = out.glob("*/sk/translations.csv")
    return list(csv.reader(path.open(newline="")))


HELD = """
import time
from evaluator.answer_cache import AnswerCache
add = AnswerCache.add
AnswerCache.add = lambda cache, entries: (add(cache, entries), time.sleep(600))
from evaluator.cli import main
main()
"""
"""The command, which waits to be killed when it has stored its first answers."""


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path) -> None:
    model = tiny_model("m2m100", tmp_path / "model")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    line = command(model, tmp_path / "killed")
    process = subprocess.Popen([sys.executable, "-c", HELD, *line[3:]], env=environment)
    answers = tmp_path / "killed" / "answers.jsonl"
    while process.poll() is None and not (answers.exists() and answers.read_bytes().endswith(b"\n")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = len(answers.read_text().splitlines())
    subprocess.run(command(model, tmp_path / "killed"), env=environment, check=True)
    keys = [json.loads(line)["key"] for line in answers.read_text().splitlines()]
    assert 0 < before < len(keys) == len(set(keys)) == 160
    subprocess.run(command(model, tmp_path / "whole"), env=environment, check=True)
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    assert len(table(tmp_path / "whole")) == 161


@pytest.mark.slow
@pytest.mark.ray
def test_two_ray_workers_translate_like_one(tmp_path: Path) -> None:
    model = tiny_model("m2m100", tmp_path / "model")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    for out, workers in (("one", "1"), ("two", "2")):
        subprocess.run(command(model, tmp_path / out, "--workers", workers), env=environment, check=True)
    assert table(tmp_path / "one") == table(tmp_path / "two")
    assert len(table(tmp_path / "two")) == 161


def test_codes_of_languages_stand_around_the_files_tokens(tmp_path: Path) -> None:
    """transformers' class says which language a text is in; what the text's tokens are, its tokenizer.json says."""
    model = tiny_model("m2m100", tmp_path / "model")
    described = json.loads((model / "tokenizer.json").read_text())
    described["normalizer"] = {"type": "Replace", "pattern": {"String": "cook"}, "content": "man"}
    (model / "tokenizer.json").write_text(json.dumps(described))
    configured = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(configured | {"tokenizer_class": "NllbTokenizer"}))
    translator = Seq2SeqTranslator(str(model))
    translator.translate(["I cook."], "sk")
    right = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    code, end = right.token_to_id("eng_Latn"), right.token_to_id("</s>")
    assert translator._ids("I cook.", "") == [code, *right.encode("I cook.", add_special_tokens=False).ids, end]
    assert translator.parameters["tokenizer"] == "tokenizer.json"
    (model / "tokenizer_config.json").write_text(json.dumps(configured | {"tokenizer_class": "M2M100Tokenizer"}))
    with pytest.raises(
        InputError,
        match=r"its tokenizer\.json adds no token for English, and its tokenizer class M2M100Tokenizer can't be loaded",
    ):
        Seq2SeqTranslator(str(model)).translate(["I cook."], "sk")
