"""Next-sentence training: it learns, survives a kill with the same weights, and refuses what it can't do."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    GPT2Config,
    GPT2LMHeadModel,
    MT5Config,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from evaluator.nsp.train import Trainer, TrainingOptions, _pair_format, default_settings, train
from evaluator_serving.errors import InputError
from evaluator_serving.models.classifiers import build, load
from evaluator_serving.models.next_sentence import NextSentence, next_sentence
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.rows import GREEDY
from tests.tiny_models import tiny_model

TOPICS = [("whale", "sea"), ("wheat", "field"), ("violin", "hall"), ("goal", "team"), ("comet", "sky"), ("dough", "oven")]


def write_corpus(path: Path, articles: int, seed: int = 0) -> Path:
    """Articles of a question and its answer about one topic, as JSONL."""
    draw = random.Random(seed)
    with path.open("w") as file:
        for _ in range(articles):
            one, two = draw.choice(TOPICS)
            text = f"Where {draw.choice(['is', 'was'])} the {one} ? The {one} {draw.choice(['is', 'was'])} in the {two} ."
            file.write(json.dumps({"text": text}) + "\n")
    return path


def tokenizer(seq2seq: bool) -> PreTrainedTokenizerFast:
    words = ["Where", "The", "the", "is", "was", "in", "?", ".", "0", "1"] + [word for pair in TOPICS for word in pair]
    specials = ["<pad>", "</s>", "<unk>"]
    vocab = {word: index for index, word in enumerate([*specials, *words])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace()])
    if seq2seq:
        backend.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", vocab["</s>"])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>" if seq2seq else None, eos_token="</s>", unk_token="<unk>"
    )


def write_model(folder: Path, seq2seq: bool, dropout: float = 0.0) -> Path:
    torch.manual_seed(1)
    words = tokenizer(seq2seq)
    model: Any
    if seq2seq:
        model = T5ForConditionalGeneration(
            T5Config(
                vocab_size=len(words), d_model=48, d_kv=16, num_heads=3, d_ff=96, num_layers=2, num_decoder_layers=1,
                decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, dropout_rate=dropout,
            )
        )  # fmt: skip
    else:
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=len(words), n_embd=48, n_layer=2, n_head=3, n_positions=64, bos_token_id=1, eos_token_id=1,
                resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
                initializer_range=0.2,  # wider than usual: learns in hundreds of steps
            )
        )  # fmt: skip
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


LEARN = {
    "gpt2": TrainingOptions(
        pairs=9_000, epochs=40, batch=32, accumulate=1, core_rate=3e-3, head_rate=3e-3, length=32, held_out=0.2
    ),
    "t5": TrainingOptions(pairs=4_000, epochs=40, batch=16, accumulate=2, core_rate=3e-3, length=32, held_out=0.2),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEARN)
def test_learns(tmp_path: Path, kind: str) -> None:
    source = resolve(str(write_model(tmp_path / "model", kind == "t5")))
    corpus = write_corpus(tmp_path / "corpus.jsonl", 400)
    result = train(source, [corpus], LEARN[kind], tmp_path / "out", report=lambda line: None)
    assert result.accuracy is not None
    # A random sentence of another article has the same topic in 1 of 6 cases: the best possible is 0.92 on average.
    assert result.accuracy > 0.8


def test_a_texts_own_characters_are_no_control_tokens(tmp_path: Path) -> None:
    source = resolve(str(write_model(tmp_path / "model", seq2seq=True)))
    corpus = write_corpus(tmp_path / "corpus.jsonl", 8)
    trainer = Trainer(source, [corpus], TrainingOptions(length=32), "cpu")
    ids = trainer._inputs(["The </s> is", "The is"], ["in the <pad> .", "in the ."], "")["input_ids"].tolist()
    end = trainer.tokenizer.eos_token_id
    assert [row.count(end) for row in ids] == [2, 2], "the template's own, one a text"
    assert ids[0].count(trainer.tokenizer.unk_token_id) > 0, "this tokenizer has no piece for the characters"


SMALL = ["--pairs", "240", "--epochs", "9", "--batch", "4", "--accumulate", "2", "--held-out", "0.1", "--seed", "7"]


HELD = """
import time
from evaluator.nsp import train
written = train._checkpoint
train._checkpoint = lambda *state: (written(*state), time.sleep(600))
from evaluator.cli import main
main()
"""
"""The command, which waits to be killed when it has written its first checkpoint."""


def start(model: Path, corpus: Path, out: Path, every: int, *how: str) -> subprocess.Popen[str]:
    command = [sys.executable, *(how or ("-m", "evaluator")), "train-nsp", str(model), str(corpus), "--out", str(out), *SMALL]
    command += ["--checkpoint-every", str(every), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("seq2seq", [False, True], ids=["gpt2", "t5"])
def test_a_killed_training_goes_on_to_the_same_weights(tmp_path: Path, seq2seq: bool) -> None:
    model = write_model(tmp_path / "model", seq2seq, dropout=0.1)
    corpus = write_corpus(tmp_path / "corpus.jsonl", 30)
    undisturbed = start(model, corpus, tmp_path / "whole", 1000)
    victim = start(model, corpus, tmp_path / "cut", 3, "-c", HELD)
    partial = tmp_path / "cut.partial"
    while not list(partial.glob("step-*")):
        assert victim.poll() is None, victim.communicate()
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert not (tmp_path / "cut").exists()
    assert undisturbed.wait(300) == 0
    second = start(model, corpus, tmp_path / "cut", 3)
    output, progress = second.communicate(timeout=300)
    assert second.returncode == 0, progress
    assert "resuming after step" in progress
    assert not partial.exists()
    whole, cut = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert "in 30 steps" in output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", 12)


TINY = TrainingOptions(pairs=16, batch=4, accumulate=2, length=32, held_out=0.0)


@pytest.mark.parametrize("seq2seq", [False, True], ids=["gpt2", "t5"])
def test_the_result_is_a_model_folder(tmp_path: Path, corpus: Path, seq2seq: bool) -> None:
    source = resolve(str(write_model(tmp_path / "model", seq2seq)))
    settings = replace(TINY, prefix="The " if seq2seq else "", train_prefix="in ")
    result = train(source, [corpus], settings, tmp_path / "out", report=lambda line: None)
    assert (result.steps, result.pairs, result.accuracy) == (2, 16, None)
    seen: list[str] = []
    assert train(source, [corpus], settings, tmp_path / "out", report=seen.append) == result
    assert "already finished" in seen[0]
    with pytest.raises(InputError, match="was trained with another seed"):
        train(source, [corpus], replace(settings, seed=settings.seed + 1), tmp_path / "out", report=seen.append)
    with pytest.raises(InputError, match="was trained with another model"):
        train(replace(source, revision="other"), [corpus], settings, tmp_path / "out", report=seen.append)
    trained = resolve(str(tmp_path / "out"))
    assert trained.heads == {"pair"}
    how = next_sentence(trained.config)
    assert how is not None
    assert how.prefix == settings.prefix
    vocab = tokenizer(seq2seq).get_vocab()
    if seq2seq:
        assert how.labels == (vocab["0"], vocab["1"])
        assert how.forced == (0,)
    module = load(trained.path, trained.config)
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(module.state_dict()[name := next(iter(weights))], weights[name])
    with torch.inference_mode():
        assert module(torch.tensor([[3, 4]]), torch.tensor([[1, 1]])).logits.shape == (1, 2)


@pytest.fixture(scope="module")
def unlike_labels(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """A T5 whose tokenizer, as the real one's, writes 0 with two tokens and 1 with one."""
    folder = tiny_model("t5", tmp_path_factory.mktemp("t5") / "model")
    written = json.loads((folder / "tokenizer.json").read_text())
    written["model"]["vocab"][-2] = ["▁1", -6.0]  # in place of a piece that no test needs
    (folder / "tokenizer.json").write_text(json.dumps(written))
    return resolve(str(folder))


