"""The whole way of run, report and probe where nothing of Linux is there: macOS and Windows, as far as that shows here."""

import subprocess
import sys
from pathlib import Path

from tiny_models import tiny_model

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


def test_run_report_and_probe_need_nothing_of_linux(tmp_path: Path) -> None:
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


def test_only_one_module_looks_where_linux_keeps_its_facts() -> None:
    root = Path(__file__).resolve().parents[2]
    files = [file for folder in ("evaluator", "serving", "kernels") for file in (root / folder).rglob("*.py")]
    assert len(files) > 100
    wanted = ("import fcntl", "import resource", '"/proc')
    found = {file.name for file in files if any(word in file.read_text("utf8") for word in wanted)}
    assert found == {"locks.py", "memory.py"}
