"""Answers in words: the transformers engine's batches against plain `generate`, one chat at a time; chats as rows."""

import functools
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import CHAT_TEMPLATE, drawn_wide, tiny_longrope, tiny_model, tiny_talker, tiny_tokenizer, with_template

from evaluator_serving.answers import assemble
from evaluator_serving.chats import Chat, Turn
from evaluator_serving.chunks import chunks, make_chunk
from evaluator_serving.encoding import Encoder, encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.decoding import decoding_record
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import check_fit
from evaluator_serving.requests import Choice, request_id
from evaluator_serving.rows import TOGETHER, Row
from evaluator_serving.transformers_engine import generation
from evaluator_serving.transformers_engine.beginnings import beginnings
from evaluator_serving.transformers_engine.engine import TransformersEngine

TEXTS = ("I am tired", "the doctor said I am not the boss of my children", "He is strong and she is weak", "I cook")
LENGTH = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """A small llama that talks, in the tokens of its vocabulary."""
    return resolve(str(tiny_talker(tmp_path_factory.mktemp("talker"), max_position_embeddings=128)))


@pytest.fixture(scope="module")
def encoder(source: ModelSource) -> Encoder:
    return encoder_for(source)


@pytest.fixture(scope="module")
def engine(source: ModelSource, encoder: Encoder) -> Iterator[TransformersEngine]:
    made = TransformersEngine(source, EngineOptions(), rows(encoder))
    yield made
    made.close()


def chat(text: str, **how: Any) -> Chat:
    return Chat((Turn("user", text),), **{"max_tokens": LENGTH, **how})


def rows(encoder: Encoder, **how: Any) -> list[Row]:
    return [row for text in TEXTS for row in encoder.encode(chat(text, **how)).rows]


def plainly(source: ModelSource, text: str) -> list[int]:
    """transformers' own greedy `generate` of one chat alone, without the end token."""
    tokens = transformers.AutoTokenizer.from_pretrained(source.path)
    model = transformers.AutoModelForCausalLM.from_pretrained(source.path).eval()
    turns = [{"role": "user", "content": text}]
    ids = tokens.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = model.generate(**ids, max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)[0, ids["input_ids"].shape[1] :]
    said = made.tolist()
    return said[: said.index(tokens.eos_token_id)] if tokens.eos_token_id in said else said


def test_batches_say_what_plain_generate_says(source: ModelSource, encoder: Encoder, engine: TransformersEngine) -> None:
    replies = engine.generate(rows(encoder))
    expected = [plainly(source, text) for text in TEXTS]
    assert [list(reply.tokens) for (reply,) in replies] == expected
    assert len({len(row.ids) for row in rows(encoder)}) == len(TEXTS), "prompts of different length"
    for row, (reply,), ids in zip(rows(encoder), replies, expected, strict=True):
        assert reply.text == transformers.AutoTokenizer.from_pretrained(source.path).decode(ids, skip_special_tokens=True)
        assert reply.finish == ("length" if len(ids) == LENGTH else "stop")
        assert (reply.prompt_tokens, reply.answer_tokens) == (len(row.ids), min(LENGTH, len(ids) + 1))


def test_an_answer_that_gets_past_longropes_limit_takes_no_other_along(encoder: Encoder, tmp_path: Path) -> None:
    """Prompts of 23 to 32 tokens and answers of 12: they get there at different steps, where they do."""
    made = resolve(str(with_template(tiny_longrope(tmp_path, 35, tokenizer="llama-bytes"))))
    asked = rows(encoder)
    assert sorted(len(row.ids) for row in asked) == [23, 24, 28, 32]
    replies = TransformersEngine(made, EngineOptions(dtype="float64"), asked).generate(asked)
    assert [list(reply.tokens) for (reply,) in replies] == [plainly(made, text) for text in TEXTS]


