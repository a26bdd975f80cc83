"""What chat templates are given besides the turns: the date of the run, and whether to think."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Fault
from tiny_models import CHAT_TEMPLATE, tiny_talker

import evaluator
from evaluator.answer_cache import AnswerCache
from evaluator.reports.notes import run_notes
from evaluator.scoring import prompt_date
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.sweep.config import read_sweep
from evaluator.tasks import chosen_tasks
from evaluator.translate.cache import CachedTranslator
from evaluator.translate.llm import LLMOptions, LLMTranslator
from evaluator.vocabulary import DataSource
from evaluator_serving.chats import Chat, Day, Turn
from evaluator_serving.encoding import encoder_for
from evaluator_serving.encoding.text import TextTokenizer
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.requests import Choice
from tests.scoring.made_up import GROUPS, write_data

FRONT = "{{ '<s>system : ' + strftime_now('%d %b %Y') + '</s>' }}"
FIXED = (
    "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    "{{ '<s>system : ' + date_string + '</s>' }}"
)
SWITCH = (
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% else %}{{ '<think>' }}{% endif %}"
)
EFFORT = "{{ '<s>system : effort ' + (reasoning_effort or 'medium') + '</s>' }}"
TURNS = (Turn("user", "I cook"),)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    templates = {"dated": FRONT + CHAT_TEMPLATE, "fixed": FIXED + CHAT_TEMPLATE, "plain": CHAT_TEMPLATE}
    templates |= {"thinks": CHAT_TEMPLATE + SWITCH, "effort": EFFORT + CHAT_TEMPLATE}
    return {name: tiny_talker(tmp_path_factory.mktemp(name) / name, template) for name, template in templates.items()}


def prompt(model: Path, **how: Any) -> str:
    """A chat as it is written for the model, by its tokens."""
    source = replace(resolve(str(model)), **how)
    text = TextTokenizer(source, load_tokenizer(source))
    return text.decode(encoder_for(source).encode(Chat(TURNS)).rows[0].ids)


def asked(model: Path, data: Path, out: Path, **how: Any) -> Run:
    """A run of one answer a sentence, in words."""
    inputs = {"way": "text", "orders": 1, "max_tokens": 2}
    return execute(
        RunSpec(
            (ModelSpec(str(model), "transformers", label="m"),),
            chosen_tasks(["gest-who"], **inputs),
            out,
            data=DataSource(data),
            **how,
        )
    ).run


# --- the date ----------------------------------------------------------------------------------------------------------


def test_the_date_of_a_template(models: dict[str, Path]) -> None:
    chosen, today = Day("2025-03-09", given=True), Day("2025-03-09")
    assert "09 Mar 2025" in prompt(models["dated"], day=today)
    assert "26 Jul 2024" in prompt(models["fixed"], day=today)
    assert "09 Mar 2025" in prompt(models["fixed"], day=chosen)
    assert prompt(models["plain"], day=chosen) == prompt(models["plain"])


@pytest.mark.parametrize(
    "format_", ["%Y-%m-%d", "%B %d, %Y", "%-d. %-m. %y", "%A, %e %^b", "100%% on %%%d%%d", "no date", "5%", ""]
)
def test_the_date_in_a_computed_format(models: dict[str, Path], format_: str) -> None:
    """In any format that the C library knows, in the template or in a macro of its own."""
    macro = "{% set f = " + json.dumps(format_) + " %}{% macro told(f) %}{{ strftime_now(f) }}{% endmacro %}"
    calls = "{% if strftime_now is defined %}{{ told(f + '.') + '; ' + strftime_now(format=f) }}{% endif %}"
    source = replace(resolve(str(models["plain"])), day=Day("2025-03-09"))
    tokenizer = load_tokenizer(source)
    tokenizer.chat_template = macro + calls + CHAT_TEMPLATE
    text, written = TextTokenizer(source, tokenizer), date(2025, 3, 9).strftime(format_)
    assert text.decode(text.chat_ids(TURNS)).startswith(f"{written}.; {written}")


def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whatever is written from now on."""
    written: list[str] = []
    plain = TextTokenizer._rendered

    def noted(*arguments: Any, **options: Any) -> str:
        written.append(plain(*arguments, **options))
        return written[-1]

    monkeypatch.setattr(TextTokenizer, "_rendered", noted)
    return written


