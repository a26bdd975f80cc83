"""Watching a run: metrics, lines of a log, signs of life."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import psutil
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families as parse

from evaluator import cli, logs
from evaluator.cli.status import refuse_stuck
from evaluator.scoring.driver import execute, prepare
from evaluator.scoring.heartbeat import SILENT_AFTER, Driver, Heartbeat, read_heartbeat
from evaluator.scoring.metrics import METRICS, REQUESTS, Values
from evaluator.scoring.sentences import Sentences
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.scoring.status import driver_signs, model_rows
from evaluator.store.run import Run
from evaluator_serving import engine
from evaluator_serving.errors import InputError
from tests.commands import Command
from tests.commands import command as in_process
from tests.e2e.conftest import write_samples
from tests.own_tasks import custom
from tests.ports import free_port
from tests.tiny_models import tiny_model

NOW = 1_000_000.0
HERE = Driver("here", "boot", os.getpid(), psutil.Process().create_time())


def read(url: str) -> dict[tuple[str, ...], float]:
    """(name, values of the labels of METRICS) → value, as Prometheus would read a page of metrics."""
    known = {m.name: m for m in METRICS}
    found = {}
    with urllib.request.urlopen(url, timeout=60) as page:
        for family in parse(page.read().decode()):
            for sample in family.samples:
                if metric := known.get(sample.name.removeprefix("ray_")):
                    found[(metric.name, *(sample.labels[label] for label in metric.labels))] = sample.value
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models and a file of ten sentences."""
    folder = tmp_path_factory.mktemp("watched")
    for seed in (1, 2):
        tiny_model("gpt2", folder / f"m{seed}", seed=seed)
    write_samples(folder / "own.csv", [(f"I am not {'always ' * i}tired", i + 1) for i in range(10)])
    return folder


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Several chunks a model; and text lines afterwards."""
    monkeypatch.setitem(engine.CHUNK_TOKENS, "cpu", 60)
    yield
    logs.use("text")


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_of_a_run_are_what_its_folder_says(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched over HTTP at the end of the run, against the stored timings and answers."""
    pages: list[dict[tuple[str, ...], float]] = []
    port = free_port()
    spec = RunSpec(
        models=tuple(ModelSpec(str(folder / name), "transformers") for name in ("m1", "m2")),
        tasks=(custom(folder / "own.csv"),),
        out=tmp_path / "night",
        metrics=("127.0.0.1", port),
    )
    from evaluator.scoring.local import ThisProcess

    close = ThisProcess.close

    def read_at_the_end(replica_source: ThisProcess) -> None:
        pages.append(read(f"http://127.0.0.1:{port}/metrics"))
        close(replica_source)

    monkeypatch.setattr(ThisProcess, "close", read_at_the_end)
    run = execute(spec).run
    (page,) = pages
    timings = run.timings()
    for name in ("m1", "m2"):
        mine = timings.filter(model=name)
        assert mine.height >= 2, "several chunks"
        here = {
            key[0]: value for key, value in page.items() if key[1:] == ("night", name) and key[0] != "evaluator_sentences_total"
        }
        assert here == {
            "evaluator_requests_total": run.answers(name)["request"].n_unique(),
            "evaluator_rows_total": mine["rows"].sum(),
            "evaluator_tokens_total": mine["tokens"].sum(),
            "evaluator_requests_left": 0,
            "evaluator_request_failures_total": 0,
            "evaluator_chunk_failures_total": 0,
            "evaluator_replicas": 0,
            "evaluator_replica_restarts_total": 0,
        }
        assert page["evaluator_sentences_total", "night", name] == 10
        seconds = {stage: page["evaluator_stage_seconds_total", "night", name, stage] for stage in ("load", "encode", "write")}
        assert all(0 < value < 600 for value in seconds.values()), seconds
        forward = page["evaluator_stage_seconds_total", "night", name, "forward"]
        assert forward == pytest.approx(mine["seconds"].sum())
        for state in ("waiting", "in_flight"):
            assert page["evaluator_chunks", "night", name, state] == 0
        assert page["evaluator_host_memory_peak_bytes", "night", name, "0"] == mine["host_memory"][-1]
    assert 0 <= time.time() - page["evaluator_last_progress_timestamp_seconds", "night"] < 600
    assert {key[0] for key in page} == {metric.name for metric in METRICS}
    with pytest.raises(OSError, match="refused"):
        read(f"http://127.0.0.1:{port}/metrics")


