"""Chats at a server: everything that can go wrong, how fast it is asked, what it may cost, and that nothing is asked twice."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from chat_server import ANSWER_TOKENS, PROMPT_TOKENS, ChatServer, Fault, words

from evaluator.journal import Journal
from evaluator_serving.budget import Budget, CostError
from evaluator_serving.chats import Chat, Reply, Turn
from evaluator_serving.choose import choose_engine
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.identity import fingerprint, identity
from evaluator_serving.models.resolving import resolve
from evaluator_serving.openai_engine.chat import Conversation
from evaluator_serving.openai_engine.client import ServerError
from evaluator_serving.openai_engine.costs import CostMeter, Prices
from evaluator_serving.openai_engine.engine import OpenAIEngine
from evaluator_serving.openai_engine.pace import Pace, asked_wait, exhausted
from evaluator_serving.registry import check_fit
from evaluator_serving.requests import Continuation
from evaluator_serving.rows import Row

TEXTS = tuple(f"Who said sentence {i}?" for i in range(12))


def rows(spec: str, texts: tuple[str, ...] = TEXTS, **how: Any) -> list[Row]:
    encoder = encoder_for(resolve(spec))
    return [row for text in texts for row in encoder.encode(Chat((Turn("user", text),), **how)).rows]


def engine(server: ChatServer, **extra: Any) -> Any:
    source = resolve(server.spec)
    return closing(OpenAIEngine(source, EngineOptions(extra={"retries": 3, **extra}), rows(server.spec)))


def once(fault: Fault) -> Callable[[str, int], Fault | None]:
    """Every chat meets this fault the first time that it is asked."""
    return lambda content, before: fault if before == 0 else None


def test_words_and_who_gave_them() -> None:
    with ChatServer() as server, engine(server) as talker:
        said = talker.generate(rows(server.spec, max_tokens=9, seed=4))
    assert [reply.text for (reply,) in said] == [words(text) for text in TEXTS]
    (first,) = said[0]
    assert (first.served, first.system, first.finish) == ("talker", "fp_1", "stop")
    assert (first.prompt_tokens, first.answer_tokens) == (PROMPT_TOKENS, ANSWER_TOKENS)
    assert abs(datetime.fromisoformat(first.date) - datetime.now(UTC)) < timedelta(minutes=10)
    body = server.bodies[0]
    assert (body["model"], body["max_tokens"], body["temperature"], body["seed"]) == ("talker", 9, 0.0, 4)
    assert set(server.asked.values()) == {1}


def test_several_answers_are_asked_for_one_by_one() -> None:
    with ChatServer() as server, engine(server) as talker:
        said = talker.generate(rows(server.spec, TEXTS[:2], answers=3, temperature=0.5, seed=10))
    assert [len(replies) for replies in said] == [3, 3]
    assert set(server.asked) == {(text, seed) for text in TEXTS[:2] for seed in (10, 11, 12)}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, body={"error": {"message": "oops"}}),
        Fault(503, body=b"<html>busy</html>"),
        Fault(cut=True),
        Fault(body=b'{"choices": [{"mess'),
        Fault(body={"object": "nothing"}),
        *[Fault(status, body=b"<html>a moment, please</html>") for status in (408, 409, 425, 501, 520, 524, 529)],
        *[Fault(finish=reason, message={"content": "(a)"}) for reason in ("error", "ABORT", "network_error", "who knows")],
        Fault(finish="", message={"content": ""}),
        Fault(top={"error": {"message": "Provider returned error", "code": 502}}),
        Fault(body={"choices": [{"message": {"content": "(a)"}, "finish_reason": "stop", "error": {"message": "gone"}}]}),
        # LiteLLM's proxy, which calls an upstream's "error" a "stop":
        Fault(
            choice={"provider_specific_fields": {"native_finish_reason": "error", "error": {"code": 502, "message": "gone"}}}
        ),
        Fault(choice={"provider_specific_fields": {"native_finish_reason": "ABORTED"}}),
    ],
)
def test_what_passes_is_asked_again(fault: Fault, waits: list[float]) -> None:
    with ChatServer(once(fault)) as server, engine(server) as talker:
        said = talker.generate(rows(server.spec))
    assert [reply.text for (reply,) in said] == [words(text) for text in TEXTS]
    assert set(server.asked.values()) == {2}
    assert len(waits) == len(TEXTS)


def test_a_chat_at_which_a_server_always_fails_is_at_fault_alone(tmp_path: Path, waits: list[float]) -> None:
    """It is tried again after all others, then given up, and not asked for when the others of its chunk are."""
    fault = Fault(500, body={"error": {"message": "oops"}})
    journal = Journal(tmp_path / "journal.jsonl")
    with (
        ChatServer(lambda content, _: fault if content == TEXTS[3] else None) as server,
        engine(server, concurrency="1") as talker,
    ):
        for _ in range(2):
            with pytest.raises(EngineError, match=r"row 3: .*fails at this chat, and answers others: HTTP 500: oops") as caught:
                talker.generate(rows(server.spec), journal)
            assert (caught.value.row, caught.value.again) == (3, False)
    assert {text: n for (text, _), n in server.asked.items() if n > 1 and text in TEXTS} == {TEXTS[3]: 8}
    assert all(journal.get(Chat((Turn("user", text),))) for text in TEXTS if text != TEXTS[3])


@pytest.mark.parametrize("status", [403, 451])
def test_a_chat_that_a_filter_stops_is_at_fault_alone(status: int, waits: list[float]) -> None:
    fault = Fault(status, body={"error": {"message": "flagged"}})
    with (
        ChatServer(lambda content, _: fault if content == TEXTS[0] else None) as server,
        engine(server, concurrency="1") as talker,
        pytest.raises(EngineError, match=f"row 0: .*answers others: HTTP {status}: flagged") as caught,
    ):
        talker.generate(rows(server.spec))
    assert (caught.value.row, caught.value.again, waits) == (0, False, [])
    assert {n for (text, _), n in server.asked.items() if text in TEXTS} == {1}


def test_one_thread_asks_whether_a_server_that_refuses_all_answers() -> None:
    with (
        ChatServer(lambda *_: Fault(403)) as server,
        engine(server) as talker,
        pytest.raises(InputError, match="refuses access"),
    ):
        talker.generate(rows(server.spec))
    assert sum(n for (text, _), n in server.asked.items() if text not in TEXTS) == 1


@pytest.mark.parametrize("answers", [True, False])
def test_where_one_chat_is_left_the_server_is_asked_whether_it_answers_at_all(answers: bool, waits: list[float]) -> None:
    fault = Fault(500, body={"error": {"message": "oops"}})
    with (
        ChatServer(lambda content, _: None if answers and content not in TEXTS else fault) as server,
        engine(server) as talker,
        pytest.raises(EngineError, match="oops") as caught,
    ):
        talker.generate(rows(server.spec, TEXTS[:1]))
    assert (caught.value.row, caught.value.again) == ((0, False) if answers else (None, True))
    assert len(server.asked) == 2


@pytest.mark.parametrize("fault", [Fault(429, body={"error": {"message": "slow"}}), Fault(503), Fault(529)])
def test_a_server_that_is_busy_for_all_is_no_fault_of_a_chat(fault: Fault, waits: list[float]) -> None:
    with ChatServer(lambda *_: fault) as server, engine(server) as talker, pytest.raises(EngineError) as caught:
        talker.generate(rows(server.spec))
    assert (caught.value.row, caught.value.again) == (None, True)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "lots",
        [3],
        {},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": "many", "completion_tokens": 3},
        {"prompt_tokens": -1, "completion_tokens": 3},
    ],
)
def test_an_answer_whose_tokens_are_not_counted_is_an_answer(usage: Any, waits: list[float]) -> None:
    """It has been paid for: it counts as the most that it may have cost."""
    fault = Fault(top={"usage": usage})
    with ChatServer(lambda *_: fault) as server, engine(server, max_cost="1", **PRICES) as talker:
        ((reply,),) = talker.generate(rows(server.spec, TEXTS[:1], max_tokens=20))
        assert talker._meter.budget.spent == pytest.approx(MOST)
    assert (reply.text, reply.prompt_tokens, reply.answer_tokens) == (words(TEXTS[0]), 0, 0)
    assert set(server.asked.values()) == {1}
    assert waits == []


def test_a_time_out_is_asked_again() -> None:
    """At least once: on a busy machine a second answer may come too late, too."""
    over = threading.Event()

    def silent(content: str, before: int) -> None:
        if before == 0:
            over.wait(60)

    with ChatServer(silent) as server, engine(server, timeout="1", concurrency="12", retries=6) as talker:
        said = talker.generate(rows(server.spec))
        over.set()
    assert [reply.text for (reply,) in said] == [words(text) for text in TEXTS]
    assert min(server.asked.values()) >= 2


def test_a_server_that_asks_for_patience_gets_it_from_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One chat is refused with Retry-After: nothing at all is asked until the time is over."""
    known, hold = threading.Event(), Pace.hold

    def held(pace: Pace, seconds: float) -> None:
        hold(pace, seconds)
        known.set()

    def limit(content: str, before: int) -> Fault | None:
        if content == TEXTS[0] and before == 0:
            server.meet(2)  # the other thread has asked before it can learn of this
            return Fault(429, {"Retry-After": "1"}, {"error": {"message": "slow down"}})
        known.wait(60)  # the other thread has its answer when the client knows that it must be patient
        return None

    monkeypatch.setattr(Pace, "hold", held)
    with ChatServer(limit) as server, engine(server, concurrency="2") as talker:
        talker.generate(rows(server.spec))
    asked = [(body["messages"][-1]["content"], moment) for body, moment in zip(server.bodies, server.moments, strict=True)]
    refused = next(moment for text, moment in asked if text == TEXTS[0])
    assert {text for text, _ in asked[:2]} == set(TEXTS[:2])
    assert all(moment - refused >= 1.0 for _, moment in asked[2:])
    assert sum(server.asked.values()) == len(TEXTS) + 1


