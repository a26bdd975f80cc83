"""Pairs of texts as requests, against a plain loop over both whole texts, with tokenizers of every kind.

The model is an invented one: log P(token | tokens before it) is a number made of a hash of both. What is asked of it, at which
positions, is all that these tests are about.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model, tiny_tokenizer

from evaluator.tasks.pair_requests import compared, one_word_apart, split
from evaluator_serving.encoding import Encoder, encoder_for
from evaluator_serving.models.resolving import resolve
from evaluator_serving.requests import Continuation, Masked

KINDS = ("gpt2", "gpt2-split", "llama", "llama-bytes")
"""Without BOS in front of a text (byte-level), and with it (SentencePiece: unknown characters, or their bytes)."""

WORDS = ["the", "man", "woman", "wo", "said", "She", "he", "él", "είπε", "ο", "άντρας", "η", "γυναίκα", "каза", "тя", "той"]
WORDS += [
    "сказав",
    "він",
    "сказала",
    "вона",
    "qal",
    "qalet",
    "ir-raġel",
    "Żgħir",
    "ħobż",
    "мъжът",
    "«Аз",
    "съм»,",
    "—",
    "a-t-il",
]

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Encoder, Any]]:
    def made(kind: str) -> tuple[Encoder, Any]:
        folder: Path = tmp_path_factory.mktemp(kind)
        family = "gpt2" if kind.startswith("gpt2") else "llama"
        return encoder_for(resolve(str(tiny_model(family, folder, tokenizer=kind)))), tiny_tokenizer(kind)

    return {kind: made(kind) for kind in KINDS}


def log_p(before: Sequence[int], token: int) -> float:
    digest = hashlib.blake2b(repr((tuple(before), token)).encode(), digest_size=4).digest()
    return -int.from_bytes(digest, "little") / 2**29


def answer(encoder: Encoder, request: Continuation) -> list[list[float]]:
    encoded = encoder.encode(request)
    numbers = [[log_p(row.ids[: at + 1], token) for at, token in row.lookups] for row in encoded.rows]
    return [[numbers[read.row][read.lookup] for read in candidate.reads] for candidate in encoded.candidates]


def whole(ids: Sequence[int]) -> float:
    """The sum over a text's tokens but the first, in a plain loop."""
    return sum(log_p(ids[:t], ids[t]) for t in range(1, len(ids)))


@settings(max_examples=60)
@given(st.sampled_from(KINDS), texts, texts, texts)
def test_the_difference_is_that_of_the_whole_texts(
    encoders: dict[str, tuple[Encoder, Any]], kind: str, begin: str, one: str, other: str
) -> None:
    """Common beginnings of some words, of a part of a word, or none; one text may be the beginning of the other."""
    encoder, tokenizer = encoders[kind]
    for first, second in (
        (f"{begin} {one}", f"{begin} {other}"),
        (one, other),
        (begin, f"{begin} {one}"),
        (f"{begin}{one}", begin),
    ):
        ids = [tokenizer(text)["input_ids"] for text in (first, second)]
        if ids[0] == ids[1] or encoder.text.unk_id in (*ids[0], *ids[1]):
            continue
        request = compared(first, second)
        if not request.context and not kind.startswith("llama"):
            ids = [[tokenizer.bos_token_id, *line] for line in ids]
        m, f = answer(encoder, request)
        assert sum(m) - sum(f) == pytest.approx(whole(ids[0]) - whole(ids[1]), abs=1e-9), (first, second)
        assert m
        assert f


@given(texts, texts, texts)
def test_the_common_beginning_ends_with_a_word(begin: str, one: str, other: str) -> None:
    first, second = f"{begin} {one}", f"{begin} {other}"
    common, rest, other_rest = split(first, second)
    assert (common + rest, common + other_rest) == (first, second)
    assert rest.strip()
    assert other_rest.strip()
    assert not common or (rest[0] == other_rest[0] == " " and common[-1] != " ")
    assert len(common) >= len(begin) or not rest.strip().startswith(begin)


def test_a_text_that_begins_the_other_keeps_its_last_word() -> None:
    assert split('"So", va dir', '"So", va dir ella') == ('"So", va', " dir", " dir ella")
    assert split("ja", "ja on") == ("", "ja", "ja on")


@settings(max_examples=60)
@given(st.sampled_from(KINDS), texts, texts)
def test_published_tokens(encoders: dict[str, tuple[Encoder, Any]], kind: str, one: str, other: str) -> None:
    """What the two released versions read, written down as they index their lists of next-token log-probabilities."""
    encoder, tokenizer = encoders[kind]
    ids = [tokenizer(text)["input_ids"] for text in (one, other)]
    if one == other or ids[0] == ids[1] or encoder.text.unk_id in (*ids[0], *ids[1]) or min(map(len, ids)) < 2:
        return
    scores = [[log_p(line[:t], line[t]) for t in range(1, len(line))] for line in ids]
    assert answer(encoder, Continuation("", (one, other), "whole")) == scores
    same = 0
    while same < min(map(len, ids)) and ids[0][same] == ids[1][same]:
        same += 1
    start = min(map(len, ids)) - 2 if same == min(map(len, ids)) else same - 1
    assert answer(encoder, Continuation("", (one, other), "difference")) == [line[start:] for line in scores]


def test_a_pair_that_differs_in_a_word_is_a_masked_request() -> None:
    assert one_word_apart("Bol som unavený, áno.", "Bol som unavená, áno.") == Masked(
        ("Bol som ", ", áno."), (("unavený",), ("unavená",))
    )
    assert one_word_apart("a b c", "a d e") is None
    assert one_word_apart("va dir", "va dir ella") is None
    assert one_word_apart("so it is.", "so it is!") is None
    assert one_word_apart("είπε ο άντρας", "είπε η γυναίκα") is None
