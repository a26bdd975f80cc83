"""Language models as translators: the prompt, plain `generate`, an endpoint that goes wrong, kills, Ray."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from chat_server import ANSWER_TOKENS, PROMPT_TOKENS, ChatServer, Fault
from tiny_models import CHAT_TEMPLATE, tiny_model, tiny_talker

from evaluator.answer_cache import AnswerCache
from evaluator.cli.translate import command as translate_command
from evaluator.tasks import chosen_tasks
from evaluator.tasks.gest_mt import find_translations
from evaluator.translate.base import make_translator
from evaluator.translate.cache import CachedTranslator
from evaluator.translate.folder import read_translations
from evaluator.translate.llm import LLMOptions, LLMTranslator
from evaluator.translate.prompt import TranslationPrompt, default_prompt
from evaluator.translate.provenance import TranslationRecord
from evaluator.translation.translators import Money, open_translator, outcomes
from evaluator.vocabulary import DataSource
from evaluator_serving.budget import Budget, CostError
from evaluator_serving.chats import Chat, Turn
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.openai_engine.costs import Prices
from tests.scoring.made_up import write_data

TEXTS = ["I cook.", "I work with my friends every day.", "I always think quietly."]
PROMPT = """
system = "You speak {language}."
prompt = "Say in {language} : {text}"
[languages]
xx = "Elvish"
[[examples.xx]]
from = "I cook."
to = "Eu."
[[examples.xx]]
from = "I {text}."
to = "Eu {language}."
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_talker(tmp_path_factory.mktemp("talker") / "model")


def test_turns() -> None:
    prompt = TranslationPrompt.parse(PROMPT, "here")
    asked = Turn("user", "Say in Elvish : a {language} {text} b")
    examples = (Turn("user", "Say in Elvish : I cook."), Turn("assistant", "Eu."))
    odd = (Turn("user", "Say in Elvish : I {text}."), Turn("assistant", "Eu {language}."))
    assert prompt.turns("a {language} {text} b", "xx") == (Turn("system", "You speak Elvish."), *examples, *odd, asked)
    assert [turn.content for turn in prompt.turns("a", "sk")] == ["You speak Slovak.", "Say in Slovak : a"]
    assert default_prompt().turns("a", "sk")[-1].content.endswith("\n\na")
    with pytest.raises(InputError, match=r"language 'yy' has no name: give one"):
        prompt.turns("a", "yy")
    assert default_prompt().digest(16) != prompt.digest(16)


def test_all_mistakes_of_a_prompt_are_told() -> None:
    with pytest.raises(
        InputError, match=r"here, line 1: prompt: the prompt must contain \{text\}(?s:.*)line 2: sistem: unknown key"
    ):
        TranslationPrompt.parse('prompt = "a {language}"\nsistem = "b"', "here")
    example = 'prompt = "{text} {language}"\n[[examples.sk]]\nfrom = "a"\ntoo = "b"'
    with pytest.raises(InputError, match=r"examples\.sk\[0\]\.to: missing\n.*line 4: .*too: unknown key: choose from from, to"):
        TranslationPrompt.parse(example, "here")


def test_says_what_plain_generate_says(model: Path) -> None:
    """Each text alone, the most probable token again and again."""
    prompt = default_prompt()
    tokens = transformers.AutoTokenizer.from_pretrained(model)
    plain: Any = transformers.AutoModelForCausalLM.from_pretrained(model).eval()
    expected = []
    for text in TEXTS:
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt.turns(text, "sk")]
        ids = tokens.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)["input_ids"]
        written: list[int] = []
        with torch.inference_mode():
            while len(written) < 16 and tokens.eos_token_id not in written:
                logits = plain(input_ids=torch.cat([ids, torch.tensor([written], dtype=torch.long)], 1)).logits[0, -1]
                written.append(int(logits.argmax()))
        expected.append(tokens.decode(written, skip_special_tokens=True))
    found = LLMTranslator(str(model), LLMOptions(engine="transformers", max_tokens=16)).generate(TEXTS, "sk")
    assert [answer["text"] for answer in found] == expected
    assert len(set(expected)) > 1


def test_what_an_answer_depends_on_is_its_key(model: Path, tmp_path: Path) -> None:
    other = TranslationPrompt.parse(PROMPT, "here")
    ways = (LLMOptions(max_tokens=4), LLMOptions(max_tokens=5), LLMOptions(max_tokens=4, prompt=other))
    keys = [dict(LLMTranslator(str(model), llm_options).parameters) for llm_options in ways]
    assert keys[0] == dict(LLMTranslator(str(model), LLMOptions(max_tokens=4)).parameters)
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == 3


def test_models_that_can_not(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"can't generate text: for an encoder-decoder model"):
        LLMTranslator(str(tiny_model("bert", tmp_path / "masked")))
    with pytest.raises(InputError, match="no option speed"):
        LLMTranslator(str(tiny_talker(tmp_path / "model")), LLMOptions(engine_options=EngineOptions(extra={"speed": "1"})))
    with pytest.raises(InputError, match=r"llm:SPEC"):
        make_translator("llm")
    system = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT_TEMPLATE
    for template, remedy in ((system, r": give a prompt without `system` \(--prompt FILE\)$"), (None, r"\)$")):
        made = LLMTranslator(str(tiny_talker(tmp_path / "model", template)))
        with pytest.raises(InputError, match=r"no chat template for a system turn.*" + remedy):
            made.generate(["I cook."], "sk")


