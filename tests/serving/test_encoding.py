"""Requests to rows: which tokens are masked or read, for tokenizers of every kind."""

import hashlib
import json
import re
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from tiny_models import SPLIT, WORDS
from tiny_models import tiny_tokenizer as new_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import MarianConfig, PreTrainedConfig, PreTrainedTokenizerFast, XLMRobertaTokenizer

from evaluator_serving.chats import Chat, Turn
from evaluator_serving.chunks import merge
from evaluator_serving.encoding import Encoder, continuation, masked
from evaluator_serving.encoding.text import TextTokenizer
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Choice, Continuation, Masked, Pair, Request, SharedTokens, request_id
from evaluator_serving.rows import Coverage, Encoded, Row

MASKED_KINDS = ("wordpiece", "wordpiece-lower", "roberta", "xlmr")
CAUSAL_KINDS = ("gpt2", "llama")
BOTH = ("", "-split")

SPACE = "▁Ġ"

tiny_tokenizer = cache(new_tokenizer)


@cache
def encoder(kind: str, *, context: int = 128, chat: str = "none") -> Encoder:
    """An encoder with a tokenizer of a kind and no model behind it."""
    tokenizer = new_tokenizer(kind)
    if chat == "user":
        tokenizer.chat_template = (
            "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}"
        )
    types = 2 if kind.startswith("wordpiece") else 1
    config = PreTrainedConfig(type_vocab_size=types, decoder_start_token_id=0, vocab_size=len(tokenizer) + 320)
    heads = frozenset({"masked", "causal", "seq2seq", "pair"})
    source = ModelSource("tiny", Path("."), "none", heads, config, context, chat_template=chat)
    return Encoder(source, tokenizer)


def tokens(kind: str, ids: tuple[int, ...]) -> list[str]:
    return list(tiny_tokenizer(kind).convert_ids_to_tokens(list(ids)))


def spelled(kind: str, row: Row) -> str:
    """A row's tokens as one string."""
    return " ".join(tokens(kind, row.ids))


def read(kind: str, row: Row) -> list[tuple[int, str]]:
    """A row's lookups with the tokens spelled."""
    return [(at, tokens(kind, (token,))[0]) for at, token in row.lookups]


def encode(kind: str, request: Request, **options: Any) -> Encoded:
    return encoder(kind, **options).encode(request)