def test_a_quota_of_a_day_is_told_at_once(waits: list[float]) -> None:
    fault = Fault(429, {"retry-after": "86400"}, {"error": {"message": "quota"}})
    with ChatServer(lambda *_: fault) as server, engine(server) as talker, pytest.raises(EngineError, match="wait 86,400 s"):
        talker.generate(rows(server.spec))
    assert waits == []


def test_money_that_is_used_up_is_no_matter_of_patience(waits: list[float]) -> None:
    fault = Fault(429, body={"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
    with (
        ChatServer(lambda *_: fault) as server,
        engine(server) as talker,
        pytest.raises(EngineError, match=r"quota \[insufficient_quota\]"),
    ):
        talker.generate(rows(server.spec))
    assert waits == []


def test_headers_that_say_how_fast() -> None:
    assert asked_wait({"retry-after": "1.5"}) == 1.5
    assert asked_wait({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    later = format_datetime(datetime.now(UTC) + timedelta(hours=9), usegmt=True)
    assert asked_wait({"retry-after": later}) == pytest.approx(9 * 3600, abs=600)
    limits = {"x-ratelimit-reset-requests": "1m2.5s", "x-ratelimit-reset-tokens": "20ms"}
    assert asked_wait(limits) == pytest.approx(62.5)
    assert asked_wait({"x-ratelimit-reset": str(int((time.time() + 9000) * 1000))}) == pytest.approx(9000, abs=600)
    assert asked_wait({"retry-after": "soon", "x-ratelimit-reset-tokens": "nan"}) is None
    assert exhausted({"x-ratelimit-remaining-requests": "0", **limits}) == pytest.approx(62.5)
    assert exhausted({"x-ratelimit-remaining-requests": "3", "x-ratelimit-remaining-tokens": "0", **limits}) == pytest.approx(
        0.02
    )
    assert exhausted(limits) is None


@pytest.mark.parametrize(
    ("fault", "finish", "text"),
    [
        (Fault(message={"content": None, "refusal": "I won't."}), "refused", "I won't."),
        (Fault(message={"content": None}, finish="content_filter"), "filtered", ""),
        (Fault(message={"content": "", "provider_specific_fields": {"refusal": "No."}}), "refused", "No."),
        (Fault(choice={"provider_specific_fields": {"native_finish_reason": "STOP"}}), "stop", words(TEXTS[0])),
        (Fault(400, body={"error": {"message": "policy", "code": "content_filter"}}), "filtered", ""),
        (Fault(message={"content": "(a) because"}, finish="length"), "length", "(a) because"),
        *[
            (Fault(message={"content": "(a)"}, finish=end), "length", "(a)")
            for end in ("max_tokens", "MAX_TOKENS", "model_length")
        ],
        *[
            (Fault(message={"content": "(a)"}, finish=end), "stop", "(a)")
            for end in ("eos", "end_turn", "stop_sequence", "STOP")
        ],
        *[(Fault(message={"content": ""}, finish=end), "filtered", "") for end in ("SAFETY", "RECITATION")],
        (Fault(message={"content": "No."}, finish="refusal"), "refused", "No."),
        (Fault(message={"content": None, "tool_calls": [{"id": "1"}]}, finish="tool_calls"), "stop", ""),
        (Fault(message={"content": "(a)"}, finish=""), "stop", "(a)"),
        (Fault(message={"content": "(a)", "error": None}), "stop", "(a)"),
        (Fault(message={"content": [{"type": "text", "text": None}, {"type": "text", "text": "(a)"}]}), "stop", "(a)"),
        (Fault(message={"content": [{"type": "text", "text": "(a)"}, {"type": "text", "text": "!"}]}), "stop", "(a)!"),
        (Fault(message={"content": "(a) \ud83d\ude00 \ud83d"}), "stop", "(a) \U0001f600 \ufffd"),
        (Fault(top={"usage": None, "model": "talker-2026-11-01", "system_fingerprint": None}), "stop", words(TEXTS[0])),
    ],
)
def test_other_answers(fault: Fault, finish: str, text: str) -> None:
    with ChatServer(lambda *_: fault) as server, engine(server) as talker:
        ((reply,),) = talker.generate(rows(server.spec, TEXTS[:1]))
    assert (reply.finish, reply.text) == (finish, text)
    assert sum(server.asked.values()) == 1
    if "model" in fault.top:
        assert (reply.served, reply.system, reply.prompt_tokens) == ("talker-2026-11-01", "", 0)


def test_what_a_server_calls_itself_is_part_of_a_line() -> None:
    fault = Fault(top={"model": "a\x1b[2J\nb\u202e", "system_fingerprint": 7})
    with ChatServer(lambda *_: fault) as server, engine(server) as talker:
        ((reply,),) = talker.generate(rows(server.spec, TEXTS[:1]))
    assert (reply.served, reply.system) == ("a[2J b", "7")


@pytest.mark.parametrize(
    "message",
    ["Unsupported parameter: use 'max_completion_tokens' instead", "Unrecognized request argument supplied: max_tokens"],
)
def test_the_other_name_of_the_limit(message: str) -> None:
    def newer(content: str, before: int) -> Fault | None:
        mine = [body for body in server.bodies if body["messages"][-1]["content"] == content]
        return Fault(400, body={"error": {"message": message}}, wait=0.1) if "max_tokens" in mine[-1] else None

    with ChatServer(newer) as server, engine(server, concurrency="4") as talker:
        talker.generate(rows(server.spec, max_tokens=7))
    limits = [body.get("max_completion_tokens") for body in server.bodies]
    assert limits.count(7) == len(TEXTS)
    assert limits.count(None) <= 4, "those that were sent before the first refusal"


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Fault(401, body={"error": {"message": "bad key"}}), InputError, r"refuses access \(HTTP 401: bad key\): set MY_KEY"),
        (Fault(404, body={"error": {"message": "no model"}}), InputError, "has no such model .*correct URL#NAME"),
        (Fault(301), InputError, "correct URL#NAME"),
        (Fault(403), InputError, "refuses access"),
        (Fault(451), InputError, "refuses chats"),
        (Fault(400, body={"error": {"message": "'temperature' must be 1"}}), EngineError, "row 0: .*--extra omit=temperature"),
        (
            Fault(400, body={"error": {"message": "x" * 400 + " Unsupported value: 'temperature'"}}),
            InputError,
            r"every chat with a temperature.*--extra omit=temperature",
        ),
        (
            Fault(422, body={"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}),
            InputError,
            r"every chat with a seed.*--extra omit=seed",
        ),
        (Fault(headers={"content-type": "text/html"}, body=b"<html>log in</html>"), InputError, "a web page: correct the URL"),
        (Fault(headers={"content-type": "text/event-stream"}, body=b"data: {}"), InputError, "turn streaming off"),
        (
            Fault(400, body={"error": {"message": "Only supports streaming, set stream=true"}}),
            InputError,
            "only answers in streams",
        ),
        (Fault(body={"choices": [{"message": None, "finish_reason": "stop"}]}), EngineError, "row 0: .* holds no message"),
        (Fault(body={"error": {"message": "overloaded"}}), EngineError, "not a chat completion: overloaded"),
    ],
)
def test_refusals(fault: Fault, error: type[Exception], message: str) -> None:
    with (
        ChatServer(lambda *_: fault) as server,
        engine(server, key_env="MY_KEY", retries="0") as talker,
        pytest.raises(error, match=message),
    ):
        talker.generate(rows(server.spec, TEXTS[:1]))


def test_fields_that_a_server_refuses_are_left_out() -> None:
    with ChatServer() as server, engine(server, omit="seed, temperature") as talker:
        talker.generate(rows(server.spec, TEXTS[:1]))
    assert server.bodies[0].keys() == {"model", "messages", "max_tokens"}


def test_concurrency_is_kept_to() -> None:
    def together(content: str, before: int) -> Fault:
        server.meet(3)
        return Fault(wait=0.05)  # for more to come

    with ChatServer(together) as server, engine(server, concurrency="3") as talker:
        talker.generate(rows(server.spec))
    assert server.most_in_flight == 3


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    fault = Fault(401, body={"error": {"message": "Incorrect key sk-secret given"}})
    with ChatServer(lambda *_: fault) as server, engine(server, key_env="SOME_KEY") as talker:
        with pytest.raises(InputError) as caught:
            talker.generate(rows(server.spec, TEXTS[:1]), Journal(tmp_path / "journal.jsonl"))
        assert server.headers[0]["authorization"] == "Bearer sk-secret"
        assert "sk-secret" not in str(caught.value) + repr(talker.details())
    assert "SOME_KEY" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://models.example/v1", False),
        ("http://10.0.0.7:8000/v1", False),
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("https://models.example/v1", True),
    ],
)
def test_no_key_goes_over_plain_http(url: str, sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    source = resolve(f"{url}#m")
    if sent:
        OpenAIEngine(source, EngineOptions(), []).close()
        return
    with pytest.raises(InputError, match="is plain HTTP, over which OPENAI_API_KEY isn't sent") as caught:
        OpenAIEngine(source, EngineOptions(), [])
    assert "sk-secret" not in str(caught.value)
    monkeypatch.delenv("OPENAI_API_KEY")
    OpenAIEngine(source, EngineOptions(), []).close()


@pytest.mark.parametrize("spec", ["https://me:pass@host/v1#m", "https://host/v1?key=pass#m"])
def test_secrets_have_no_place_in_a_url(spec: str) -> None:
    with pytest.raises(InputError, match="keys come from the environment") as caught:
        resolve(spec)
    assert "pass" not in str(caught.value).replace("password", "")


def test_a_port_that_is_none() -> None:
    with pytest.raises(InputError, match=r"http://host:80000/v1 has an invalid port"):
        resolve("http://host:80000/v1#m")


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_what_is_kept_is_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with ChatServer() as server, engine(server) as talker:
        first = talker.generate(rows(server.spec, TEXTS[:7]), Journal(path))
        every = talker.generate(rows(server.spec), Journal(path))
        assert every[:7] == first
        assert Journal(path).get(Chat((Turn("user", TEXTS[9]),))) == every[9][0]
        other = talker.generate(rows(server.spec, TEXTS[:1], seed=1), Journal(path))
        assert other[0][0].text == first[0][0].text
    assert set(server.asked.values()) == {1}
    assert len(server.asked) == len(TEXTS) + 1


def test_each_answer_is_on_disk_before_its_thread_asks_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    kept: list[int] = []

    def count(content: str, before: int) -> None:
        kept.append(len(path.read_text().splitlines()) if path.exists() else 0)

    with ChatServer(count) as server, engine(server, concurrency="1") as talker:
        talker.generate(rows(server.spec), Journal(path))
    assert kept == list(range(len(TEXTS)))


def test_those_under_way_are_kept_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have been sent, and will be billed."""
    failed, told = threading.Event(), Conversation._run_error

    def noted(conversation: Conversation, index: int, error: ServerError) -> Exception:
        failed.set()
        return told(conversation, index, error)

    def refuse(content: str, before: int) -> Fault | None:
        server.meet(4)
        if content == TEXTS[1]:
            return Fault(400, body={"error": {"message": "no"}})
        failed.wait(60)  # the others have their answers when the client knows of the failure
        return None

    monkeypatch.setattr(Conversation, "_run_error", noted)
    journal = Journal(tmp_path / "journal.jsonl")
    with ChatServer(refuse) as server, engine(server, concurrency="4") as talker:
        with pytest.raises(EngineError, match=r"row 1: .* refuses the chat") as caught:
            talker.generate(rows(server.spec), journal)
        assert caught.value.row == 1
        assert len(server.asked) == 4, "nothing else was asked for"
        assert [journal.get(Chat((Turn("user", text),))) is not None for text in TEXTS[:4]] == [True, False, True, True]


# --- what it costs ---------------------------------------------------------------------------------------------------

PRICES = {"prompt_price": "2", "answer_price": "10", "concurrency": "4"}
EACH = (2 * PROMPT_TOKENS + 10 * ANSWER_TOKENS) / 1e6
MOST = (2 * (len(TEXTS[0]) + 16) + 10 * 20) / 1e6
"""Dollars that an answer costs, and that one of 20 tokens may cost at the most (by the letters of the short texts)."""


def test_the_limit_is_never_passed(tmp_path: Path) -> None:
    limit = 5 * EACH + MOST * 1.5
    journal = Journal(tmp_path / "journal.jsonl")
    with ChatServer(delay=0.02) as server:
        with engine(server, max_cost=str(limit), **PRICES) as talker:
            with pytest.raises(CostError, match=r"this could exceed the limit of \$.*All answers so far are kept"):
                talker.generate(rows(server.spec, max_tokens=20), journal)
            before = sum(server.answered.values())
            assert before * EACH <= limit
            assert before >= 3
            assert talker._meter.budget.spent == pytest.approx(before * EACH)
        with engine(server, max_cost="1", **PRICES) as talker:
            talker.generate(rows(server.spec, max_tokens=20), journal)
    assert set(server.asked.values()) == {1}
    assert len(server.asked) == len(TEXTS)


def test_an_answer_that_broke_off_counts_as_spent(waits: list[float]) -> None:
    """Nobody knows whether it is billed."""
    with ChatServer(once(Fault(cut=True))) as server, engine(server, max_cost="1", **PRICES) as talker:
        talker.generate(rows(server.spec, TEXTS[:1], max_tokens=20))
        assert talker._meter.budget.spent == pytest.approx(EACH + MOST)
    with ChatServer(once(Fault(500))) as server, engine(server, max_cost="1", **PRICES) as talker:
        talker.generate(rows(server.spec, TEXTS[:1], max_tokens=20))
        assert talker._meter.budget.spent == pytest.approx(EACH)


@pytest.mark.parametrize(
    ("usage", "billed"),
    [
        ({"completion_tokens": 5, "total_tokens": 1080, "completion_tokens_details": {"reasoning_tokens": 1000}}, 1005),
        ({"completion_tokens": 5, "total_tokens": 1080}, 1005),
        ({"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 1000}}, 1005),
        ({"completion_tokens": 5, "total_tokens": 80, "completion_tokens_details": {"reasoning_tokens": 1000}}, 1005),
        ({"completion_tokens": 1005, "total_tokens": 1080, "completion_tokens_details": {"reasoning_tokens": 1000}}, 1005),
        ({"completion_tokens": 5, "total_tokens": 80, "reasoning_tokens": 1000}, 1005),
        ({"completion_tokens": 5, "output_tokens_details": {"reasoning_tokens": 1000}}, 1005),
        ({"completion_tokens": "5", "total_tokens": "1080"}, 1005),
        ({"completion_tokens": 5, "total_tokens": None, "completion_tokens_details": None}, 5),
    ],
)
def test_thoughts_that_are_billed_are_counted(usage: dict[str, Any], billed: int, tmp_path: Path) -> None:
    """At 1 and 10 dollars a million an answer of 75 and 1,005 tokens is $0.010125: five cents buy four of them."""
    prices = {"prompt_price": "1", "answer_price": "10", "concurrency": "8", "max_cost": "0.05"}
    with (
        ChatServer(lambda *_: Fault(top={"usage": {"prompt_tokens": 75, **usage}})) as server,
        engine(server, **prices) as talker,
    ):
        if billed < 1000:
            said = talker.generate(rows(server.spec))
            assert {reply.answer_tokens for (reply,) in said} == {billed}
            return
        with pytest.raises(CostError, match=r"\$0\.0405 spent"):
            talker.generate(rows(server.spec))
    assert sum(server.asked.values()) == 4


def test_tokens_that_a_server_does_not_count_are_the_most() -> None:
    meter = CostMeter(Prices(2, 10), Budget(1.0))
    meter.settle(meter.reserve(Chat((Turn("user", TEXTS[0]),), max_tokens=20)), None, None)
    assert meter.budget.spent == pytest.approx(MOST)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"max_cost": "1"}, "a limit on the cost needs prices"),
        ({"max_cost": "much", "prompt_price": "1"}, "max_cost='much' is not an amount"),
        ({"omit": "model"}, "omit='model': only seed and temperature"),
        ({"url": "http://127.0.0.1:1/v1"}, "extra option url is given twice"),
    ],
)
def test_unusable_options(extra: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OpenAIEngine.check(resolve("http://127.0.0.1:1/v1#m"), EngineOptions(extra=extra), frozenset({"chat"}))


# --- what it is ------------------------------------------------------------------------------------------------------


def test_a_model_that_is_only_served() -> None:
    source = resolve("http://127.0.0.1:1/v1/#some/model")
    assert (source.served.url, source.served.name) == ("http://127.0.0.1:1/v1", "some/model")  # type: ignore[union-attr]
    assert source.heads == {"chat"}
    assert choose_engine(source, {"chat"}) == "openai"
    with pytest.raises(InputError, match=r"it is on a server.*--engine openai"):
        check_fit("transformers", source, EngineOptions(), frozenset({"chat"}))
    with pytest.raises(InputError, match="only supports chats"):
        encoder_for(source).encode(Continuation("The", (" man", " woman")))
    with pytest.raises(InputError, match="name the model too"):
        resolve("https://127.0.0.1/v1")


def test_answers_belong_to_the_served_model_whatever_is_installed_here() -> None:
    source = resolve("http://127.0.0.1:1/v1#m")
    info = identity("openai", source, EngineOptions(extra={"concurrency": "3", "max_cost": "1", "prompt_price": "2"}))
    assert (info.revision, info.dtype, info.versions) == ("served:http://127.0.0.1:1/v1#m", "served", {})
    assert fingerprint(info) == fingerprint(identity("openai", source, EngineOptions(dtype="bfloat16")))
    assert fingerprint(info) != fingerprint(identity("openai", resolve("http://127.0.0.1:2/v1#m"), EngineOptions()))


def test_replies_travel_through_the_journal_unchanged(tmp_path: Path) -> None:
    reply = Reply("ž", "length", (1, 2), 3, 4, "m", "s", "2026-01-01T00:00:00Z")
    chat = Chat((Turn("system", "Be kind"), Turn("user", "I cook")))
    Journal(tmp_path / "j.jsonl").add(chat, reply)
    assert Journal(tmp_path / "j.jsonl").get(chat) == reply