# --- an endpoint ------------------------------------------------------------------------------------------------------------


def served(server: ChatServer, cache: Path, **extra: str) -> CachedTranslator:
    options = EngineOptions(extra={"concurrency": "2", "retries": "1", **extra})
    made = LLMTranslator(server.spec, LLMOptions(engine_options=options), cache.with_suffix(".replies.jsonl"))
    return CachedTranslator(made, AnswerCache(cache))


def test_refused_and_empty_answers_are_counted_again_from_the_cache(tmp_path: Path) -> None:
    odd = {"b": Fault(message={"content": None, "refusal": "No."}), "c": Fault(message={"content": " "})}
    with ChatServer(lambda content, before: odd.get(content[-1])) as server:
        first = served(server, tmp_path / "a.jsonl")
        found = first.translate(["a", "b", "c"], "sk")
        assert found[1:] == ["", ""]
        assert found[0]
        again = served(server, tmp_path / "a.jsonl")
        assert again.translate(["a", "b", "c"], "sk") == found
        assert first.outcomes == again.outcomes == {"translated": 1, "refused": 1, "empty": 1}
        assert set(server.asked.values()) == {1}


def test_thoughts_are_no_part_of_a_translation(tmp_path: Path) -> None:
    messages = {
        "I am tired.": Fault(message={"content": "<think>I'm sorry? Unavený or unavená?</think>\n\nSom unavená."}),
        "I am here.": Fault(message={"content": "Som tu.", "reasoning_content": "Easy."}),
        "I am old.": Fault(message={"content": "<think>Starý or stará?"}, finish="length"),
        "I am sad.": Fault(message={"content": "<think>Smutný?</think>I'm sorry, I can't."}),
    }
    with ChatServer(lambda content, before: next(m for text, m in messages.items() if text in content)) as server:
        cached = served(server, tmp_path / "answers.jsonl")
        for _ in range(2):
            assert cached.translate(list(messages), "sk") == ["Som unavená.", "Som tu.", "", ""]
            assert cached.outcomes == {"translated": 2, "thinking": 1, "refused": 1}
        assert "--max-tokens" in outcomes(cached)
    assert "Easy." in (tmp_path / "answers.jsonl").read_text("utf8")


def test_the_text_that_a_server_refuses_is_named(tmp_path: Path) -> None:
    refused = Fault(400, body={"error": {"message": "too long"}})
    with ChatServer(lambda content, before: refused if content.endswith("b") else None) as server:
        with pytest.raises(EngineError, match=r"^'b': the server at .* refuses the chat: HTTP 400: too long"):
            served(server, tmp_path / "a.jsonl").translate(["a", "b"], "sk")
        served(server, tmp_path / "a.jsonl").translate(["a"], "sk")
        assert sum(server.answered.values()) == 1


def test_another_model_is_asked_for_itself_with_the_same_files(tmp_path: Path) -> None:
    """Even where the first one's answers aren't in the cache yet, but only in the file of single replies."""
    gone = Fault(400, body={"error": {"message": "gone"}})
    for answer in ("one", "two"):
        said = Fault(message={"content": answer})
        with ChatServer(lambda content, before, said=said: said if content.endswith("a") else gone, model=answer) as server:
            made = served(server, tmp_path / "a.jsonl")
            with pytest.raises(EngineError, match="gone"):
                made.translate(["a", "b"], "sk")
            assert made.translate(["a"], "sk") == [answer]
            assert sum(server.answered.values()) == 1


def test_a_limit_without_prices_is_refused(tmp_path: Path) -> None:
    with ChatServer() as server:
        talking: Any = {"dtype": "float32", "device": "auto", "extra": {}, "engine": "auto", "prompt": None, "max_tokens": None}
        with pytest.raises(InputError, match="a limit on the cost needs prices"):
            open_translator(f"llm:{server.spec}", tmp_path / "a.jsonl", Money(False, Budget(5.0)), talking)
        open_translator(f"llm:{server.spec}", tmp_path / "a.jsonl", Money(False, Budget(0.0)), talking)


def test_what_was_answered_before_a_server_died_is_not_asked_again(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(12)]
    dead, back = Fault(500, body={"error": {"message": "gone"}}), threading.Event()
    with ChatServer(lambda content, before: dead if len(server.answered) > 5 and not back.is_set() else None) as server:
        with pytest.raises(Exception, match="gone"):
            served(server, tmp_path / "a.jsonl").translate(texts, "sk")
        answered = dict(server.answered)
        assert 0 < len(answered) < 12
        back.set()
        assert len(served(server, tmp_path / "a.jsonl").translate(texts, "sk")) == 12
        assert set(server.answered.values()) == {1}
        assert len(server.answered) == 12