def test_an_identity_is_a_hash_of_kind_and_fields() -> None:
    turns = (Turn("system", "be kind"), Turn("user", 'Žofie \u2028 "said" <|x|>'))
    asked: list[tuple[str, Request]] = [
        ("masked", Masked(("a ", " b\n"), (("ß",), ("c d",)), "joint")),
        ("continuation", Continuation("The nurse", (" he", " she"), "together")),
        ("continuation", Continuation("", (" he",), encoder="text <extra_id_0>")),
        ("pair", Pair("one", "two")),
        ("shared", SharedTokens("one", "two")),
        ("choice", Choice(turns, ("(a)", "(b)"))),
        ("chat", Chat(turns, answers=2, temperature=0.7, max_tokens=9, seed=3)),
    ]
    for kind, request in asked:
        content = json.dumps([kind, asdict(request)], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        assert request_id(request) == hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    # Answers are kept under it: it can never change.
    assert request_id(Pair("one", "two")) == "ad092dee12f99db6a704f6c4bdabc549"


# --- masked ---


def test_two_words_of_one_token_share_one_forward_pass() -> None:
    encoded = encode("wordpiece", Masked(("", ' said: "I cry."'), (("He",), ("She",))))
    merged = merge([encoded])
    assert encoded.request == request_id(Masked(("", ' said: "I cry."'), (("He",), ("She",))))
    assert [spelled("wordpiece", row) for row in merged.rows] == ['[CLS] [MASK] said : " I cry . " [SEP]']
    assert read("wordpiece", merged.rows[0]) == [(1, "He"), (1, "She")]


@pytest.mark.parametrize("kind", ["roberta", "xlmr", "gpt2", "llama"])
def test_space_and_capital_follow_from_the_place(kind: str) -> None:
    causal = kind in CAUSAL_KINDS
    first: Request = Continuation("", ("She",)) if causal else Masked(("", " said"), (("She",),))
    later: Request = Continuation("so", (" she",)) if causal else Masked(("said ", " said"), (("she",),))
    found = [tokens(kind, encode(kind, request).candidates[0].tokens) for request in (first, later)]
    mark = {"roberta": "Ġ", "gpt2": "Ġ", "xlmr": "▁", "llama": "▁"}[kind]
    front = "▁" if mark == "▁" else ""
    assert found == [[f"{front}She"], [f"{mark}she"]]


words = st.sampled_from(["he", "She", "woman", "Man", "a", *SPLIT])
around = st.text(max_size=25)
gaps = st.sampled_from([" ", ' "', " (", " - "])


@pytest.mark.parametrize("kind", [k + s for k in MASKED_KINDS for s in BOTH])
@given(before=around, gap=gaps, word=words, after=around, method=st.sampled_from(["sequential", "joint", "single"]))
@example(before="😀🇸🇰 É", gap=" ", word="woman", after="日本 ё ", method="sequential")
@example(before="he she", gap=' "', word="she", after=" she", method="joint")
def test_exactly_the_words_tokens_are_masked(kind: str, before: str, gap: str, word: str, after: str, method: Any) -> None:
    encoded = encode(kind, Masked((before + gap, f" {after}"), ((word,),), method), context=10_000)
    tokenizer = tiny_tokenizer(kind)
    (candidate,) = encoded.candidates
    written = tokenizer.decode(list(candidate.tokens)).strip()
    assert written == (word.lower() if "lower" in kind else word)
    whole = tokenizer(before + gap + word + f" {after}")["input_ids"]
    k = len(candidate.tokens)
    mask = tokenizer.mask_token_id
    for j, row in enumerate(encoded.rows):
        # What stands before and behind the word is the text's own, untouched.
        at = row.lookups[0][0] - (0 if method == "joint" else j)
        hidden = {"sequential": k - j, "joint": k, "single": 1}[method]
        assert row.ids[:at] == tuple(whole[:at])
        assert row.ids[at : len(row.ids) - (len(whole) - at - k)] == (*candidate.tokens[:j], *[mask] * hidden)
        assert row.ids[len(row.ids) - (len(whole) - at - k) :] == tuple(whole[at + k :])


# --- continuations ---


def test_one_bos_where_the_tokenizer_uses_one_and_none_elsewhere() -> None:
    assert spelled("llama", encode("llama", Continuation("the", (" man",))).rows[0]) == "<s> ▁the"
    assert spelled("gpt2", encode("gpt2", Continuation("the", (" man",))).rows[0]) == "the"


def test_a_token_that_straddles_the_boundary_is_the_candidates() -> None:
    encoded = encode("gpt2", Continuation("the wo", ("man",)))
    assert tokens("gpt2", encoded.candidates[0].tokens) == ["Ġwoman"]
    assert spelled("gpt2", encoded.rows[0]) == "the"


def test_a_candidate_that_swallows_the_whole_context_starts_after_end_of_text() -> None:
    encoded = encode("gpt2", Continuation("wo", ("man said",)))
    assert tokens("gpt2", encoded.candidates[0].tokens) == ["woman", "Ġsaid"]
    assert spelled("gpt2", encoded.rows[0]) == "<|endoftext|> woman"


@pytest.mark.parametrize(
    ("kind", "first", "rest", "lookups"),
    [
        ("gpt2", "<|endoftext|>", "the Ġman", ["the", "Ġman", "Ġsaid"]),
        # No such token: of the text's special tokens and pieces the first one counts. A text's own BOS is read as well.
        ("llama", "<s>", "<s> ▁the ▁man", ["<s>", "▁the", "▁man", "▁said"]),
        ("t5", "▁", "▁the ▁man ▁said", ["▁the", "▁man", "▁said", "</s>"]),
    ],
)
def test_start_text_reads_the_first_token_behind_the_text_endoftext(
    kind: str, first: str, rest: str, lookups: list[str]
) -> None:
    text = encoder(kind).text
    rows, (candidate,), _ = continuation.encode(Continuation("", ("the man said",), "start_text"), text)
    assert [spelled(kind, row) for row in rows] == [first, rest]
    assert [token for row in rows for _, token in read(kind, row)] == lookups
    assert tokens(kind, candidate.tokens) == lookups
    assert len(candidate.reads) == len(lookups)


@pytest.mark.parametrize(
    ("kind", "parts", "word", "written", "lookups"),
    [
        # What stands next to the mask is a word of its own.
        ("wordpiece", ("the ", "man said"), "wo", ["[CLS] the [MASK] man said [SEP]"], ["wo"]),
        ("wordpiece-split", ("", "."), "woman", ["[CLS] [MASK] . [SEP]", "[CLS] wo [MASK] . [SEP]"], ["wo", "##man"]),
        # A boundary piece without a space, in front of the full stop; a word that begins with one is read from there.
        ("t5", ("the ", "."), "man", ["▁the ▁ <extra_id_0> ▁ . </s>"], ["▁man"]),
        ("t5", ("the", " I"), "xy", ["▁the <extra_id_0> ▁I </s>"] * 2 + ["▁the x <extra_id_0> ▁I </s>"], ["▁", "x", "y"]),
        # RoBERTa's kind: a word with a space of its own keeps it.
        ("roberta", ("the ", "."), "man", ["<s> the <mask> . </s>"], ["Ġman"]),
        ("roberta", ("the ", "s."), "man", ["<s> the <mask> s . </s>"], ["Ġman"]),
        ("roberta", ("the x", "."), "xy", ["<s> the Ġ x <mask> . </s>", "<s> the Ġ x x <mask> . </s>"], ["x", "y"]),
    ],
)
def test_written_texts_are_tokenized_anew(
    kind: str, parts: tuple[str, ...], word: str, written: list[str], lookups: list[str]
) -> None:
    request = Masked(parts, ((word,),), "written")
    rows, _, _ = masked.encode(request, encoder(kind).text, sentinel=kind == "t5")
    assert [spelled(kind, row) for row in rows] == written
    assert [token for row in rows for _, token in read(kind, row)] == lookups


def test_written_texts_hold_no_control_tokens_of_the_users() -> None:
    with pytest.raises(InputError, match=r"contains '\[MASK\]', which this tokenizer always treats"):
        encode("wordpiece", Masked(("the [MASK] ", "."), (("man",),), "written"))


def test_one_token_asks_only_where_one_token_differs() -> None:
    def asked(kind: str, first: str, second: str) -> list[str]:
        return [spelled(kind, row) for row in encode(kind, Masked(("", ""), ((first,), (second,)), "one_token")).rows]

    assert asked("wordpiece", "the man said.", "the boss said.") == ["[CLS] the [MASK] said . [SEP]"] * 2
    assert asked("wordpiece-split", "the man", "the woman") == [], "the closing [SEP] isn't a token that differs"
    assert asked("wordpiece", "the man said.", "a boss said.") == []
    assert asked("wordpiece", "the man", "the man") == []
    with pytest.raises(InputError, match="unknown token"):
        asked("wordpiece", "the man.", "the ☃.")
    assert asked("wordpiece", "☃ man.", "☃ boss.") == ["[CLS] [UNK] [MASK] . [SEP]"] * 2


def test_chat_template_puts_the_context_at_the_assistants_beginning() -> None:
    encoded = encode("llama", Continuation("the", (" man",)), chat="user")
    ids = encoded.rows[0].ids
    bos = tiny_tokenizer("llama").bos_token_id
    assert ids.count(bos) == 1
    assert ids[0] == bos
    assert tiny_tokenizer("llama").decode(list(ids[1:])).replace(" ", "").endswith("assistant:the")


@pytest.mark.parametrize("kind", [k + s for k in CAUSAL_KINDS for s in BOTH])
@given(context=st.text(max_size=25), candidate=st.text(min_size=1, max_size=15).filter(str.strip))
@example(context="I 😀", candidate="🇸🇰")
@example(context="the ", candidate=" woman")
def test_a_continuations_tokens_are_the_texts_tail(kind: str, context: str, candidate: str) -> None:
    tokenizer = tiny_tokenizer(kind)
    whole = tuple(tokenizer(context + candidate)["input_ids"])
    try:
        encoded = encode(kind, Continuation(context, (candidate,)), context=10_000)
    except InputError:
        # Refused for a reason: an unknown character, or a candidate that the tokenizer drops.
        assert tokenizer.unk_token_id in whole or whole == tuple(tokenizer(context)["input_ids"])
        return
    (row,), (found,) = encoded.rows, encoded.candidates
    full = (*row.ids, found.tokens[-1])
    assert full in (whole, (tokenizer.bos_token_id, *whole))
    assert full[-len(found.tokens) :] == found.tokens
    assert [at for at, _ in row.lookups] == list(range(len(full) - len(found.tokens) - 1, len(full) - 1))


# --- encoder-decoder, pairs, shared tokens ---


def test_a_pair_is_read_at_label_zero_with_token_types() -> None:
    (row,) = encode("wordpiece", Pair("I cry.", "you said")).rows
    assert spelled("wordpiece", row) == "[CLS] I cry . [SEP] you said [SEP]"
    assert row.type_ids == (0, 0, 0, 0, 0, 1, 1, 1)
    assert row.lookups == ((0, 0),)


def test_shared_tokens_are_masked_one_at_a_time() -> None:
    encoded = encode("wordpiece", SharedTokens("She is not happy", "He was not happy"))
    assert [spelled("wordpiece", row) for row in encoded.rows] == [
        "[CLS] She is [MASK] happy [SEP]",
        "[CLS] She is not [MASK] [SEP]",
        "[CLS] He was [MASK] happy [SEP]",
        "[CLS] He was not [MASK] [SEP]",
    ]
    assert [tokens("wordpiece", c.tokens) for c in encoded.candidates] == [["not", "happy"]] * 2


def test_texts_that_share_nothing_have_empty_answers() -> None:
    encoded = encode("wordpiece", SharedTokens("She cry", "the man"))
    assert [c.tokens for c in encoded.candidates] == [(), ()]


def test_frequent_tokens_of_long_texts_are_shared_too() -> None:
    text = "the man and the woman of the work " * 30  # difflib's autojunk would drop what fills more than 1% of 200 tokens
    encoded = encode("wordpiece", SharedTokens(text, text), context=1000)
    assert len(encoded.candidates[0].tokens) == 8 * 30


# --- text is text ---

CONTROL = {
    "wordpiece": ("[MASK]", "[SEP]", "[CLS]", "[PAD]"),
    "wordpiece-lower": ("[MASK]", "[SEP]"),
    "roberta": ("<mask>", "</s>", "<s>", "<pad>"),
    "gpt2": ("<|endoftext|>",),
}
PIECES = {"xlmr": ("<mask>", "</s>", "<s>"), "llama": ("</s>", "<s>"), "t5": ("</s>", "<extra_id_0>", "<pad>")}
"""Kinds whose model has the control tokens among its pieces, and so can't read their names as text."""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in CONTROL.items() for name in names])
def test_a_control_tokens_name_in_a_sentence_is_text(kind: str, name: str) -> None:
    tokenizer = tiny_tokenizer(kind)
    sentence = f"I am {name} happy"
    # transformers' own switch says what the sentence is as text.
    plain = tokenizer(sentence, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    control = tokenizer.convert_tokens_to_ids(name)
    assert control not in plain
    if kind == "gpt2":
        rows = encode(kind, Continuation(sentence, (" he", " she"))).rows
        assert [list(row.ids) for row in rows] == [plain, plain]
        assert encode(kind, Continuation("I", (f" am {name}",))).candidates[0].tokens[-1] != control
        return
    (row,) = merge([encode(kind, Masked((f"{sentence} ", ""), (("he",), ("she",))))]).rows
    assert list(row.ids[1 : 1 + len(plain)]) == plain
    assert row.ids.count(tokenizer.mask_token_id) == 1
    pair = encode(kind, Pair(sentence, name)).rows[0]
    assert list(pair.ids[1 : 1 + len(plain)]) == plain
    one, two = encode(kind, SharedTokens(sentence, f"{sentence} always")).candidates
    assert one.tokens == two.tokens == tuple(plain)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in PIECES.items() for name in names])
