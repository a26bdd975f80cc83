"""Runs of chat models: an endpoint with every fault, killed at any moment, limited in cost; and a local one, twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from chat_server import ANSWER_TOKENS, PROMPT_TOKENS, ChatServer, Fault, words
from polars.testing import assert_frame_equal
from tiny_models import tiny_model, tiny_talker

import evaluator
from evaluator.reports.notes import run_notes
from evaluator.reports.report import build_report
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks import chosen_tasks, task
from evaluator.tasks.gest_who import GestWho
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource, MeasureOptions
from evaluator_serving.chats import Chat
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from tests.scoring.made_up import GROUPS, write_data

ASKED = 6 * len(GROUPS)
EACH = (2 * PROMPT_TOKENS + 10 * ANSWER_TOKENS) / 1e6


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data")


def spec(server: ChatServer, data: Path, out: Path, **extra: str) -> RunSpec:
    options = EngineOptions(extra={"concurrency": "4", "retries": "3", **extra})
    return RunSpec((ModelSpec(server.spec, options=options),), (task("gest-who"),), out, data=DataSource(data))


def expected(data: Path) -> pl.DataFrame:
    """The scores of what the server says, without running anything."""
    it = GestWho()
    rendered = it.render(it.load(DataSource(data)), frozenset({"chat"}), "default")
    texts = {key: words(r.turns[-1].content) for key, r in rendered.requests.items() if isinstance(r, Chat)}
    rows = [(key, 0, text, "stop") for key, text in texts.items()]
    answers = pl.DataFrame(rows, schema=("request", "candidate", "text", "finish"), orient="row")
    return it.score(rendered.table, answers, "default")


def stored(run: Run) -> pl.DataFrame:
    return stored_of(scores_of(run, "gest-who"), "talker")


def stored_of(scores: pl.DataFrame, model: str) -> pl.DataFrame:
    return scores.filter(pl.col("model") == model).drop("model", "task")


def hard(content: str, before: int) -> Fault | None:
    """Every second chat goes wrong at first, each in its own way."""
    faults = [
        Fault(429, {"retry-after-ms": "20"}, {"error": {"message": "slow down"}}),
        Fault(500, body=b"oops"),
        Fault(cut=True),
        Fault(body=b'{"choices": [{'),
        *[None] * 4,
    ]
    later = Fault(top={"model": "talker-2", "system_fingerprint": "fp_2"}) if sum(content.encode()) % 3 == 0 else None
    return faults[sum(content.encode()) % 8] or later if before == 0 else later


def test_an_endpoint_with_every_fault(data: Path, tmp_path: Path) -> None:
    with ChatServer(hard) as server:
        run = execute(spec(server, data, tmp_path / "run", concurrency="8")).run
        assert stored(run).equals(expected(data))
        assert len(server.asked) == ASKED
        for (content, _), times in server.asked.items():
            assert times == (2 if hard(content, 0) is not None and hard(content, 0) != hard(content, 1) else 1)
        before = sum(server.asked.values())
        execute(spec(server, data, tmp_path / "run"))
        assert sum(server.asked.values()) == before, "nothing is asked twice"
        assert server.most_in_flight <= 8
    facts = run.record["models"]["talker"]["chats"]
    assert facts["replies"] == ASKED
    assert (facts["prompt_tokens"], facts["answer_tokens"]) == (ASKED * PROMPT_TOKENS, ASKED * ANSWER_TOKENS)
    assert facts["served"].keys() == {"talker", "talker-2"}
    assert facts["system"].keys() == {"fp_1", "fp_2"}
    notes = "\n".join(run_notes(run.record))
    assert "talker: the server reported more than one model: talker (" in notes
    assert "talker: the server's system fingerprint changed during the run" in notes
    assert "is not deterministic, even at temperature 0" in notes
    assert "its 48 answers used 2,400 prompt tokens and 144 completion tokens, generated from 20" in notes


def test_a_limit_on_the_cost_ends_the_run_and_a_higher_one_goes_on(data: Path, tmp_path: Path) -> None:
    prices = {"prompt_price": "2", "answer_price": "10"}
    with ChatServer() as server:
        with pytest.raises(EngineError, match=r"this could exceed the limit of \$0\.002 .*with a higher limit"):
            execute(spec(server, data, tmp_path / "run", max_cost="0.002", **prices))
        spent = sum(server.answered.values()) * EACH
        assert 0.001 < spent <= 0.002
        run = execute(spec(server, data, tmp_path / "run", max_cost="1", **prices)).run
        assert set(server.asked.values()) == {1}
        assert len(server.asked) == ASKED
    assert stored(run).equals(expected(data))
    assert run.record["models"]["talker"]["chats"]["dollars"] == pytest.approx(ASKED * EACH)
    assert any("144 completion tokens ($0.01 at the prices given), generated from" in note for note in run_notes(run.record))


def test_one_limit_holds_for_all_conditions_of_a_call(data: Path, tmp_path: Path) -> None:
    prices = {"prompt_price": "2", "answer_price": "10", "concurrency": "4"}
    how: Any = {"data": data, "extra": prices, "systems": ["none", "fair=Be fair."]}
    with ChatServer() as server:
        with pytest.warns(UserWarning, match=r"talker\+fair failed: .* could exceed the limit"):
            evaluator.run("gest-who", server.spec, tmp_path / "run", max_cost=ASKED * EACH * 1.5, **how)
        assert ASKED < len(server.bodies) <= 1.5 * ASKED
        evaluator.run("gest-who", server.spec, tmp_path / "run", max_cost=1.0, **how)
        assert len(server.bodies) == 2 * ASKED


def test_what_a_server_does_not_count_is_told(data: Path, tmp_path: Path) -> None:
    with ChatServer(lambda content, before: Fault(top={"usage": "?"}) if "(a)" in words(content) else None) as server:
        run = execute(spec(server, data, tmp_path / "run")).run
        strange = sum("(a)" in words(content) for content, _ in server.asked)
        assert set(server.asked.values()) == {1}
    assert run.record["models"]["talker"]["chats"]["uncounted"] == strange > 0
    assert f"talker: the server did not report the usage of {strange} of these answers" in "\n".join(run_notes(run.record))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(400, body={"error": {"message": "no"}}), "refuses the chat"),
        (Fault(500, {"retry-after-ms": "1"}), "fails at this chat, and answers others"),
    ],
)
def test_a_chat_that_is_never_answered_leaves_its_sentence_out(fault: Fault, said: str, data: Path, tmp_path: Path) -> None:
    with ChatServer(lambda content, _: fault if "I lead" in content and "\n(a) A man" in content else None) as server:
        run = execute(spec(server, data, tmp_path / "run")).run
        again = sum(server.asked.values())
        assert again <= ASKED - 2 + 2 * 8 + 4
        execute(spec(server, data, tmp_path / "run"))
        assert sum(server.asked.values()) == again, "given up, and not paid for again"
    scores = stored(run)
    assert scores.filter(pl.col("undetected").is_null())["sample"].to_list() == [6]
    assert scores.filter(pl.col("sample") != 6).equals(expected(data).filter(pl.col("sample") != 6))
    assert run.failures().filter(pl.col("reason").str.contains(said)).height == 2


def test_a_server_that_fails_at_most_chats_may_be_mended(data: Path, tmp_path: Path) -> None:
    """It is the model's failure, and no wrong input: the same command asks again."""
    fault = Fault(500, {"retry-after-ms": "1"})
    sick = threading.Event()
    sick.set()
    with ChatServer(
        lambda content, _: fault if sick.is_set() and "(a)" in content and "\n(a) A man" not in content else None
    ) as server:
        asked = spec(server, data, tmp_path / "run", retries="0")
        with pytest.raises(EngineError, match=r"talker: \d+ of its 48 requests failed"):
            execute(asked)
        sick.clear()
        assert stored(execute(asked).run).equals(expected(data))


