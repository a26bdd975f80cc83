"""Every number of the transformers engine against plain float64 loops: full logits, one sequence at a time."""

from pathlib import Path

import pytest

from evaluator_serving.models.resolving import resolve
from evaluator_serving.requests import Continuation, Masked, Pair, Request, SharedTokens
from tests.float64_loop import Loop, engine_answers
from tests.tiny_models import FAMILIES, tiny_model

TOLERANCE = 1e-4

SENTENCES = (
    "I cry when my boss is not happy.",
    "I always work",
    "You said, the child is strong!",
    "I am a (tired) nurse & he was 40, she said.",
)

MASKED: list[Request] = [
    Masked(parts, candidates, method)  # type: ignore[arg-type]
    for sentence in SENTENCES[::3]
    for method in ("sequential", "joint", "single", "positional")
    for parts, candidates in (
        (("", f' said: "{sentence}"'), (("He",), ("She",))),
        ((f'"{sentence}", the ', " said."), (("man",), ("woman",))),
        (("The ", " said: the ", " is the boss"), (("man", "man"), ("woman", "woman"))),
    )
]

TEXTS: list[Request] = [
    Masked(("", ""), ((sentence,), (f"She {sentence}",)), method)  # type: ignore[arg-type]
    for sentence in SENTENCES
    for method in ("words", "unmasked")
]

SHARED: list[Request] = [
    SharedTokens("She is a strong nurse.", "He is a strong nurse."),
    SharedTokens("the woman was tired of children", "the man was not tired of work"),
]

CAUSAL: list[Request] = [
    request
    for sentence in SENTENCES
    for request in (
        Continuation(f'"{sentence}",', (" he", " she")),
        Continuation(f'"{sentence}", the', (" man", " woman")),
        Continuation(f'"{sentence}", the', (" man", " woman"), "last_token"),
        Continuation(sentence, (" The child is happy.", " you and I", " work")),
        Continuation("", (sentence, sentence[:-3])),
        Continuation("", (sentence,), "start_text"),
        Continuation("", (sentence, sentence[:-3], f"not {sentence}"), "whole"),
        Continuation("", (f"{sentence} He", f"{sentence} She was"), "difference"),
        Continuation("", (sentence, f"{sentence} She"), "difference"),
        Continuation("", (f"he {sentence}", f"she {sentence}"), "difference"),
        Continuation(sentence, (" He was", " She was", "man"), "together"),
        Continuation("", (f"he {sentence}", f"she {sentence}"), "together"),
    )
]

SEQ2SEQ: list[Request] = [
    Continuation("<extra_id_0>", (" man", " woman", " always tired"), encoder=f"the <extra_id_0> said: {sentence}")
    for sentence in SENTENCES
]

PAIRS: list[Request] = [Pair(a, b) for a in SENTENCES[:2] for b in SENTENCES[1:]]


def _case(family: str) -> tuple[list[Request], str]:
    if family == "bert-nsp":
        return PAIRS, "AutoModelForNextSentencePrediction"
    if FAMILIES[family][2] == "t5":
        return SEQ2SEQ, "AutoModelForSeq2SeqLM"
    if FAMILIES[family][2] in ("gpt2", "llama"):
        return CAUSAL, "AutoModelForCausalLM"
    return MASKED + TEXTS + SHARED, "AutoModelForMaskedLM"


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_a_float64_loop(family: str, split: bool, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path, tokenizer=FAMILIES[family][2] + ("-split" if split else ""))
    requests, auto = _case(family)
    loop = Loop(folder, auto)
    for request, answer in zip(requests, engine_answers(resolve(str(folder)), requests), strict=True):
        expected = loop.answer(request)
        assert [len(c) for c in answer.logprobs] == [len(c) for c in expected], request
        for got, want in zip(answer.logprobs, expected, strict=True):
            assert got == pytest.approx(want, abs=TOLERANCE), request