def test_answers_of_a_model_that_counts_places_get_no_padding(encoder: Encoder, tmp_path: Path) -> None:
    """Llama 4's temperature: with padding a prompt of 23 tokens would get to place 40 when it has 35."""
    tokens = tiny_tokenizer("llama-bytes")
    tokens.chat_template = CHAT_TEMPLATE
    config = transformers.Llama4TextConfig(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=48,
        intermediate_size_mlp=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=1,
        no_rope_layers=[1, 0],
        attn_temperature_tuning=True,
        attn_scale=2.0,
        floor_scale=40,
        **{f"{role}_token_id": getattr(tokens, f"{role}_token_id") for role in ("pad", "bos", "eos")},
    )
    drawn_wide(transformers.Llama4ForCausalLM(config)).save_pretrained(tmp_path)
    tokens.save_pretrained(tmp_path)
    made, asked = resolve(str(tmp_path)), rows(encoder)
    engine = TransformersEngine(made, EngineOptions(), asked)
    assert [list(reply.tokens) for (reply,) in engine.generate(asked)] == [plainly(made, text) for text in TEXTS]
    assert engine._speaking()._pads is False


@pytest.mark.parametrize("remembers", [True, False])
def test_answers_that_have_ended_leave_the_batch(
    source: ModelSource, encoder: Encoder, engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    """The others say what they say alone, drawn or not, whether or not what was computed for them can be told apart.

    Every token that greedy answers begin with, say, ends one: at their second token about half of the answers go on.
    """
    asked = [*rows(encoder), *rows(encoder, temperature=1.5, seed=3), *rows(encoder, temperature=1.5, seed=4)]
    made = TransformersEngine(source, EngineOptions(), asked)
    speaking = made._speaking()
    said = [reply.tokens for (reply,) in engine.generate(asked)]
    ends = tuple({tokens[1] for tokens in said[::2] if len(tokens) > 1})
    monkeypatch.setattr(speaking, "_speech", replace(speaking._speech, ends=(*speaking._speech.ends, *ends)))
    expected = [next((t[:at] for at, one in enumerate(t) if one in ends), t) for t in said]
    lengths: list[int] = []
    forward = speaking.model.forward

    @functools.wraps(forward)  # transformers looks at what it takes
    def counted(*arguments: Any, **named: Any) -> Any:
        lengths.append(named["input_ids"].shape[0])
        return forward(*arguments, **named)

    monkeypatch.setattr(generation, "beginnings", lambda prompts: None)
    if not remembers:
        monkeypatch.setattr(generation, "_LAYERS", ())
    monkeypatch.setattr(speaking.model, "forward", counted)
    assert [reply.tokens for (reply,) in made.generate(asked)] == expected
    sizes = lengths[4:]  # after the probes
    assert sizes[0] == len(asked), "one batch"
    assert min(sizes) <= len(asked) / 2, "which shrinks"
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) <= LENGTH + (0 if remembers else 4), "a pass a token"
    made.close()


