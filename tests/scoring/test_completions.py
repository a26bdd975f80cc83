"""Runs against a completions server: killed while it answers, and continued when other weights are behind the same name."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_model

from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.vocabulary import DataSource
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from tests.scoring.made_up import write_data
from tests.serving.completions_server import CompletionsServer


def shifted(server: CompletionsServer, shift: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The server's way to answer with other weights behind it: every log P is lower by `shift`."""
    usual = server.complete

    def complete(body: dict[str, Any]) -> dict[str, Any]:
        answer = usual(body)
        for choice in answer["choices"]:
            for step in choice["logprobs"]["top_logprobs"]:
                step.update({name: value - shift for name, value in step.items()})
            for position in filter(None, choice.get("prompt_logprobs") or ()):
                for token in position.values():
                    token["logprob"] -= shift
        return answer

    return complete


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("gpt2", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data")


@pytest.fixture
def serve() -> Iterator[Any]:
    servers: list[CompletionsServer] = []

    def start(**how: Any) -> CompletionsServer:
        servers.append(CompletionsServer(**how))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def spec(
    folder: Path, data: Path, out: Path, server: CompletionsServer, name: str = "gest", limit: int | None = None
) -> RunSpec:
    options = EngineOptions(extra={"url": server.url, "concurrency": 2, "retries": 0})
    model = ModelSpec(str(folder), "openai", options=options, label="here")
    return RunSpec((model,), (task(name),), out, data=DataSource(data), limit=limit, verify=False)


@pytest.mark.parametrize(("more", "shift"), [("gest", 0.8), ("stereoset-en", 0.8), ("gest", 0.3)])
def test_other_weights_under_the_same_name_are_refused(
    more: str, shift: float, folder: Path, data: Path, tmp_path: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is extended, by sentences or by a task of which it has no answers yet."""
    server = serve()
    whole = more != "gest"
    run = execute(spec(folder, data, tmp_path / "run", server, limit=None if whole else 4)).run
    before = run.answers("here")
    extended = spec(folder, data, tmp_path / "run", server, more)
    near = shifted(server, 0.1)
    monkeypatch.setattr(server, "complete", shifted(server, shift))
    with pytest.raises(InputError, match=r"the server's model is not the one .*was -\d.* and is -\d.*another --out folder"):
        execute(extended)
    assert run.answers("here").equals(before)
    monkeypatch.setattr(server, "complete", near)  # no more than bfloat16 moves, and nothing says that it isn't
    execute(extended)
    assert run.answers("here").height > before.height


def prompts(server: CompletionsServer, monkeypatch: pytest.MonkeyPatch, killed: Callable[[int], None]) -> Counter[Any]:
    """Counts the prompts that the server has answered, each with what was asked of it; `killed` sees each request first."""
    answered: Counter[Any] = Counter()
    usual, lock, seen = server.complete, threading.Lock(), itertools.count(1)

    def complete(body: dict[str, Any]) -> dict[str, Any]:
        killed(next(seen))
        answer = usual(body)
        with lock:
            answered.update((tuple(ids), tuple(body["logprob_token_ids"])) for ids in body["prompt"])
        return answer

    monkeypatch.setattr(server, "complete", complete)
    return answered


@pytest.mark.slow
def test_killed_while_it_answers(folder: Path, data: Path, tmp_path: Path, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL when the n-th request comes, again and again: no prompt of the run that was answered is asked for twice."""
    script = (
        "from evaluator.cli import main; from evaluator.scoring import recovery; "
        "from evaluator_serving.openai_engine import engine; engine._PROMPTS_A_REQUEST = 2; recovery.FEW = 1; main()"
    )
    server = serve()
    extra = ["--extra", f"url={server.url}", "--extra", "concurrency=1", "--extra", "retries=0"]
    line = [sys.executable, "-c", script, "run", "gest", "--model", f"here={folder}", "--engine", "openai", *extra]
    line += ["--no-verify", "--out", str(tmp_path / "run")]
    process: list[subprocess.Popen[bytes]] = []
    moments = [6, 14, 22]

    def kill(request: int) -> None:
        if moments and request >= moments[0]:
            moments.pop(0)
            process[-1].send_signal(signal.SIGKILL)
            process[-1].wait()
            raise ConnectionAbortedError

    answered = prompts(server, monkeypatch, kill)
    shown: list[int] = []
    codes = []
    while not codes or codes[-1]:
        process.append(subprocess.Popen(line, env=os.environ | {"EVALUATOR_DATA": str(data)}))
        codes.append(process[-1].wait(timeout=300))
        assert codes[-1] in (0, -signal.SIGKILL)
        shown.append(len(Run.open(tmp_path / "run").done("here")))
        assert Run.open(tmp_path / "run").record["models"]["here"]["verified"] is False, "known before its first answer"
    assert codes == [-signal.SIGKILL] * 3 + [0]
    assert shown == sorted(shown)
    assert 0 < shown[2] < shown[3] == len(Run.open(tmp_path / "run").requests("here"))
    # Both words of both templates come of one prompt; of an old row alone, which every start asks again, two.
    scored = {prompt: times for prompt, times in answered.items() if len(prompt[1]) == 4}
    assert set(scored.values()) == {1}
    assert len(scored) == len(Run.open(tmp_path / "run").requests("here")) // 2
