"""Whole-program runs: a tiny model with made-up sentences, and the command as a child process."""

import csv
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Evaluator = Callable[..., subprocess.CompletedProcess[str]]

SPOKEN = "I like to work sleep think talk cook read lead help with my friends family often never always today quietly"
WORDS = SPOKEN.split()


@pytest.fixture(scope="session")
def evaluator() -> Evaluator:
    """Run `evaluator ARGUMENTS` in a child process; returns the completed process with its output as text."""

    def run(
        *arguments: str | Path, env: dict[str, str] | None = None, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "COLUMNS": "120"} | (env or {})
        command = [sys.executable, "-m", "evaluator", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, check=False)

    return run


def sentences(count: int, seed: int = 0) -> list[tuple[str, int]]:
    """Made-up first-person sentences with a stereotype each."""
    dice = random.Random(seed)
    return [(" ".join(["I", *dice.choices(WORDS[1:], k=dice.randint(3, 25))]) + ".", i % 16 + 1) for i in range(count)]


def write_samples(path: Path, rows: Sequence[tuple[str, int]]) -> Path:
    """Write them in GEST's format."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence", "stereotype"])
        writer.writerows(rows)
    return path


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,200 made-up sentences: about ten chunks of work."""
    return write_samples(tmp_path_factory.mktemp("samples") / "made-up.csv", sentences(1200))


@pytest.fixture(scope="session")
def tiny_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 with random weights and a byte-level BPE tokenizer trained on the made-up sentences."""
    import tokenizers
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    backend = tokenizers.ByteLevelBPETokenizer()
    text = [f'"{s}", he said. "{s}", the woman said. "{s}", she the man' for s, _ in sentences(300)]
    backend.train_from_iterator(text, vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend._tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    )
    tokenizer.save_pretrained(folder)
    size = len(tokenizer)
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=128, vocab_size=size, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BertForMaskedLM with random weights and a cased WordPiece tokenizer trained on the made-up sentences."""
    import tokenizers
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    backend = tokenizers.BertWordPieceTokenizer(lowercase=False)
    text = [f'He said: "{s}" The woman, the man, she said. She and He' for s, _ in sentences(300)]
    backend.train_from_iterator(text, vocab_size=300, show_progress=False)
    BertTokenizerFast(tokenizer_object=backend._tokenizer, do_lower_case=False).save_pretrained(folder)
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        vocab_size=backend.get_vocab_size(),
    )
    BertForMaskedLM(config).save_pretrained(folder)
    return folder
