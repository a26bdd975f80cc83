"""Trackers: what is logged is read back from the tracker itself, and one that fails costs one warning."""

import json
import os
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from click.testing import CliRunner
from tiny_models import tiny_model

import evaluator
from evaluator.cli import cli
from evaluator_serving.errors import InputError
from tests.local_server import Handler, LocalServer
from tests.ports import free_port

TASK = "gest-demo"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return {name: str(tiny_model("gpt2", folder / name, seed=seed)) for seed, name in enumerate(("one", "two"))}


@pytest.fixture(scope="module")
def run(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluator.run(TASK, models, tmp_path_factory.mktemp("runs") / "mine", limit=32, engine="transformers").path


def rates(path: Path) -> dict[str, dict[str, float]]:
    """Model → the rates over all groups, and their bounds, by the names under which they are logged."""
    with pytest.warns(UserWarning, match="only 32"):
        rows = evaluator.open(path).rates()
    found: dict[str, dict[str, float]] = {}
    for row in rows.filter(pl.col("group").is_null(), pl.col("other").is_null()).iter_rows(named=True):
        key = f"{TASK}/{row['measure']}/en/{row['template']}"
        numbers = {key: row["value"], f"{key}/low": row["low"], f"{key}/high": row["high"]}
        found.setdefault(row["model"], {}).update({k: v for k, v in numbers.items() if v is not None})
    return {model: numbers for model, numbers in found.items() if model != "all"}


def report(run: Path, tracker: str, **environment: str) -> str:
    """What `report --format csv --log-to TRACKER` prints in a process of its own; nothing but the report is on stdout."""
    command = [sys.executable, "-m", "evaluator", "report", str(run), "--format", "csv", "--log-to", tracker]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    assert len(pl.read_csv(done.stdout.encode(), infer_schema_length=0)) == done.stdout.count("\n") - 1
    return done.stderr


def test_trackio(run: Path, tmp_path: Path) -> None:
    stderr = report(run, "trackio", TRACKIO_DIR=str(tmp_path))
    assert "warning: trackio" not in stderr
    code = (
        "import json, trackio; from trackio.sqlite_storage import SQLiteStorage as storage\n"
        "runs = trackio.Api().runs('stereotypes')\n"
        "found = {run.name: (run.config, storage.get_logs('stereotypes', run.name)) for run in runs}\n"
        "print('\\n' + json.dumps(found, default=str))"
    )
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path)}
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    runs = json.loads(asked.stdout.splitlines()[-1])
    assert runs.keys() == {"one", "two", "mine"}
    for model, wanted in rates(run).items():
        config, (logged,) = runs[model]
        assert {key: logged[key] for key in wanted} == wanted
        assert (config["engine"], config["dtype"], config[f"{TASK}.samples"]) == ("transformers", "float32", "32")
    assert any(path.stat().st_size > 1000 for path in (tmp_path / "artifacts").rglob("*") if path.is_file())


def wandb_records(path: Path) -> Iterator[bytes]:
    """Records of an offline run's file: LevelDB's log format behind a header of seven bytes."""
    content, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or a record's last part
            yield parts
            parts = b""


def test_wandb_offline(run: Path, tmp_path: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    """From Python."""
    code = "import sys, evaluator; evaluator.log_to(evaluator.open(sys.argv[1]), 'wandb')"
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, check=True, env=environment)
    assert "wandb was not logged to" not in done.stderr
    found: dict[str, dict[str, Any]] = {}
    for file in tmp_path.rglob("*.wandb"):
        name, logged = "", dict[str, Any]()
        for data in wandb_records(file):
            record = Record()
            record.ParseFromString(data)
            name = record.run.display_name or name
            for item in record.history.item:
                logged[item.key or item.nested_key[0]] = json.loads(item.value_json)
        found[name] = logged
    assert found.keys() == {"one", "two", "mine"}
    for model, wanted in rates(run).items():
        assert {key: found[model][key] for key in wanted} == wanted
    assert list(tmp_path.rglob("files/media/images/*.png"))


def test_a_tracker_that_is_not_known_or_not_installed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="unknown tracker 'tensorboard': choose mlflow, wandb, trackio"):
        evaluator.log_to(run, "tensorboard")  # type: ignore[arg-type]
    monkeypatch.setattr("evaluator.trackers.importlib.util.find_spec", lambda name: None)
    done = CliRunner().invoke(cli, ["report", str(run), "--log-to", "mlflow"])
    assert "--log-to mlflow needs the package mlflow: pip install" in str(done.exception)