BEGIN = "the doctor said I am not the boss of my children and he is strong and she is weak and I cook and "
ENDS = ("I work", "she is not happy", "he is the nurse", "I feel tired and the man is not my friend", "you")


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_what_prompts_begin_with_is_computed_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever follows, of one length or not, beside a prompt that shares nothing; and not where it makes a difference."""
    source = resolve(str(with_template(tiny_model(kind, tmp_path / kind, tokenizer="llama-bytes"))))
    encoder, texts = encoder_for(source), [*(BEGIN + end for end in ENDS), "I am tired " * 6]
    asked = [row for text in texts for row in encoder.encode(chat(text)).rows]
    made = TransformersEngine(source, EngineOptions(), asked)
    speaking = made._speaking()
    computed: list[int] = []
    forward = speaking.model.forward

    @functools.wraps(forward)
    def counted(*arguments: Any, **named: Any) -> Any:
        computed.append(named["input_ids"].numel())
        return forward(*arguments, **named)

    monkeypatch.setattr(speaking.model, "forward", counted)
    expected = [plainly(source, text) for text in texts]
    for tolerance, share in ((1e-4, True), (-1.0, False)):
        speaking._pads, speaking._shares = True, None
        monkeypatch.setattr(speaking, "_tolerance", tolerance)
        computed.clear()
        assert [list(reply.tokens) for (reply,) in made.generate(asked)] == expected
        assert speaking._shares is share
        probes = (
            8 if share else 4
        )  # two prompts in two parts, and each alone; the same with as many tokens more as answers have
        begun = computed[probes:][: 1 + share]
        whole = len(asked) * max(len(row.ids) for row in asked)
        assert (sum(begun) < 0.8 * whole) == share
    made.close()


def test_groups_of_beginnings() -> None:
    common, other = tuple(range(20)), tuple(range(50, 70))
    found = beginnings([(*common, 1), (*other, 2, 3), (*common, 4, 5), (*other, 6), (*common, 1)])
    assert found is not None
    assert set(found.texts) == {common, other}
    assert [found.texts[of] for of in found.of] == [common, other, common, other, common]
    assert beginnings([(*common, 1), (*other, 1)]) is None, "nothing in common"
    assert beginnings([common]) is None
    alike = beginnings([common] * 3)
    assert alike is not None
    assert alike.texts == (common[:-1],), "something follows"
    assert beginnings([(*common[:9], *other), (*common[:9], *other[5:], *other)]) is None, "less than half of them"


def test_prompts_of_one_length_where_the_model_does_not_bear_padding(
    encoder: Encoder, engine: TransformersEngine, source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = TransformersEngine(source, EngineOptions(), rows(encoder))
    monkeypatch.setattr(apart._speaking(), "_tolerance", -1.0)
    seen: list[int] = []
    inputs = apart._speaking()._inputs

    def count(ids: Any) -> Any:
        seen.append(len({len(one) for one in ids}))
        return inputs(ids)

    monkeypatch.setattr(apart._speaking(), "_inputs", count)
    assert apart.generate(rows(encoder)) == engine.generate(rows(encoder))
    assert set(seen[2:]) == {1}, "after the two probes"


def test_draws_depend_on_the_seed_alone(encoder: Encoder, engine: TransformersEngine) -> None:
    """Whoever shares the batch, and however many answers are wanted."""
    first = chat(TEXTS[0], temperature=1.3, answers=3, seed=5)
    (row,) = encoder.encode(first).rows
    alone = engine.generate([row])[0]
    among = engine.generate([*rows(encoder, temperature=0.7), row, *rows(encoder)])[len(TEXTS)]
    assert alone == among
    assert len({reply.tokens for reply in alone}) == 3
    later = engine.generate(list(encoder.encode(replace(first, answers=1, seed=6)).rows))[0]
    assert later == (alone[1],)


def test_draws_follow_the_distribution(encoder: Encoder, engine: TransformersEngine, source: ModelSource) -> None:
    """First tokens of 600 answers against the model's own probabilities at that temperature."""
    (row,) = encoder.encode(chat(TEXTS[0], temperature=0.8, answers=600, max_tokens=1)).rows
    said = engine.generate([row])[0]
    model = transformers.AutoModelForCausalLM.from_pretrained(source.path).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([row.ids])).logits[0, -1].double()
    expected = torch.softmax(logits / 0.8, dim=-1).numpy()
    counts = np.bincount([(*reply.tokens, 2)[0] for reply in said], minlength=len(expected))
    likely = expected > 0.02
    assert likely.sum() > 3
    spread = np.sqrt(expected * (1 - expected) / 600)
    assert (np.abs(counts / 600 - expected)[likely] < 4.5 * spread[likely]).all()


def test_choices_are_read_behind_the_chat(source: ModelSource, encoder: Encoder, engine: TransformersEngine) -> None:
    """log P of given answers, teacher-forced by hand."""
    request = Choice((Turn("system", "You are strong"), Turn("user", TEXTS[1])), (" he", " the woman", "(a)"))
    chunk = make_chunk([encoder.encode(request)])
    (answer,) = assemble(chunk, engine.score(chunk.merged.rows))
    tokens = transformers.AutoTokenizer.from_pretrained(source.path)
    model = transformers.AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float64).eval()
    turns = [{"role": turn.role, "content": turn.content} for turn in request.turns]
    prompt = tokens.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    before = tokens(prompt, add_special_tokens=False)["input_ids"]
    for candidate, ids, found in zip(request.candidates, answer.tokens, answer.logprobs, strict=True):
        whole = tokens(prompt + candidate, add_special_tokens=False)["input_ids"]
        assert whole[: len(before)] == before
        assert list(ids) == whole[len(before) :]
        with torch.inference_mode():
            log_p = torch.log_softmax(model(torch.tensor([whole])).logits[0], dim=-1)
        expected = [float(log_p[at - 1, whole[at]]) for at in range(len(before), len(whole))]
        assert found == pytest.approx(expected, abs=1e-4)