def test_what_was_answered_before_a_server_went_away_counts(data: Path, tmp_path: Path) -> None:
    """Its chunk isn't whole, and the process may have been killed: neither asks again, and reports have what is there."""
    gone = threading.Event()

    def leave(content: str, before: int) -> Fault | None:
        return Fault(402, body={"error": {"message": "no credits"}}) if gone.is_set() or len(server.answered) > 20 else None

    with ChatServer(leave) as server:
        with pytest.raises(EngineError, match="no credits"):
            execute(spec(server, data, tmp_path / "run"))
        run, kept = Run.open(tmp_path / "run"), len(server.answered)
        assert len(run.done("talker")) == kept == run.record["models"]["talker"]["chats"]["replies"]
        for file in run.answers_folder("talker").rglob("*.parquet"):
            file.unlink()  # as if it had been killed instead
        assert not run.done("talker")
        gone.set()
        with pytest.raises(EngineError, match="no credits"):
            execute(spec(server, data, tmp_path / "run"))
        assert len(run.done("talker")) == kept == len(server.answered)


def test_a_temperature_that_is_not_sent_is_told_and_not_claimed(data: Path, tmp_path: Path) -> None:
    with ChatServer() as server:
        run = execute(spec(server, data, tmp_path / "run", omit="temperature")).run
        assert not any("temperature" in body for body in server.bodies)
        assert run.record["models"]["talker"]["details"]["omit"] == "temperature"
        assert "talker: its server was not sent temperature (omit)" in "\n".join(run_notes(run.record))
        drawn = chosen_tasks(["gest-who"], way="text", answers=2, temperature=0.7)
        with pytest.raises(InputError, match=r"--temperature 0\.7 is not sent to the model because of omit=temperature"):
            execute(replace(spec(server, data, tmp_path / "other", omit="seed,temperature"), tasks=drawn))