def test_a_control_tokens_name_that_cannot_be_text_is_refused_by_name(kind: str, name: str) -> None:
    sentence = f"I am {name} happy"
    request: Request = Masked((f"{sentence} ", ""), (("he",),), "single")
    if kind == "llama":
        request = Continuation(sentence, (" he",))
    with pytest.raises(InputError, match=f"the text contains '{re.escape(name)}'"):
        Encoder(*_only(kind, "seq2seq" if kind == "t5" else None)).encode(request)


def _only(kind: str, head: Any) -> tuple[ModelSource, Any]:
    it = encoder(kind)
    source = replace(it.source, heads=frozenset({head})) if head else it.source
    return source, new_tokenizer(kind)


def test_the_transformers_wrapper_does_not_switch_parsing_on_again() -> None:
    tokenizer = new_tokenizer("wordpiece")
    it = Encoder(encoder("wordpiece").source, tokenizer)
    request = Masked(("I am [SEP] ", ""), (("he",),))
    before = it.encode(request)
    tokenizer("you [MASK]")
    assert it.encode(request) == before
    assert before.rows[0].ids.count(tokenizer.sep_token_id) == 1


def test_normal_added_tokens_stay_what_they_are() -> None:
    tokenizer = new_tokenizer("wordpiece")
    tokenizer.add_tokens(["nonbinary"])
    (row,) = Encoder(encoder("wordpiece").source, tokenizer).encode(Masked(("the nonbinary ", ""), (("he",),))).rows
    assert tokenizer.convert_tokens_to_ids("nonbinary") in row.ids