def test_no_more_is_spent_than_allowed(tmp_path: Path) -> None:
    with ChatServer() as server:
        paid = served(server, tmp_path / "a.jsonl", prompt_price="1", answer_price="1", max_cost="0")
        with pytest.raises(CostError, match=r"limit of \$0"):
            paid.translate(["a"], "sk")
        assert not server.asked


def test_two_translators_of_a_command_have_one_purse(tmp_path: Path) -> None:
    """Each of them alone could pay for all of its own."""
    talking: Any = {"dtype": "float32", "device": "auto", "engine": "auto", "prompt": None, "max_tokens": None}
    talking["extra"] = {"prompt_price": "1", "answer_price": "1", "concurrency": "1"}
    each, texts = (PROMPT_TOKENS + ANSWER_TOKENS) / 1e6, [f"text {i}" for i in range(8)]
    most = Prices(1, 1).most(Chat(default_prompt().turns(texts[0], "sk")))
    with ChatServer() as server, ChatServer(model="other") as second:
        money = Money(False, Budget((8 + 2.5) * each + most))
        first, other = (open_translator(f"llm:{s.spec}", tmp_path / "a.jsonl", money, talking) for s in (server, second))
        assert len(first.translate(texts, "sk")) == 8
        with pytest.raises(CostError, match="could exceed the limit"):
            other.translate(texts, "sk")
        assert len(second.answered) == 3


# --- the commands -----------------------------------------------------------------------------------------------------------


def command(spec: str, out: Path, *more: str) -> list[str]:
    program = [sys.executable, "-m", "evaluator", "translate", "gest-demo", "--to", "sk", "--translator", f"llm:{spec}"]
    return [*program, "--out", str(out), *more]


def environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def table(out: Path) -> list[list[str]]:
    (path,) = out.glob("*/sk/translations.csv")
    return list(csv.reader(path.open(newline="")))


def test_every_way_to_translate_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Another prompt by its file's name; what would replace translations that were made otherwise is refused."""
    data, out, prompt = write_data(tmp_path / "data"), tmp_path / "out", tmp_path / "short.toml"
    prompt.write_text('prompt = "{language}: {text}"')

    def translate(server: ChatServer, *more: str) -> None:
        fixed = ["gest", "--to", "sk", "--out", str(out), "--data", str(data), "--translator", f"llm:{server.spec}"]
        translate_command.main([*fixed, *more], standalone_mode=False)

    refused = Fault(message={"content": None, "refusal": "No."})
    with ChatServer(lambda content, before: refused if content.endswith("I cry.") else None) as server, ChatServer() as second:
        translate(server)
        translate(server, "--prompt", str(prompt))
        asked = len(server.bodies)
        assert {path.name for path in out.iterdir() if path.is_dir()} == {"talker", "talker+short"}
        with pytest.raises(InputError, match=r"talker/sk holds other translations \(different revision\)"):
            translate(second)
        prompt.write_text('prompt = "In {language}: {text}"')
        with pytest.raises(InputError, match=r"talker\+short/sk .* \(different prompt\): give these another name with --name"):
            translate(server, "--prompt", str(prompt))
        assert (len(server.bodies), len(second.bodies)) == (asked, 0)
        translate(second, "--name", "second")
        translate(server)
        assert len(server.bodies) == asked
    (found,) = (each for each in find_translations(out) if each.system == "talker+short")
    (gest_mt,) = chosen_tasks(("gest-mt",), translations=out)
    part = next(each for each in gest_mt.given(gest_mt.load(DataSource(data))) if each.system == found.system)
    made = part.source["translator"]
    assert (made["prompt"], made["system"]) == ('prompt = "{language}: {text}"', "talker")
    assert made["outcomes"]["refused"] == sum(not target for target in read_translations(found.path).values()) > 0
    assert any(f"{made['outcomes']['refused']} refused" in line for line in part.left_out)
    found.path.write_text(found.path.read_text() + "edited,upravené\n")
    assert TranslationRecord.of(found.path) is None, "it is no longer what was made"


def test_killed_at_an_endpoint_and_resumed(tmp_path: Path) -> None:
    """No text is asked a second time that was answered; those in flight at the kill may be."""
    killed = threading.Event()

    def hold(content: str, before: int) -> None:
        if len(server.answered) >= 40:
            killed.wait(120)

    with ChatServer(hold) as server:
        line = command(server.spec, tmp_path / "out", "--extra", "concurrency=4")
        process = subprocess.Popen(line, env=environment(), stderr=subprocess.DEVNULL)
        while process.poll() is None and len(server.answered) < 40:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        killed.set()
        before = len(server.answered)
        done = subprocess.run(line, env=environment(), check=True, capture_output=True, text=True)
        again = sum(count - 1 for count in server.asked.values())
        assert 40 <= before < 160 == len(server.answered)
        assert again <= 4, "only what was on its way"
    rows = table(tmp_path / "out")
    assert len(rows) == 161
    refused = sum(not target for _, target in rows[1:])
    assert f"160 sentences, {refused} refused" in done.stdout
    (found,) = find_translations(tmp_path / "out")
    assert list(read_translations(found.path).items()) == [(source, target) for source, target in rows[1:]]