def test_a_sweep_asks_an_endpoint_beside_other_models(data: Path, talker: Path, tmp_path: Path) -> None:
    with ChatServer() as server:
        both = spec(server, data, tmp_path / "run", max_cost="1", prompt_price="2")
        both = replace(both, models=(*both.models, ModelSpec(str(talker), label="here")))
        with pytest.raises(InputError, match=r"max_cost is enforced within one process.*--ray none"):
            sweep(both, SweepOptions("local"))
        run = sweep(both, SweepOptions("none")).run
        assert set(server.asked.values()) == {1}
    scores = scores_of(run, "gest-who")
    assert stored_of(scores, "talker").equals(expected(data))
    assert set(scores.filter(model="here")["template"]) == {"logprobs"}


@pytest.mark.slow
@pytest.mark.ray
def test_words_are_shared_out_over_ray(data: Path, talker: Path, tmp_path: Path) -> None:
    alone = execute(local(talker, data, tmp_path / "alone", way="text", max_tokens=8)).run
    shared = sweep(local(talker, data, tmp_path / "shared", way="text", max_tokens=8), SweepOptions("local", workers=2)).run
    a, b = (run.answers("here").sort("request") for run in (alone, shared))
    assert a.equals(b)
    assert shared.record["models"]["here"]["chats"]["replies"] == ASKED


# --- what a model's generation_config.json sets ------------------------------------------------------------------------