def test_sentences_count_when_their_last_answer_comes() -> None:
    """By hand: `a` belongs to two samples, sample 2 was half answered before, sample 3 is asked by two tasks."""
    table = pl.DataFrame({"sample": ["1", "1", "2", "2", "3"], "request": ["a", "b", "a", "old", "c"]})
    requests = ["b", "old", "c", "a"]
    left = Sentences({"gest": table, "other": pl.DataFrame({"sample": ["3"], "request": ["c"]})}, requests, {"old"})
    assert [left.answered([requests.index(request)]) for request in ("a", "b", "c")] == [1, 1, 2]


def test_a_port_that_is_taken_is_one_line_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = rf"127\.0\.0\.1:{port} \(Address already in use\): give another"
        with pytest.raises(InputError, match=said):
            prepare(RunSpec((ModelSpec("no-such-model"),), (), tmp_path / "run", metrics=("127.0.0.1", port)))


@pytest.mark.parametrize("given", ["0", "65536", "x", ":9400", "9400:"])
def test_a_wrong_port_is_refused(given: str) -> None:
    done = CliRunner().invoke(cli.cli, ["run", "gest-demo", "--model", "none", "--metrics-port", given])
    assert (done.exit_code, "is not a port" in done.output) == (2, True), done.output


@pytest.mark.slow
@pytest.mark.ray
def test_metrics_come_through_rays_exporter(folder: Path, tmp_path: Path) -> None:
    """Scraped from the node's agent, as Prometheus does it, while the sweep runs."""
    import ray

    from evaluator.sweep.on_ray import cluster
    from evaluator.sweep.on_ray.metrics import RayMetrics

    cluster.connect("local", 1)
    try:
        exporter = RayMetrics()
        values: dict[Any, float] = {(REQUESTS, ("night", "m")): 3.0}
        exporter.publish(values)
        exporter.publish({**values, (REQUESTS, ("night", "m")): 5.0})
        every: Values = {(m, tuple(f"{label}-value" for label in m.labels)): 2.0 for m in METRICS}
        exporter.publish({**every, (REQUESTS, ("night", "m")): 5.0})
        (node,) = ray.nodes()
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        deadline = time.monotonic() + 240
        page: dict[tuple[str, ...], float] = {}
        while len({key[0] for key in page}) < len(METRICS) and time.monotonic() < deadline:
            time.sleep(1)
            with contextlib.suppress(OSError):  # the node's agent may still be starting
                page = read(url)
    finally:
        cluster.disconnect()
    assert page.pop(("evaluator_requests_total", "night", "m")) == 5
    assert page == {(metric.name, *labels): 2.0 for (metric, labels) in every}


# --- logs ------------------------------------------------------------------------------------------------------------


def test_log_lines_have_times_or_are_json(folder: Path, tmp_path: Path) -> None:
    """The same command twice, then one that fails: every line of the JSON log has the same keys."""
    command = ["run", "gest", "--samples", str(folder / "own.csv"), "--model", str(folder / "m1"), "--engine", "transformers"]
    for form in ("text", "json"):
        done = CliRunner().invoke(cli.cli, [*command, "--out", str(tmp_path / form), "--log-format", form])
        assert done.exit_code == 0, done.output
        lines = done.stderr.splitlines()
        if form == "text":
            assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (m1|gest-\w{8}): .+", line) for line in lines), lines
            assert "own.csv was read as UTF-8" in lines[0]
            said = [re.sub(r"^\S+ \S+ m1: ", "", line) for line in lines[1:]]
        else:
            encoding, *records = [json.loads(line) for line in lines]
            assert {tuple(record) for record in (encoding, *records)} == {("time", "level", "message", *logs.FIELDS)}
            assert "own.csv was read as UTF-8" in encoding["message"]
            assert {(r["level"], r["run"], r["model"]) for r in records} == {("info", "json", "m1")}
            assert [r["message"] for r in records if "/s" not in r["message"]] == [line for line in said if "/s" not in line]
            (scored,) = (r for r in records if "/s" in r["message"])
            assert scored["replica"] == 0
            assert re.fullmatch("[0-9a-f]{8}", scored["chunk"])