@pytest.mark.parametrize(
    ("name", "template", "text"),
    [
        ("<|im_start|>", None, False),  # as fine-tuned models add their turns
        ("<｜User｜>", None, False),
        ("[INST]", "[INST] {{ messages[0].content }}", False),
        ("<turn>", "<turn>{{ messages[0].content }}", False),
        ("<b>", "<turn>{{ messages[0].content }}", True),
        ("  ", "{{ messages[0].content }}  ", True),
    ],
)
def test_control_tokens_that_are_not_declared_as_such(name: str, template: str | None, text: bool) -> None:
    tokenizer = new_tokenizer("gpt2")
    plain = tokenizer(f"I am {name} happy")["input_ids"]  # of a tokenizer without the token
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False)])
    tokenizer.chat_template = template
    (row,) = Encoder(encoder("gpt2").source, tokenizer).encode(Continuation(f"I am {name} happy", (" he",))).rows
    assert (tokenizer.convert_tokens_to_ids(name) in row.ids) == text
    assert (list(row.ids) == plain) != text


def test_the_programs_own_sentinel_and_end_are_control_tokens_and_a_texts_are_not() -> None:
    kind = "t5"
    request = Continuation("<extra_id_0>", (" man", " woman"), "to_end", encoder="the <extra_id_0>")
    encoded = encode(kind, request)
    assert spelled(kind, Row("seq2seq", encoded.rows[0].encoder_ids or (), ())) == "▁the ▁ <extra_id_0> </s>"
    assert [spelled(kind, row) for row in encoded.rows] == ["<pad> <extra_id_0> ▁man", "<pad> <extra_id_0> ▁woman"]
    assert [read(kind, row) for row in encoded.rows] == [[(1, "▁man"), (2, "</s>")], [(1, "▁woman"), (2, "</s>")]]
    for text in ("the <extra_id_0> said", "the </s> said"):
        with pytest.raises(InputError, match="the text contains"):
            encode(kind, Continuation("<extra_id_0>", (" man",), encoder=f"{text} <extra_id_0>"))
        with pytest.raises(InputError, match="the text contains"):
            encode(kind, Continuation("<extra_id_0>", (f" {text}",), encoder="the <extra_id_0>"))


