"""Thoughts: what is read of a reply, by hand; and tags that are control tokens or that the chat template writes."""

from pathlib import Path

import pytest
import transformers
from tiny_models import CHAT_TEMPLATE, tiny_talker

from evaluator_serving.chats import Chat, Turn
from evaluator_serving.encoding import encoder_for
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.speech import Speech
from evaluator_serving.rows import Row
from evaluator_serving.thoughts import Said, read_replies


def read(text: str, finish: str = "stop", thought: str = "") -> Said:
    (said,) = read_replies([(text, finish, thought)])
    return Said(said.answer.strip().strip("«»"), said.thought, said.cut)


@pytest.mark.parametrize(
    "text",
    [
        "<think>\n(a) or (c)?\n</think>\n\n(b)",
        "(a) or (c)?</think>(b)",
        "<Thinking>(a)</THINKING> (b)",
        "< think >(a)</ think>(b)",
        "<think><think>(a)</think>(c)</think>(b)",
        "<think>(a)</think>Or else: <think>(c)</think>(b)",
        '<think>The tag "</think>" ends this. (a)</think>(b)',
        '<think>Somebody says "(a)"</think>«(b)»',
        "<think>(a)</think>\n(b)</think>\n",
        "<thought>(a)</thought>(b)",
        "<reasoning>(a)</reasoning>\n<answer>(b)</answer>",
        "(b)\n<reasoning>not (a)</reasoning>",
        "<seed:think>(a)</seed:think>(b)",
        "[THINK](a)[/THINK](b)",
        "◁think▷(a)◁/think▷(b)",
        "<|begin_of_thought|>(a)<|end_of_thought|>\n<|begin_of_solution|>(b)<|end_of_solution|>",
        "<|START_THINKING|>(a)<|END_THINKING|><|START_RESPONSE|>(b)<|END_RESPONSE|>",
        "<|channel|>analysis<|message|>(a)<|end|><|start|>assistant<|channel|>final<|message|>(b)",
        "analysisThe user asks. (a)assistantfinal(b)",
        "<|channel>thought\n(a)<channel|>(b)",
        "<longcat_think>(a)</longcat_think>(b)",
        "<think>(a)</think><answer><|begin_of_box|>(b)<|end_of_box|></answer>",
        "<|content_thinking|>(a)<|end_message|><|message_model|><|content_text|>(b)<|end_message|>",
        "to=self<|message|>(a)<|eom|><|start|>assistant to=user<|message|>(b)<|eot|>",
        "<|think|>(a)<|end|><|begin|>assistant<|content|>(b)",
        "<|think_start|>(a)<|think_end|>(b)",
        "<|inner_prefix|>(a)<|inner_suffix|>(b)",
        "<ctrl94>thought\n(a)<ctrl95>(b)",
        "## Thinking\n\n(a)\n\n## Final Response\n\n(b)",
        "Here is my thought process: (a)\n\nHere is my response: (b)",
        "Here are my reasoning steps:\n(a)\n[BEGIN FINAL RESPONSE]\n(b)\n[END FINAL RESPONSE]",
    ],
)
def test_the_answer_is_what_is_said_after_the_thinking(text: str) -> None:
    assert read(text) == Said("(b)", thought=True)


@pytest.mark.parametrize(
    ("text", "finish"),
    [
        ("<think>\nPerhaps (a) fits, let me", "length"),
        ("<think>(a)", "stop"),
        ("<think>(c)</think>Or: <think>(a)", "length"),
        ('<think>The tag "</think>" ends this. (a)', "length"),
        ("[THINK](a)", "length"),
        ("<|channel|>analysis<|message|>(a)", "length"),
        ("<think>(a)</think>\n", "length"),
    ],
)
def test_a_thought_that_was_cut_is_no_answer(text: str, finish: str) -> None:
    assert read(text, finish) == Said("", thought=True, cut=True)


def test_replies_without_thoughts_stay_as_they_are() -> None:
    for text in ("(b)", "I use no `<think>` tags: (b)", "(b) <b>surely</b>", "My analysis: (b)", "<thinker>(b)"):
        assert read(text) == Said(text)
    assert read("<think>\n\n</think>\n\n(b)") == Said("(b)")
    assert read("<think>(a)</think> \n") == Said("", thought=True)
    assert read("", "length") == Said("", cut=True)
    assert read("(b) bec", "length") == Said("(b) bec")


def test_thoughts_in_a_field_of_their_own() -> None:
    assert read("(b)", thought="(a) </think>?") == Said("(b)", thought=True)
    assert read("", "length", thought="(a)") == Said("", thought=True, cut=True)


def test_a_template_at_a_server_opens_every_thought() -> None:
    replies = [("(a)?</think>(b)", "stop", ""), ("Okay, (a)", "length", ""), ("(c)", "stop", "")]
    assert read_replies(replies) == [Said("(b)", thought=True), Said("", thought=True, cut=True), Said("(c)")]


def speech(folder: Path, template: str, special: bool) -> tuple[Speech, Row]:
    """A talker whose tokenizer has [THINK] and [/THINK] as added tokens."""
    made = tiny_talker(folder, template)
    tokens = transformers.AutoTokenizer.from_pretrained(made)
    tokens.add_tokens([transformers.AddedToken(tag, special=special) for tag in ("[THINK]", "[/THINK]")])
    tokens.save_pretrained(made)
    model = transformers.AutoModelForCausalLM.from_pretrained(made)
    model.resize_token_embeddings(len(tokens))
    model.save_pretrained(made)
    source = resolve(str(made))
    (row,) = encoder_for(source).encode(Chat((Turn("user", "I cook"),))).rows
    return Speech.of(source), row


@pytest.mark.parametrize("special", [True, False])
def test_tags_that_are_control_tokens_stay_in_the_text(tmp_path: Path, special: bool) -> None:
    spoken, row = speech(tmp_path, CHAT_TEMPLATE, special)
    ids = [
        i
        for part in ("[THINK]", "he", "[/THINK]", "she")
        for i in spoken.tokenizer(part, add_special_tokens=False)["input_ids"]
    ]
    reply = spoken.reply(row, [*ids, spoken.ends[0]])
    assert read(reply.text, reply.finish) == Said("she", thought=True)


def test_a_thought_that_the_chat_template_opens(tmp_path: Path) -> None:
    spoken, row = speech(tmp_path, CHAT_TEMPLATE.replace("assistant :", "assistant :<think>\\n"), special=True)
    ids = spoken.tokenizer("she", add_special_tokens=False)["input_ids"]
    assert read(spoken.reply(row, ids).text, "length") == Said("", thought=True, cut=True)