def test_labels_of_unlike_length(unlike_labels: ModelSource, corpus: Path, tmp_path: Path) -> None:
    tokens = load_tokenizer(unlike_labels)
    vocab = tokens.get_vocab()
    zero, one, front, end = (vocab[piece] for piece in ("0", "▁1", "▁", "</s>"))
    assert (tokens("0").input_ids, tokens("1").input_ids) == ([front, zero, end], [one, end])
    how, targets = _pair_format(unlike_labels, tokens, TrainingOptions())
    assert (how.labels, how.forced) == ((zero, one), (0, front))
    assert targets.tolist() == [[front, zero, end], [front, one, end]]
    how, targets = _pair_format(unlike_labels, tokens, TrainingOptions(released_targets=True))
    assert (how.labels, how.forced) == ((zero, one), (0, GREEDY))
    assert targets.tolist() == [[zero], [one]]
    for released in (False, True):
        settings = replace(TINY, released_targets=released)
        train(unlike_labels, [corpus], settings, tmp_path / str(released), report=lambda line: None)
        assert resolve(str(tmp_path / str(released))).heads == {"pair"}


def test_released_score_is_read_at_the_second_step_of_generation(unlike_labels: ModelSource) -> None:
    tokens = load_tokenizer(unlike_labels)
    core = T5ForConditionalGeneration.from_pretrained(unlike_labels.path).eval()
    how, _ = _pair_format(unlike_labels, tokens, TrainingOptions(released_targets=True))
    texts = ["the nurse is a woman", "my child", "He said: I am the boss"]
    inputs = tokens(texts, ["she is", "you feel tired, always", "cry"], padding=True, return_tensors="pt")
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        found = build(core, how)(**inputs).logits
        options = {"max_length": 3, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
        generated = core.generate(**inputs, **options)
    assert len(set(generated.sequences[:, 1].tolist())) > 1, "the first token must not be the same for all"
    torch.testing.assert_close(found, generated.scores[1][:, list(how.labels)], atol=1e-4, rtol=0)


def test_pooling_is_over_the_text_or_with_padding(tmp_path: Path) -> None:
    source = resolve(str(write_model(tmp_path / "model", False)))
    module = build(AutoModel.from_pretrained(source.path), NextSentence()).eval()
    ids, mask = torch.tensor([[4, 5, 6, 1, 1]]), torch.tensor([[1, 1, 1, 0, 0]])
    with torch.inference_mode():
        alone = module(ids[:, :3]).logits
        torch.testing.assert_close(module(ids, mask).logits, alone)
        states = module.core(input_ids=ids, attention_mask=mask).last_hidden_state
        padded = module(ids, mask, pool_padding=True).logits
        torch.testing.assert_close(padded, module.head(states.mean(dim=1)))
        assert not torch.allclose(padded, alone)


def test_default_settings() -> None:
    gpt2, t5 = GPT2Config(), T5Config()
    mt5 = MT5Config()
    found = default_settings(gpt2)
    assert (found.batch, found.accumulate, found.core_rate, found.head_rate, found.prefix) == (4, 16, 5e-6, 1e-3, "")
    found = default_settings(t5)
    assert (found.batch, found.accumulate, found.core_rate) == (24, 3, 5e-6)
    assert found.train_prefix == found.prefix == "binary classification: "
    found = default_settings(t5, published=True, language="es")
    assert (found.train_prefix, found.prefix) == ("clasificación binaria: ", "binary classification: ")
    found = default_settings(mt5)
    assert (found.batch, found.accumulate, found.core_rate, found.prefix) == (8, 8, 1e-4, "")
    assert default_settings(gpt2, published=True).pool_padding
    assert [default_settings(c, published=p).released_targets for c in (t5, mt5) for p in (False, True)] == [False, True] * 2


def test_bad_input(tmp_path: Path, corpus: Path) -> None:
    source = resolve(str(write_model(tmp_path / "model", False)))
    lonely = tmp_path / "lonely.txt"
    lonely.write_text("One sentence.\n\nAnother one.\n")
    with pytest.raises(InputError, match="at least two"):
        train(source, [lonely], TINY, tmp_path / "out")
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="taken exists"):
        train(source, [corpus], TINY, tmp_path / "taken")
    seen: list[str] = []

    def stop(line: str) -> None:
        seen.append(line)
        raise KeyboardInterrupt

    longer = replace(TINY, pairs=10_000, epochs=60)
    with pytest.raises(KeyboardInterrupt):
        train(source, [corpus], longer, tmp_path / "cut", every=10, report=stop)
    with pytest.raises(InputError, match=r"another core_rate \(5e-06, now 0.1\)"):
        train(source, [corpus], replace(longer, core_rate=0.1), tmp_path / "cut", report=stop)