def test_a_chat_is_written_once_for_all_its_candidates(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, letters = encoder_for(source), ("(a)", "(b)", "(c)")
    encoder.encode(Choice((Turn("user", TEXTS[0]),), letters))  # the first one also asks what control tokens a template has
    written: list[Any] = []
    tokens = transformers.PreTrainedTokenizerBase
    plain = tokens.apply_chat_template

    def write(self: Any, conversation: Any, *arguments: Any, **options: Any) -> Any:
        written.append(conversation)
        return plain(self, conversation, *arguments, **options)

    monkeypatch.setattr(tokens, "apply_chat_template", write)
    encoder.encode(Choice((Turn("user", TEXTS[1]),), letters))
    assert [conversation[0]["content"] for conversation in written] == [TEXTS[1]]


def test_text_of_a_turn_is_text(encoder: Encoder) -> None:
    with pytest.raises(InputError, match=r"'</s>'.*control token"):
        encoder.encode(chat("I am</s><s>assistant : strong"))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system turn') }}", "no chat template for a system turn and a user turn"),
        ("{{ messages[-1].content }}", "omits the system turn"),
    ],
)
def test_templates_that_can_not_write_the_turns(source: ModelSource, template: str, message: str) -> None:
    tokens = transformers.AutoTokenizer.from_pretrained(source.path)
    tokens.chat_template = template
    with pytest.raises(InputError, match=message):
        Encoder(source, tokens).encode(Chat((Turn("system", "Be kind"), Turn("user", "I cook"))))


def test_a_chat_longer_than_the_context(encoder: Encoder) -> None:
    with pytest.raises(InputError, match="more than the model's context of 128"):
        encoder.encode(chat("I cook", max_tokens=128))


def test_engines_that_do_not_speak_say_so(source: ModelSource) -> None:
    with pytest.raises(InputError, match=r"need a chat head, and the onnx engine scores .*: use --engine transformers"):
        check_fit("onnx", source, EngineOptions(), frozenset({"chat"}))


def test_a_chat_of_nan(source: ModelSource, encoder: Encoder) -> None:
    broken = TransformersEngine(source, EngineOptions(), rows(encoder))
    with torch.no_grad():
        broken._speaking().model.lm_head.weight[7] = float("nan")
    with pytest.raises(EngineError, match="NaN") as caught:
        broken.generate(rows(encoder)[:1])
    assert caught.value.row == 0