def test_nobody_answers(models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens: the run is whole, the exit code 0, the warning one."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    arguments = ["run", TASK, "--model", f"one={models['one']}", "--limit", "8", "--engine", "transformers"]
    with warnings.catch_warnings(record=True, action="always") as warned:
        done = CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path / "run"), "--log-to", "mlflow"])
    assert done.exit_code == 0, done.output
    assert len([w for w in warned if "mlflow was not logged to" in str(w.message)]) == 1
    assert evaluator.open(tmp_path / "run").scores().height == 8 * 2


def test_files_that_cannot_be_made_cost_a_warning(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere to put the figures."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.warns(UserWarning, match="wandb was not logged to .*No such file"):
        done = CliRunner().invoke(cli, ["report", str(run), "--format", "csv", "--log-to", "wandb"])
    assert done.exit_code == 0, done.exception


def test_one_that_never_answers_is_left(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes connections and says nothing. Standard output then belongs to the program again."""
    import socket

    output = sys.stdout
    silent = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
    monkeypatch.setattr("evaluator.trackers.PATIENCE", 1.0)
    with silent:
        with pytest.warns(UserWarning, match=r"mlflow was not logged to \(no answer in 1 s\)"):
            evaluator.log_to(run, "mlflow")
        assert sys.stdout is output


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A real MLflow server of `make mlflow`: its address and process."""
    python = os.environ.get("EVALUATOR_MLFLOW_PYTHON")
    if not python:
        pytest.skip("no EVALUATOR_MLFLOW_PYTHON: make mlflow")
    port = free_port()
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/mlflow.db",
        "--artifacts-destination",
        str(tmp_path / "artifacts"),
    ]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                if httpx.get(f"{address}/health", timeout=5).text == "OK":
                    break
            except httpx.HTTPError:
                assert process.poll() is None, (tmp_path / "server.log").read_text()[-2000:]
                threading.Event().wait(0.5)
        yield address, process
    finally:
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """End the server and its workers: they are a session of their own."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.mark.slow
def test_mlflow(
    models: dict[str, str], server: tuple[str, "subprocess.Popen[str]"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, parameters and files of `run --log-to mlflow` are read back; then the server dies while it is logged to."""
    from mlflow import MlflowClient

    address, process = server
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    given = [word for name, path in models.items() for word in ("--model", f"{name}={path}")]
    arguments = ["run", TASK, *given, "--limit", "32", "--engine", "transformers", "--out", str(tmp_path / "mine")]
    done = CliRunner().invoke(cli, [*arguments, "--log-to", "mlflow"])
    assert done.exit_code == 0, done.output
    client = MlflowClient()
    experiment = client.get_experiment_by_name("stereotypes")
    assert experiment is not None
    runs = {found.info.run_name: found for found in client.search_runs([experiment.experiment_id])}
    assert runs.keys() == {"one", "two", "mine"}
    for model, wanted in rates(tmp_path / "mine").items():
        assert runs[model].data.metrics == wanted
        assert runs[model].data.params["engine"] == "transformers"
        assert runs[model].data.tags["mlflow.parentRunId"] == runs["mine"].info.run_id
        assert runs[model].info.status == "FINISHED"
    files = {file.path for file in client.list_artifacts(runs["mine"].info.run_id)}
    assert {"run.json", "rates.csv"} <= files
    assert any(name.endswith(".png") for name in files)

    # Through a door behind which the server is killed at the fourth request.
    door = _door(address, process, 4)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", door.url)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    arguments[-1] = str(tmp_path / "again")
    with pytest.warns(UserWarning, match="mlflow was not logged to") as warned:
        done = CliRunner().invoke(cli, [*arguments, "--log-to", "mlflow"])
    door.close()
    assert process.poll() is not None
    assert done.exit_code == 0, done.output
    assert len([w for w in warned if "mlflow" in str(w.message)]) == 1
    assert evaluator.open(tmp_path / "again").scores().height == evaluator.open(tmp_path / "mine").scores().height


def _door(address: str, process: "subprocess.Popen[str]", last: int) -> LocalServer:
    """Hands requests on to the server, and kills it when so many have come."""
    count = 0

    class Door(Handler):
        def do_GET(self) -> None:
            nonlocal count
            count += 1
            if count == last:
                _end(process)
            body = self.body()
            try:
                kind = {"Content-Type": self.headers.get("Content-Type", "application/json")}
                answer = httpx.request(self.command, address + self.path, content=body, headers=kind, timeout=30)
            except httpx.HTTPError:
                self.close_connection = True
                return
            kind = {"content-type": answer.headers.get("Content-Type", "application/json")}
            self.answer(answer.status_code, answer.content, kind)

        do_POST = do_PUT = do_GET

    return LocalServer(Door)
