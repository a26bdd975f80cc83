"""The whole way of run, report and probe where nothing of Linux is there: macOS and Windows, as far as that shows here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_models import tiny_model

import evaluator
from evaluator.cli import cli

BARE = """
import os, sys
import psutil  # has a twin of its own for each system; Linux's needs resource
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None  # importing it raises ImportError
for name in ("posix_fadvise", "sched_getaffinity", "sysconf", "pread", "pwrite", "fork"):
    delattr(os, name)
import pathlib
import evaluator_serving.memory
evaluator_serving.memory._STATUS = pathlib.Path("no-such-folder/status")
from evaluator_serving import locks
assert locks.fcntl is None
assert evaluator_serving.memory.peak_memory() > 1 << 20
assert evaluator_serving.memory.usable_cores() >= 1
from evaluator.cli import cli
for line in sys.argv[1].splitlines():
    cli.main(line.split("\\t"), standalone_mode=False)
"""


def test_run_report_and_probe_need_nothing_of_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Locks without fcntl are files that are there: in a cache where others have used fcntl's they would be waited for.
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    model, run = str(tiny_model("llama", tmp_path / "model")), str(tmp_path / "run")
    lines = (
        ("run", "gest-demo", "--limit", "8", "--model", model, "--engine", "onnx", "--out", run),
        ("status", run),
        ("report", run, "--format", "csv"),
        ("probe", model, "The nurse said that []", "he", "she", "--engine", "onnx", "--format", "json"),
    )
    asked = "\n".join("\t".join(line) for line in lines)
    done = subprocess.run([sys.executable, "-c", BARE, asked], capture_output=True, text=True, encoding="utf8", timeout=300)
    assert done.returncode == 0, done.stderr
    assert "model,task" in done.stdout.replace(" ", "")
    assert '"logprob"' in done.stdout


def test_only_these_modules_look_where_linux_keeps_its_facts() -> None:
    root = Path(__file__).resolve().parents[2]
    files = [file for folder in ("evaluator", "serving", "kernels") for file in (root / folder).rglob("*.py")]
    assert len(files) > 100
    wanted = ("import fcntl", "import resource", '"/proc')
    found = {file.name for file in files if any(word in file.read_text("utf8") for word in wanted)}
    assert found == {"benches.py", "devices.py", "heartbeat.py", "locks.py", "memory.py"}  # each has a twin for other systems


LIGHT = """
import sys
for name in ("torch", "transformers"):
    sys.modules[name] = None  # importing it raises ImportError
from evaluator.cli import cli
for line in sys.argv[1].splitlines():
    cli.main(line.split("\\t"), standalone_mode=False)
"""


def test_an_exported_model_is_scored_without_torch_and_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    model = str(tiny_model("llama", tmp_path / "model", seed=5))
    first = evaluator.run("gest-demo", {"m": model}, tmp_path / "first", limit=40, device="cpu")
    assert first.record["models"]["m"]["engine"] == "onnx"
    probe = ("probe", model, "The nurse said that []", "he", "she", "--format", "json")
    lines = (
        ("run", "gest-demo", "--limit", "40", "--model", f"m={model}", "--out", str(tmp_path / "second")),
        ("run", "gest-demo", "--limit", "9", "--model", f"m={model}", "--out", str(tmp_path / "third")),
        probe,
    )
    asked = "\n".join("\t".join(line) for line in lines)
    done = subprocess.run([sys.executable, "-c", LIGHT, asked], capture_output=True, text=True, encoding="utf8", timeout=300)
    assert done.returncode == 0, done.stderr
    second, third = (evaluator.open(tmp_path / name) for name in ("second", "third"))
    key = ["task", "model", "sample", "template", "group"]
    before, after = (results.scores("gest-demo").sort(*key) for results in (first, second))
    assert before.height == 80
    assert after.equals(before)
    record = {name: results.record["models"]["m"] for name, results in (("first", first), ("second", second))}
    assert "verified against transformers:" in record["first"]["verified"]
    assert "verified against transformers (cached):" in record["second"]["verified"]
    assert record["first"]["fingerprint"] == record["second"]["fingerprint"]
    assert "earlier run's rows" in third.record["models"]["m"]["verified"]
    exact = CliRunner().invoke(cli, [*probe, "--engine", "transformers", "--dtype", "float64"])
    expected = [row["logprob"] for row in json.loads(exact.stdout)]
    found = [row["logprob"] for row in json.loads(done.stdout.splitlines()[-1])]
    assert found == pytest.approx(expected, abs=1e-4)