CHAT = (
    "{% for m in messages %}<|endoftext|>{{ m.role }}\n{{ m.content }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|endoftext|>assistant\n{% endif %}"
)


def test_a_chat_templates_control_tokens_are_read_and_a_texts_are_not() -> None:
    tokenizer = new_tokenizer("gpt2")
    tokenizer.chat_template = CHAT
    source = replace(encoder("gpt2").source, chat_template="user")
    opening = tokenizer("<|endoftext|>user\n<|endoftext|>\n<|endoftext|>assistant\n")["input_ids"]
    end = tokenizer.eos_token_id
    assert opening.count(end) == 3
    for text in ('"I cry.",', '"I <|endoftext|> cry.",'):
        (row,) = Encoder(source, tokenizer).encode(Continuation(text, (" he",))).rows
        assert list(row.ids) == [*opening, *tokenizer(text, split_special_tokens=True)["input_ids"]]
        assert row.ids.count(end) == 3


# --- words and their tokens ---


@pytest.mark.parametrize(
    ("kind", "request_", "words"),
    [
        ("wordpiece-lower", Masked(("", " said"), (("He",), ("he",))), ("He", "he")),
        ("wordpiece-lower", Masked(("the ", " said"), (("he",), ("she",), ("hé",)), "joint"), ("he", "hé")),
        ("wordpiece-lower", Masked(("", " said ", ""), (("He", "the"), ("HE", "The")), "single"), ("He … the", "HE … The")),
        ("wordpiece-lower", Masked(("", " said"), (("He",), ("he",)), "positional"), ("He", "he")),
        ("wordpiece-lower", Continuation("the", (" Man", " man")), ("Man", "man")),
    ],
)
def test_words_that_become_equal_are_refused_by_both_names(kind: str, request_: Request, words: tuple[str, str]) -> None:
    with pytest.raises(InputError) as error:
        encode(kind, request_)
    assert all(repr(word) in str(error.value) for word in words)
    assert "the same tokens" in str(error.value)


def test_words_given_twice_are_not_words_that_become_equal() -> None:
    encoded = encode("wordpiece", Masked(("", " said"), (("He",), ("He",))))
    assert encoded.candidates[0].tokens == encoded.candidates[1].tokens
    assert len(encode("llama", Continuation("the", (" man", " man "))).candidates) == 2


