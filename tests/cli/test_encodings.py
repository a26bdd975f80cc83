"""Whatever the locale's encoding, a command prints its result: UTF-8 into pipes and files, what can be shown on a terminal."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaluator.store.run import Run
from tests.made_up_runs import add_scores, score_frame

CHILD = """
import json, sys
from evaluator.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["evaluator", *arguments]
    try:
        main()
    except SystemExit as stop:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\\0%d\\0" % stop.code)
        sys.stdout.flush()
"""
"""Several commands one after the other in one process, each ended by its exit code between zeros."""

NAME = "modèle-č…"
ENCODINGS = {
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
}


def environment(encoding: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONIO", "PYTHONUTF8"))}
    return kept | ENCODINGS[encoding]


def ended(encoding: str, *commands: list[str]) -> list[tuple[int, str]]:
    """Exit code and output of each command; the output is read as UTF-8."""
    child = [sys.executable, "-c", CHILD, json.dumps(commands)]
    result = subprocess.run(child, capture_output=True, env=environment(encoding), check=False, timeout=300)
    parts = result.stdout.split(b"\0")
    assert len(parts) == 2 * len(commands) + 1, result.stderr.decode(errors="replace")
    return [(int(code), text.decode("utf-8")) for text, code in zip(parts[0::2], parts[1::2], strict=False)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with an imported model whose name only Unicode has."""
    made = Run.create_or_open(tmp_path_factory.mktemp("runs") / "run", protocol="default", provenance={})
    add_scores(made, "gest", NAME, score_frame("3", [(str(i % 16 + 1), (i % 5 - 2) / 3) for i in range(48)]))
    return str(made.path)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_results_are_utf8_where_they_are_not_on_a_terminal(run: str, encoding: str) -> None:
    reports = [["report", run, "--format", f] for f in ("table", "markdown", "latex", "html", "csv", "json")]
    others = [["scores", run], ["scores", run, "--format", "json"], ["status", run], ["status", run, "--format", "json"]]
    for (code, text), command in zip(ended(encoding, *reports, *others), [*reports, *others], strict=True):
        assert code == 0, command
        assert NAME in text.replace("\\_", "_").replace(r"\dots{}", "…"), command
    for code, text in ended(encoding, ["--help"], ["run", "--help"], ["report", "--help"], ["data", "list"]):
        assert code == 0
        assert text


def test_probe_says_words_of_any_alphabet(tmp_path: Path) -> None:
    from tests.tiny_models import tiny_model

    folder = tiny_model("gpt2", tmp_path / "gpt2")
    ask = ["probe", str(folder), "Она сказала, что []", "врач", "č"]
    (code, text), (code_json, text_json) = ended("C", ask, [*ask, "--format", "json"])
    assert (code, code_json) == (0, 0)
    assert "врач" in text
    assert "log P" in text
    assert [row["word"] for row in json.loads(text_json)] == ["врач", "č"]


def _on_terminal(env: dict[str, str], *arguments: str) -> tuple[int, bytes]:
    """Exit code and what a terminal gets."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "evaluator", *arguments]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=env)
    os.close(theirs)
    read = b""
    try:
        while block := os.read(ours, 65536):
            read += block
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    return process.wait(timeout=300), read


def test_a_terminal_gets_what_it_can_show(run: str) -> None:
    env: dict[str, Any] = environment("ascii") | {"TERM": "dumb", "COLUMNS": "200"}
    for arguments in (["status", run], ["scores", run]):
        code, read = _on_terminal(env, *arguments)
        assert code == 0, read
        assert r"mod\xe8le-\u010d\u2026" in read.decode("ascii"), arguments