def test_answers_that_older_versions_shaped_are_not_mixed_with_others(data: Path, talker: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(talker, model)
    (model / "generation_config.json").write_text('{"suppress_tokens": [5, 6], "eos_token_id": 2}')

    def asked(**how: Any) -> Run:
        plain = local(model, data, tmp_path / "run", **how)
        return execute(replace(plain, models=(replace(plain.models[0], engine="transformers"),))).run

    run = asked()
    assert "decoding" not in run.record["models"]["here"], "log-probabilities never hung on it"
    asked(way="text", max_tokens=4)
    assert run.record["models"]["here"]["decoding"] == {"ignored": {"suppress_tokens": [5, 6]}, "before": ["suppress_tokens"]}
    assert any("generation_config.json sets suppress_tokens [5, 6], which was not" in note for note in run_notes(run.record))
    asked(way="text", max_tokens=4)
    record = run.record
    del record["models"]["here"]["decoding"]
    (run.path / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"an earlier version that applied its generation_config.json \(suppress_tokens\)"):
        asked(way="text", max_tokens=4)
    assert not build_report(run, MeasureOptions(resamples=20)).rows.is_empty()


# --- thoughts --------------------------------------------------------------------------------------------------------

THOUGHT = "Perhaps (a) or (b)."


@pytest.mark.parametrize(
    "message",
    [
        lambda said: {"content": f"<think>{THOUGHT}</think>\n\n{said}"},
        lambda said: {"content": said, "reasoning_content": THOUGHT},
        lambda said: {"content": said, "reasoning": THOUGHT},
        lambda said: {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}, {"text": said}]},
    ],
)
def test_thoughts_are_no_part_of_an_answer(message: Any, data: Path, tmp_path: Path) -> None:
    with ChatServer(lambda content, before: Fault(message=message(words(content)))) as server:
        run = execute(spec(server, data, tmp_path / "run")).run
    scores = stored(run)
    assert scores.drop("thoughts", "cut").equals(expected(data).drop("thoughts", "cut"))
    assert set(scores["thoughts"]) == {1.0}
    assert set(scores["cut"]) == {0.0}
    kept = run.answers("talker")
    assert all(THOUGHT in text + thought for text, thought in kept.select("text", "thought").iter_rows())


@pytest.mark.parametrize(
    "message",
    [
        {"content": "<think>I'm sorry, the only one is (a), let me"},
        {"content": None, "reasoning_content": "The only one is (a), let me"},
        {"content": None},
    ],
)
def test_a_cut_thought_is_no_answer_and_told(message: dict[str, Any], data: Path, tmp_path: Path) -> None:
    with ChatServer(lambda content, before: Fault(message=message, finish="length")) as server:
        run = execute(spec(server, data, tmp_path / "run")).run
    scores = stored(run)
    for column, value in {"undetected": 1.0, "refused": 0.0, "cut": 1.0}.items():
        assert set(scores[column]) == {value}
    report = build_report(run, MeasureOptions(resamples=20))
    assert report.rows.filter(measure="cut_thoughts")["value"].to_list() == [1.0]
    assert report.rows.filter(measure="stereotype_rate")["value"].to_list() == [None]
    assert any("100.0% of its answers reached the token limit" in line and "--max-tokens" in line for line in report.warnings)


def test_answers_of_older_versions_without_the_thoughts_column(data: Path, tmp_path: Path) -> None:
    thinking = Fault(message={"content": f"<think>{THOUGHT}</think>(c)"})
    with ChatServer(lambda content, before: thinking) as server:
        run = execute(spec(server, data, tmp_path / "run")).run
    for part in run.path.glob("logprobs/*/chat/*.parquet"):
        pl.read_parquet(part).drop("thought").write_parquet(part)
    scores = stored(run)
    assert set(scores["undetected"]) == {0.0}
    assert set(scores["place_c"]) == {1.0}


# --- killed ----------------------------------------------------------------------------------------------------------


def command(server: ChatServer, data: Path, out: Path, concurrency: int) -> list[str]:
    extra = [f"concurrency={concurrency}", "retries=0"]
    options = [word for pair in extra for word in ("--extra", pair)]
    return [sys.executable, "-m", "evaluator", "run", "gest-who", "--model", server.spec, "--out", str(out), *options]