def test_a_boundary_piece_of_its_own_is_masked_and_read_with_its_word() -> None:
    encoded = encode("xlmr", Masked(("the ", " said"), (("xy",), ("man",)), "joint"))
    assert [spelled("xlmr", row) for row in encoded.rows] == [
        "<s> ▁the <mask> <mask> <mask> ▁said </s>",
        "<s> ▁the <mask> ▁said </s>",
    ]
    assert [tokens("xlmr", c.tokens) for c in encoded.candidates] == [["▁", "x", "y"], ["▁man"]]
    glued = encode("xlmr", Masked(('the "', '" said'), (("xy",),), "joint"))
    assert tokens("xlmr", glued.candidates[0].tokens) == ["x", "y"]
    double = encode("xlmr", Masked(("the  ", " said"), (("he",),), "joint"))
    assert spelled("xlmr", double.rows[0]) == "<s> ▁the ▁ <mask> ▁said </s>"


@pytest.fixture(scope="module")
def xlmr(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """XLM-R's tokenizer with SentencePiece's own normalizer, which removes control characters, made from a small text."""
    folder = tmp_path_factory.mktemp("xlmr")
    text = [" ".join(WORDS[(at * step) % len(WORDS)] for at in range(9)) for step in range(1, 200)]
    (folder / "text.txt").write_text("\n".join(text))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "sentencepiece.bpe"), vocab_size=90, hard_vocab_limit=False,
        minloglevel=2, num_threads=1,
    )  # fmt: skip
    return XLMRobertaTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    "front", ["\x07\x07 ", "\x07\x07\x07'", "\x07 the\x07\x07 ", "\x07\x07\x07 he ", "\x07\x07\x07\x07 he said "]
)
@pytest.mark.parametrize("method", ["sequential", "single"])
def test_control_characters_in_front_move_no_mask(xlmr: Any, front: str, method: Any) -> None:
    """The tokenizer removes them, and its offsets of what follows are wrong: the rows must be those of the clean text."""
    it = Encoder(encoder("xlmr").source, xlmr)
    found = it.text.tokens(f"{front}he said he")
    clean = front.replace("\x07", "")
    where = (len(front), len(front) + 2)
    place = it.text.tokens(f"{clean}he said he").span(len(clean), len(clean) + 2)
    assert found.ids == it.text.tokens(f"{clean}he said he").ids
    assert found.span(*where) != place
    rows = [it.encode(Masked((before, " said he"), (("he",), ("she",)), method)).rows for before in (front, clean)]
    assert rows[0] == rows[1]
    assert rows[1][0].ids[place[0]] == xlmr.mask_token_id


class Shifted:
    """A `tokenizers.Tokenizer` whose offsets lie one character too far to the right, as if something had been put in front."""

    def __init__(self, backend: Any, *, by: int) -> None:
        self._backend, self._by = backend, by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode(self, *args: Any, **options: Any) -> Any:
        found = self._backend.encode(*args, **options)
        offsets = [(a + self._by, b + self._by) if b else (a, b) for a, b in found.offsets]
        parts = {name: getattr(found, name) for name in ("ids", "type_ids", "special_tokens_mask", "word_ids")}
        return SimpleNamespace(**parts, offsets=offsets)


@pytest.mark.parametrize("kind", MASKED_KINDS)
@pytest.mark.parametrize("by", [-4, -3, 4, 5])
def test_wrong_offsets_never_pass(kind: str, by: int) -> None:
    it = Encoder(encoder(kind).source, new_tokenizer(kind))
    it.text._backend = Shifted(it.text._backend, by=by)
    with pytest.raises(InputError, match=r"can't be located|no token"):
        it.encode(Masked(("the man said that ", " was not happy"), (("she",),)))


def test_an_unknown_character_may_not_take_a_candidate_with_it() -> None:
    with pytest.raises(InputError, match="unknown character"):  # жx is one [UNK], which the context ж has too
        encode("wordpiece", Continuation("the ж", ("man said",)))