class _Clock(prompt_date.datetime):
    """A clock in another month."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls(2031, 12, 24, tzinfo=tz)


def test_one_date_for_the_whole_run(
    models: dict[str, Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = asked(models["dated"], data, tmp_path / "run", limit=2)
    made = run.record["date"]["date"]
    assert run.record["models"]["m"]["date"] == made
    assert f"m: its chat template inserts the current date into every prompt: {made} in this run." in run_notes(run.record)
    monkeypatch.setattr(prompt_date, "datetime", _Clock)
    written = prompts(monkeypatch)
    asked(models["dated"], data, tmp_path / "run")
    assert written
    assert all(Day(made).strftime("%d %b %Y") in text for text in written)
    with pytest.raises(InputError, match=r"was made without --date .*, now 2025-03-09: remove --date"):
        asked(models["dated"], data, tmp_path / "run", date="2025-03-09")
    record = run.record
    del record["date"], record["models"]["m"]["date"]
    record["attempts"][0]["time"] = "2025-11-30T23:59:59Z"
    (run.path / "run.json").write_text(json.dumps(record))
    asked(models["dated"], data, tmp_path / "run", limit=len(GROUPS))
    assert run.record["models"]["m"]["date"] == "2025-11-30", "an older run's: when it was made"


def test_a_date_of_the_users(models: dict[str, Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = prompts(monkeypatch)
    run = asked(models["fixed"], data, tmp_path / "run", limit=2, date="2025-03-09")
    asked(models["fixed"], data, tmp_path / "run")
    assert all("09 Mar 2025" in text for text in written)
    assert run.record["date"] == {"date": "2025-03-09", "given": True}
    with pytest.raises(InputError, match=r"has the date 2025-03-09, now 2025-03-10"):
        asked(models["fixed"], data, tmp_path / "run", date="2025-03-10")
    with pytest.raises(InputError, match=r"'9\.3\.2025' is not a date: write YYYY-MM-DD"):
        asked(models["fixed"], data, tmp_path / "other", date="9.3.2025")
    plain = asked(models["plain"], data, tmp_path / "plain", limit=2, date="2025-03-09")
    assert "date" not in plain.record["models"]["m"]


def test_translations_are_found_again_whatever_the_day_is(models: dict[str, Path], tmp_path: Path) -> None:
    def translator(**how: Any) -> LLMTranslator:
        return LLMTranslator(str(models["dated"]), LLMOptions(engine="transformers", max_tokens=2, **how))

    assert translator().parameters["date"] == "2026-01-01"
    assert translator(day=Day.chosen("2025-03-09")).parameters["date"] == "2025-03-09"
    cached = CachedTranslator(translator(), AnswerCache(tmp_path / "a.jsonl"))
    said = cached.translate(["I cook."], "sk")
    assert CachedTranslator(translator(), AnswerCache(tmp_path / "a.jsonl"), offline=True).translate(["I cook."], "sk") == said
    plain = LLMTranslator(str(models["plain"]), LLMOptions(engine="transformers", max_tokens=2))
    assert "date" not in plain.parameters


# --- thinking ----------------------------------------------------------------------------------------------------------


def test_thinking_is_switched_where_the_template_has_a_switch(models: dict[str, Path]) -> None:
    assert prompt(models["thinks"]).endswith("<think>")
    assert prompt(models["thinks"], thinking="on").endswith("<think>")
    assert prompt(models["thinks"], thinking="off").endswith("<think></think>")
    assert "effort low" in prompt(models["effort"], thinking="low")
    for name, choice in (("plain", "off"), ("plain", "low"), ("effort", "off"), ("thinks", "low")):
        with pytest.raises(InputError, match=f"its chat template does not support --thinking {choice}"):
            prompt(models[name], thinking=choice)


def test_log_probabilities_in_a_thought_are_refused(models: dict[str, Path]) -> None:
    source = resolve(str(models["thinks"]))
    with pytest.raises(InputError, match=r"starts the reasoning \(<think>\).*--thinking off.*--way text"):
        encoder_for(source).encode(Choice(TURNS, ("(a)", "(b)")))
    assert len(encoder_for(replace(source, thinking="off")).encode(Choice(TURNS, ("(a)", "(b)"))).rows) == 2


def test_both_ways_to_ask_in_one_run(models: dict[str, Path], data: Path, tmp_path: Path) -> None:
    how: Any = {"data": data, "way": "text", "orders": 1, "max_tokens": 2, "limit": 2, "engine": "transformers"}
    evaluator.run("gest-who", str(models["thinks"]), tmp_path / "run", thinking="off", **how)
    evaluator.run("gest-who", str(models["thinks"]), tmp_path / "run", **how)
    run = Run.open(tmp_path / "run")
    off, free = run.models
    assert (off, free) == ("thinks+thinking-off", "thinks")
    assert run.record["models"][off]["details"]["thinking"] == "off"
    assert "thinking" not in run.record["models"][free]["details"]
    assert f"{off}: run with --thinking off." in run_notes(run.record)
    assert all(text.startswith("<think>") for text in run.answers(free)["text"])
    assert not any("<think>" in text for text in run.answers(off)["text"])


def test_thinking_at_a_server(data: Path, tmp_path: Path) -> None:
    sent: list[dict[str, Any]] = []
    for choice in ("", "off", "high"):
        with ChatServer() as server:
            made = ModelSpec(server.spec, thinking=choice)
            run = execute(
                RunSpec((made,), chosen_tasks(["gest-who"]), tmp_path / f"run{choice}", data=DataSource(data), limit=2)
            ).run
            assert run.models == ["talker" + (f"+thinking-{choice}" if choice else "")]
            sent.append(server.bodies[0])
    assert not {"chat_template_kwargs", "reasoning_effort"} & sent[0].keys()
    assert sent[1]["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert sent[2]["reasoning_effort"] == "high"


def test_a_text_without_a_chat_has_no_thinking(models: dict[str, Path], data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"thinks\+thinking-off: --thinking requires a task that uses the chat template"):
        evaluator.run("gest", str(models["thinks"]), tmp_path / "run", data=data, thinking="off", engine="transformers")


def test_a_server_that_has_no_such_switch(data: Path, tmp_path: Path) -> None:
    refusal = Fault(400, body={"error": {"message": "Unrecognized request argument supplied: chat_template_kwargs"}})
    with ChatServer(lambda content, before: refusal) as server:
        made = RunSpec(
            (ModelSpec(server.spec, thinking="off"),),
            chosen_tasks(["gest-who"]),
            tmp_path / "run",
            data=DataSource(data),
        )
        with pytest.raises(InputError, match=r"refuses --thinking: .*; choose another --thinking"):
            execute(made)


def test_a_sweep_names_both(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    models = "".join(f'[[models]]\nmodel = "org/m"\nthinking = "{choice}"\n' for choice in ("on", "off"))
    file.write_text(f'tasks = ["gest-who"]\nout = "{tmp_path}/run"\ndate = "2025-03-09"\n{models}')
    spec = read_sweep(file)
    assert [model.name for model in spec.models] == ["org/m+thinking-on", "org/m+thinking-off"]
    assert spec.date == "2025-03-09"