def test_chats_are_cut_into_chunks_by_what_they_may_take(encoder: Encoder) -> None:
    items = [encoder.encode(chat(text, answers=2)) for text in TEXTS]
    assert len({request_id(chat(text, answers=2)) for text in TEXTS}) == len(TEXTS)
    whole = sum(row.length for item in items for row in item.rows)
    cut = chunks(items, tokens=whole // (2 * TOGETHER))
    assert [len(chunk.encoded) for chunk in cut] == [2, 2]
    served = [replace(item, rows=tuple(replace(row, ids=()) for row in item.rows)) for item in items]
    assert [len(chunk.encoded) for chunk in chunks(served, tokens=2 * 2 * LENGTH)] == [2, 2]
    assert sum(chunk.tokens for chunk in cut) == sum(len(row.ids) + 2 * LENGTH for item in items for row in item.rows)


@pytest.mark.parametrize("wrong", [{"answers": 0}, {"max_tokens": 0}, {"temperature": -1.0}])
def test_chats_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a chat wants"):
        chat("I cook", **wrong)
    with pytest.raises(ValueError, match="ends with the user's turn"):
        Chat((Turn("assistant", "no"),))


def test_chats_that_begin_alike_are_in_one_chunk(encoder: Encoder) -> None:
    """Twelve chats of one length about three sentences, in the order of their hashes: cut by sentence all the same."""
    sentences = ("I am tired", "I am strong", "I am weak")
    items = [encoder.encode(chat(f"{text} {a} {b}")) for text in sentences for a in ("he", "she") for b in ("he", "she")]
    items.sort(key=lambda item: item.request)
    (weight,) = {row.weight for item in items for row in item.rows}
    cut = chunks(items, tokens=4 * weight)
    asked = [{row.chat.turns[0].content[:9] for item in chunk.encoded for row in item.rows if row.chat} for chunk in cut]
    assert sorted(map(list, asked)) == [["I am stro"], ["I am tire"], ["I am weak"]]


# --- what a model's generation_config.json sets ------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "suppress": {"suppress_tokens": list(range(3, 80)), "begin_suppress_tokens": list(range(80, 160))},
    "bad words": {"bad_words_ids": [[i] for i in range(3, 80)], "sequence_bias": [[[200], 50.0]]},
    "ends": {"forced_eos_token_id": 2, "exponential_decay_length_penalty": [1, 9.0], "max_length": 20, "max_time": 1e-9},
    "repeats": {"repetition_penalty": 3.0, "no_repeat_ngram_size": 1, "encoder_no_repeat_ngram_size": 1},
    "ways": {"num_beams": 3, "do_sample": True, "temperature": 1.9, "min_new_tokens": 9, "guidance_scale": 3.0},
}


def by_hand(source: ModelSource, text: str) -> list[int]:
    """The most probable token each time, in float64, without `generate`."""
    tokens = transformers.AutoTokenizer.from_pretrained(source.path)
    model = transformers.AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float64).eval()
    turns = [{"role": "user", "content": text}]
    ids = list(tokens.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"])
    said: list[int] = []
    with torch.inference_mode():
        while len(said) < LENGTH:
            new = int(model(input_ids=torch.tensor([ids + said])).logits[0, -1].argmax())
            if new == tokens.eos_token_id:
                break
            said.append(new)
    return said


def with_settings(source: ModelSource, folder: Path, settings: dict[str, Any]) -> ModelSource:
    shutil.copytree(source.path, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, **settings}))
    return resolve(str(folder))


def spoken(source: ModelSource, extra: dict[str, str] | None = None, **how: Any) -> list[tuple[int, ...]]:
    asked = rows(encoder_for(source), **how)
    engine = TransformersEngine(source, EngineOptions(extra=extra or {}), asked)
    try:
        return [reply.tokens for (reply,) in engine.generate(asked)]
    finally:
        engine.close()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_no_setting_of_the_model_shapes_an_answer(source: ModelSource, tmp_path: Path, settings: dict[str, Any]) -> None:
    made = with_settings(source, tmp_path / "m", settings)
    assert spoken(made) == [tuple(by_hand(source, text)) for text in TEXTS]


def test_what_the_model_sets_is_applied_where_it_is_asked_for(source: ModelSource, tmp_path: Path) -> None:
    settings = {"repetition_penalty": 1.7, "suppress_tokens": list(range(3, 40)), "top_k": 1}
    made = with_settings(source, tmp_path / "m", settings)
    found = spoken(made, {"generation_config": "model"})
    plain = [tuple(plainly(made, text)) for text in TEXTS]
    assert found == plain != [tuple(by_hand(source, text)) for text in TEXTS]
    assert spoken(made, {"generation_config": "model"}, temperature=1.5) == plain, "of one token, draws are the likeliest"
    assert decoding_record(made, "transformers", {"generation_config": "model"}) == {"applied": settings}
    assert decoding_record(made, "vllm", {}) == {"ignored": settings}
    assert decoding_record(source, "transformers", {}) == {}


@pytest.mark.parametrize("wrong", [{"eos_token_id": "</s>"}, {"compile_config": {"fullgraph": False}}])
def test_settings_that_transformers_does_not_take(source: ModelSource, tmp_path: Path, wrong: dict[str, Any]) -> None:
    made = with_settings(source, tmp_path / "m", wrong)
    with pytest.raises(InputError, match=r"m: its generation_config.json can't be used \(.*: correct or remove it"):
        decoding_record(made, "transformers", {})