odd = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\x00\x07\u200b\u00ad\ufb01\u0301\ufeff\u2028½İßﷺ")),
    max_size=12,
)


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece-lower", "roberta", "xlmr", "gpt2", "llama"])
@given(before=odd, gap=gaps, word=st.sampled_from(["he", "She", "woman", "x-ray", "do not", "Émile", "ﬁx"]), after=odd)
@example(before="\x07", gap=" ", word="she", after="\x07")
@example(before="Ω", gap="'", word="do not", after="n't")
def test_no_false_alarm_and_the_tokens_spell_the_word(kind: str, before: str, gap: str, word: str, after: str) -> None:
    """Whatever stands around a word, its tokens spell it; it is refused only for what it holds itself."""
    context = before + gap.rstrip()
    space = gap[len(gap.rstrip()) :]
    causal = kind in CAUSAL_KINDS
    request: Request = Continuation(context, (f"{space}{word}",)) if causal else Masked((before + gap, f" {after}"), ((word,),))
    refused = ""
    try:
        encoded = encode(kind, request, context=10_000)
    except InputError as error:
        refused = str(error)
    if refused:
        assert "unknown" in refused
        assert tiny_tokenizer(kind).unk_token_id in tiny_tokenizer(kind)(before + gap + word)["input_ids"]
        return
    tokenizer = tiny_tokenizer(kind)
    written = tokenizer.decode(list(encoded.candidates[0].tokens), clean_up_tokenization_spaces=False)
    if tokenizer.unk_token is None or tokenizer.unk_token not in written:
        normal = tokenizer.backend_tokenizer.normalizer
        wanted = normal.normalize_str(word) if normal else word
        assert _letters(wanted) in _letters(written)


def _letters(text: str) -> str:
    return re.sub(r"\s|▁|##", "", text)


# --- what the tokenizer doesn't know ---


def test_unknown_tokens_of_a_text_are_counted() -> None:
    masked = encode("wordpiece", Masked(("жена the ", " is я."), (("he",), ("she",))))
    assert masked.coverage == Coverage(tokens=6, unknown=2)  # [UNK] the he is [UNK] .
    assert encode("wordpiece", Pair("жена cry", "you said")).coverage == Coverage(tokens=4, unknown=1)
    assert encode("wordpiece", SharedTokens("я cry", "я cry not")).coverage == Coverage(tokens=5, unknown=2)
    assert encode("llama", Continuation("the я", (" man", " woman я"))).coverage == Coverage(tokens=7, unknown=2)
    t5 = encode("t5", Continuation("<extra_id_0>", (" man",), encoder="the я <extra_id_0>"))
    assert t5.coverage == Coverage(tokens=5, unknown=1)  # ▁the ▁ <unk> ▁ [sentinel] and ▁man


def test_bytes_of_letters_that_a_byte_level_tokenizer_has_not_are_counted() -> None:
    encoded = encode("gpt2", Continuation("жена", (" he",)))
    assert encoded.coverage == Coverage(tokens=2 * len("жена") + 1, byte_pieces=2 * len("жена"))