@pytest.mark.parametrize("wrong", [["--model", "none/"], ["--bogus"]])
@pytest.mark.parametrize("format_", [["--log-format", "json"], ["--log-format=json"]])
def test_how_a_command_ended_is_json_too(wrong: list[str], format_: list[str], command: Command) -> None:
    ended = command("run", "gest-demo", *wrong, *format_)
    record = json.loads(ended.line)
    assert (ended.code, record["level"], record["message"][:11]) == (2, "error", "evaluator: ")


NATIVE = """
import os, subprocess, sys
from evaluator import logs
from evaluator.foreign_lines import json_stderr

logs.use("json")
with json_stderr():
    sys.stderr.reconfigure(errors="backslashreplace")
    logs.line("ours", model="m")
    os.write(2, b"a library's own: hf_0123456789abcdefghij\\n\\n{}\\n")
    subprocess.run(["sh", "-c", "printf '10%%\\\\r100%%\\\\n' >&2; " + sys.argv[2]])
    logs.line("ours again", model="m")
    os.write(2, b"without an end")
    if sys.argv[1] == "dies":
        os.abort()
print("out", flush=True)
os.write(2, b"after it\\n")
"""


@pytest.mark.parametrize(("end", "left"), [("dies", ""), ("ends", "sleep 20 > /dev/null &")])
def test_what_libraries_write_is_json_too(end: str, left: str, tmp_path: Path) -> None:
    """In order, without secrets, into a pipe or a file, also the last word of a process that dies, and where a child holds
    stderr open for longer."""
    command = [sys.executable, "-c", NATIVE, end, left]
    if end == "dies":
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()
    else:
        with (tmp_path / "log").open("w") as file:
            assert subprocess.run(command, stdout=subprocess.PIPE, stderr=file, check=True).stdout == b"out\n"
        lines = (tmp_path / "log").read_text().splitlines()
        assert lines.pop() == "after it"
    records = [json.loads(line) for line in lines]
    assert {tuple(record) for record in records} == {("time", "level", "message", *logs.FIELDS)}
    said = [record["message"] for record in records]
    assert said == ["ours", "a library's own: [secret]", "{}", "100%", "ours again", "without an end"]
    assert [record["model"] for record in records] == ["m", None, None, None, "m", None]