class Killer:
    """Kills the process that asks when it asks for the n-th new chat, which is then not answered."""

    def __init__(self, moments: list[int]) -> None:
        self._moments = moments
        self._asked = 0
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, line: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """The next process, which isn't answered before it is known here."""
        with self._lock:
            self._process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            return self._process

    def __call__(self, content: str, before: int) -> Fault | None:
        with self._lock:  # one kill for all chats that a process has under way
            self._asked += 1
            if self._process is None or not self._moments or self._asked < self._moments[0]:
                return None
            self._moments.pop(0)
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        return Fault(cut=True)


@pytest.mark.slow
@pytest.mark.parametrize(("concurrency", "moments"), [(1, (2, 5, 6, 11, 17, 24, 25, 33, 40, 46)), (4, (5, 24, 40))])
def test_killed_at_many_moments(data: Path, tmp_path: Path, concurrency: int, moments: tuple[int, ...]) -> None:
    killer = Killer(list(moments))
    environment = os.environ | {"EVALUATOR_DATA": str(data)}
    with ChatServer(killer, delay=0.02) as server:
        line = command(server, data, tmp_path / "run", concurrency)
        codes = []
        for _ in range(len(moments) + 1):
            process = killer.start(line, environment)
            _, errors = process.communicate(timeout=300)
            codes.append(process.returncode)
            if codes[-1] == 0:
                break
            assert codes[-1] == -signal.SIGKILL, errors.decode()
        assert codes == [-signal.SIGKILL] * len(moments) + [0]
        assert len(server.asked) == ASKED
        if concurrency == 1:
            assert set(server.answered.values()) == {1}, "no answer is asked for again"
            assert sum(server.asked.values()) == ASKED + len(moments), "but those that were under way"
        else:
            assert sum(server.asked.values()) <= ASKED + len(moments) * concurrency, "those that were under way at most"
    assert stored(Run.open(tmp_path / "run")).equals(expected(data))


# --- a model that is here --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_talker(tmp_path_factory.mktemp("talker"), max_position_embeddings=512)


def local(talker: Path, data: Path, out: Path, **how: Any) -> RunSpec:
    tasks = chosen_tasks(["gest-who"], **how)
    return RunSpec((ModelSpec(str(talker), label="here"),), tasks, out, data=DataSource(data))


def test_the_same_run_twice_gives_the_same_words(talker: Path, data: Path, tmp_path: Path) -> None:
    drawn = {"way": "text", "answers": 2, "temperature": 1.0, "max_tokens": 8}
    runs = [execute(local(talker, data, tmp_path / name, **how)).run for name in "ab" for how in ({"way": "text"}, drawn)][::2]
    first, second = (run.answers("here").sort("request", "candidate") for run in runs)
    assert first.equals(second)
    assert first.height == ASKED + 2 * ASKED
    entry = runs[0].record["models"]["here"]
    assert entry["chats"]["repeatable"] is True
    assert not any("promise" in note for note in run_notes(runs[0].record))
    assert set(runs[0].tasks) == {"gest-who-text", "gest-who-text-2x1-8tokens"}


def test_words_and_log_probabilities_in_one_run(talker: Path, data: Path, tmp_path: Path) -> None:
    """The default asks for log-probabilities of a model that is here; they are the probabilities of its first words."""
    whole = execute(local(talker, data, tmp_path / "run")).run
    scores = scores_of(whole, "gest-who")
    assert set(scores["template"]) == {"logprobs"}
    assert scores.height == len(GROUPS)
    assert (scores["mass"] > 0).all()
    assert scores.select(pl.sum_horizontal("male", "female", "neither")).to_series().to_list() == pytest.approx([1.0] * 8)
    part = replace(local(talker, data, tmp_path / "part"), limit=3)
    execute(part)
    few = scores_of(execute(replace(part, limit=None)).run, "gest-who")
    assert_frame_equal(few, scores, abs_tol=1e-5)


def test_a_model_without_a_chat_template_says_so(data: Path, tmp_path: Path) -> None:
    folder = tiny_model("gpt2", tmp_path / "gpt2")
    spec = local(folder, data, tmp_path / "run")
    with pytest.raises(Exception, match="no chat template for a user turn"):
        execute(spec)