def test_tokens_of_whole_letters_of_a_byte_level_tokenizer_are_no_bytes() -> None:
    """é, ж, the space in front of ж and the first two bytes of € are tokens; ü isn't, nor is an added one a byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, "Ã©", "Ð¶", "ĠÐ¶", "âĤ"]
    merges = [("Ã", "©"), ("Ð", "¶"), ("Ġ", "Ð¶"), ("â", "Ĥ")]
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken("☃☃")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")
    text = TextTokenizer(encoder("gpt2").source, tokenizer)
    found = {word: text.coverage(text.ids(word)) for word in ("aé", "ж ж", "ü", "€", "☃☃")}
    assert found == {
        "aé": Coverage(2),
        "ж ж": Coverage(2),
        "ü": Coverage(2, byte_pieces=2),
        "€": Coverage(2, byte_pieces=2),
        "☃☃": Coverage(1),
    }


def test_byte_pieces_are_counted() -> None:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "▁he", "▁"]
    backend = Tokenizer(models.Unigram([(piece, -float(n)) for n, piece in enumerate(pieces)], unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    encoded = Encoder(encoder("llama").source, tokenizer).encode(Continuation("the я", (" he",)))
    assert encoded.coverage == Coverage(tokens=5, byte_pieces=2)  # ▁the ▁ <0xD1> <0x8F> ▁he


# --- refusals ---


@pytest.mark.parametrize(
    ("kind", "request_", "reason"),
    [
        ("wordpiece", Masked(("", " said"), (("",),)), "empty candidate"),
        ("wordpiece", Masked(("", " said"), ((" ",),)), "empty candidate"),
        ("wordpiece", Masked(("the ", " said"), (("жена",),)), "unknown"),
        ("xlmr", Masked(("the ", " said"), (("жена",),)), "unknown"),
        ("wordpiece", Masked(("the ", " said"), (("\x00\u200b\x00",),)), "no token"),
        ("wordpiece", Masked(("the ", " said"), (("he", "she"),)), "1 slots"),
        ("wordpiece", Masked(("the ", " said"), (("he",), ("he",)), "positional"), "same tokens"),
        ("wordpiece", Masked(("the ", " said"), (("he",),), "positional"), "two candidates"),
        ("wordpiece", Masked(("the " * 130, " said"), (("he",),)), "134 tokens are more than the model's context of 128"),
        ("gpt2", Masked(("the ", " said"), (("he",),)), "no mask token"),
        ("gpt2", Continuation("the", ("",)), "empty candidate"),
        ("gpt2", Continuation("the " * 200, (" man",)), "more than the model's context"),
        ("gpt2", Continuation("the", (" man",), "start_text"), "context must be empty"),
        ("llama", Continuation("the", (" жена",)), "unknown"),
        ("llama", Continuation("the", (" жена",), "last_token"), "unknown"),
        ("t5", Continuation("<extra_id_0>", (" man",), encoder=" "), "empty encoder text"),
        ("t5", Continuation("<extra_id_0>", (" man",), "last_token", encoder="the"), "no last_token"),
        ("wordpiece", Pair("", "the"), "empty first text"),
        ("wordpiece", Pair("the", " "), "empty second text"),
        ("wordpiece", SharedTokens(" ", "the"), "empty first text"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_reason(kind: str, request_: Request, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        encode(kind, request_)


def test_a_sentence_may_hold_unknown_characters_that_its_word_may_not() -> None:
    sentence = encode("llama", Continuation("the", (" man said жена to you",)))
    assert "<unk>" in tokens("llama", sentence.rows[0].ids)
    masked = encode("wordpiece", Masked(("жена ", " said"), (("he",),)))
    assert {"[UNK]", "[MASK]"} <= set(tokens("wordpiece", masked.rows[0].ids))
    assert [token for _, token in read("wordpiece", masked.rows[0])] == ["he"]


def test_a_model_is_not_asked_what_it_has_no_head_for() -> None:
    source = ModelSource("tiny", Path("."), "none", frozenset({"causal"}), PreTrainedConfig(), 128)
    with pytest.raises(InputError, match="needs a masked head, the model has causal"):
        Encoder(source, tiny_tokenizer("gpt2")).encode(Masked(("", " said"), (("He",),)))


def test_tokens_without_an_embedding_are_refused_where_they_are_used() -> None:
    """Tokens were added to the tokenizer and the model wasn't resized; a padded vocabulary is no fault."""
    tokenizer = new_tokenizer("wordpiece")
    known = len(tokenizer)
    tokenizer.add_tokens(["brandnew"])
    refused = f"token 'brandnew' \\(id {known}\\) is beyond the {known} tokens that model tiny has"
    requests: list[Request] = [
        Masked(("the brandnew ", " said"), (("he",),)),
        Masked(("the ", " said"), (("he",), ("brandnew",))),
        Pair("the man", "brandnew"),
        Continuation("the brandnew", (" he",)),
        Continuation("the", ("brandnew",)),
    ]
    heads = frozenset({"masked", "causal", "pair"})
    for size, wrong in ((known, True), (known + 1, False), (known + 63, False)):
        source = ModelSource("tiny", Path("."), "none", heads, PreTrainedConfig(vocab_size=size), 128)
        one = Encoder(source, tokenizer)
        assert one.encode(Masked(("the ", " said"), (("he",),))).rows  # what doesn't use it is asked
        for request in requests:
            if wrong:
                with pytest.raises(InputError, match=refused):
                    one.encode(request)
            else:
                assert one.encode(request).rows


def test_an_encoder_and_its_decoder_may_know_different_tokens() -> None:
    tokenizer = new_tokenizer("marian")
    man, woman = tokenizer.convert_tokens_to_ids(["▁man", "▁woman"])
    for sizes, fine in (((woman + 1, man + 1), True), ((woman, man + 1), False), ((woman + 1, man), False)):
        start: dict[str, Any] = {"decoder_start_token_id": 0, "pad_token_id": 0}
        config = MarianConfig(vocab_size=sizes[0], decoder_vocab_size=sizes[1], **start)
        one = Encoder(ModelSource("tiny", Path("."), "none", frozenset({"seq2seq"}), config, 128), tokenizer)
        request = Continuation("", ("man",), encoder="woman")
        if fine:
            assert one.encode(request).rows
        else:
            with pytest.raises(InputError, match="▁man" if sizes[1] == man else "▁woman"):
                one.encode(request)


def test_missing_chat_template_is_said_at_once() -> None:
    source = ModelSource("tiny", Path("."), "none", frozenset({"causal"}), PreTrainedConfig(), 128, chat_template="user")
    with pytest.raises(InputError, match="no chat template"):
        Encoder(source, tiny_tokenizer("gpt2"))