def test_a_command_with_a_json_log_takes_care_of_them(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned(*_: object, **__: object) -> SimpleNamespace:
        os.write(2, b"[W1129 utils.cpp:68] Warning\n")
        return SimpleNamespace(outcome=None, models_asked=())

    monkeypatch.setattr("evaluator.scoring.run.run", warned)
    monkeypatch.setattr("evaluator.cli.run.finish", lambda *_: None)
    ended = in_process(monkeypatch, capfd)("run", "gest-demo", "--model", "m", "--out", "r", "--log-format", "json")
    assert (ended.code, json.loads(ended.line)["message"]) == (0, "[W1129 utils.cpp:68] Warning")


def test_an_interruption_is_one_line_of_json(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evaluator.scoring.run.run", interrupted)
    ended = command("run", "gest-demo", "--model", "m", "--out", "r", "--log-format", "json")
    assert ended.code == 130
    assert json.loads(ended.line)["message"].startswith("interrupted: all finished work is kept")


# --- signs of life ---------------------------------------------------------------------------------------------------


def shown(driver: Driver, beat: float, **more: Any) -> dict[str, Any]:
    return {"driver": driver.record(), "updated": beat, "progressed": beat - 5, "ended": False, **more}


GONE = replace(HERE, started=HERE.started - 5000)
"""A process of an earlier start with a number that another one has now."""
FRESH, OLD = NOW - 5, NOW - SILENT_AFTER - 5


@pytest.mark.parametrize(
    ("said", "held", "state"),
    [
        ({}, False, "ended"),
        ({}, True, "running"),
        (shown(HERE, FRESH), True, "running"),
        (shown(HERE, OLD), True, "silent"),
        (shown(HERE, FRESH), False, "ended"),
        (shown(GONE, OLD), True, "running"),  # another command holds the run
        (shown(replace(HERE, host="there"), FRESH), False, "running"),
        (shown(replace(HERE, host="there"), NOW + 20), False, "running"),  # a clock that is ahead
        (shown(replace(HERE, host="there"), OLD), False, "silent"),
        (shown(replace(HERE, boot="other"), OLD), False, "silent"),
        (shown(replace(HERE, host="there"), FRESH, ended=True), False, "ended"),
        ({"driver": {"host": 3}, "updated": "junk"}, False, "ended"),
    ],
)
def test_the_drivers_state(said: dict[str, Any], held: bool, state: str) -> None:
    found = read_heartbeat(said, held=held, now=NOW, here=HERE)
    assert found.state == state
    known = said.get("progressed")
    assert found.quiet(NOW) == (None if known is None else max(0, NOW - known))


HELD = """
import sys, time
from pathlib import Path
from evaluator_serving import engine
from evaluator.scoring.local import Later
engine.CHUNK_TOKENS["cpu"] = 20
result, out = Later.result, Path(sys.argv[-1])
Later.result = lambda call: (any(out.glob("logprobs/*/*/part-*")) and time.sleep(600), result(call))[1]
from evaluator.cli import main
main()
"""
"""A run's driver, which waits when it has stored its first part."""


@pytest.fixture
def stopped(folder: Path, tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A run whose driver was suspended in the middle."""
    out = tmp_path / "run"
    given = ["run", "gest", "--samples", str(folder / "own.csv"), "--model", str(folder / "m1"), "--engine", "transformers"]
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", HELD, *given, "--out", str(out)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        while not list((out / "logprobs").glob("*/*/part-*")):
            assert driver.poll() is None
            time.sleep(0.02)
        driver.send_signal(signal.SIGSTOP)
        yield out, driver
        driver.kill()


def test_a_suspended_driver_reads_as_that_and_a_killed_one_as_interrupted(
    stopped: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    out, driver = stopped
    run = Run.open(out)

    def status(*more: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli.cli, ["status", str(out), *more], env={"COLUMNS": "200"})
        return done.exit_code, done.output

    deadline = time.monotonic() + 60
    while driver_signs(run).state != "stopped" and time.monotonic() < deadline:
        time.sleep(0.05)  # the signal is on its way
    code, text = status("--fail-if-stuck", "10m")
    assert code == 0
    assert "stopped" in text
    assert f"driver: suspended on {socket.gethostname()} (process {driver.pid})" in text
    assert re.search(r"last progress 0:0\d:\d\d ago", text)
    time.sleep(0.2)
    code, text = status("--fail-if-stuck", "0.1s")
    assert code == 1
    assert re.search(r"evaluator: stuck: no progress for 0:0\d:\d\d, 1 of 1 models are unfinished", text)
    driver.kill()
    driver.wait()
    assert [row["state"] for row in model_rows(run)] == ["interrupted"]
    told = json.loads(status("--format", "json")[1])
    assert (told["driver"]["state"], told["driver"]["process"]) == ("ended", driver.pid)
    assert 0 < told["progress_age"] < 600


def test_only_what_is_unfinished_is_stuck() -> None:
    found = Heartbeat("ended", None, None, NOW - 600)
    done = [{"name": "a", "state": "done"}, {"name": "b", "state": "failed"}, {"name": "c", "state": "imported"}]
    refuse_stuck(done, found, 1.0, NOW)
    rows = [*done, {"name": "d", "state": "interrupted"}]
    refuse_stuck(rows, found, 601.0, NOW)
    for limit, progressed in ((600.0, NOW - 600), (601.0, None)):
        with pytest.raises(Exception, match="1"):
            refuse_stuck(rows, replace(found, progressed=progressed), limit, NOW)


def test_a_driver_gives_signs_while_a_chunk_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evaluator.scoring import progress

    monkeypatch.setattr(progress, "BEAT_EVERY", 0.02)
    with progress.ProgressView(tmp_path, [progress.ModelProgress("m", 3, 0)]):
        first = json.loads((tmp_path / "progress.json").read_text())
        deadline = time.monotonic() + 60
        while (now := json.loads((tmp_path / "progress.json").read_text()))["updated"] == first["updated"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert now["progressed"] == first["progressed"]
    assert now["driver"] == first["driver"] == json.loads(json.dumps(Driver.here().record()))
    assert json.loads((tmp_path / "progress.json").read_text())["ended"]
    assert not any(thread.name == "progress.json" for thread in threading.enumerate())
