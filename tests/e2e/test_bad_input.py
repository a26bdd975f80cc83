"""Bad input ends in one clear line on stderr and exit code 2, before anything is written or loaded."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.commands import Command, Ended, command
from tests.e2e.conftest import Evaluator, sentences, write_samples
from tests.json_files import edit


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command in this process (torch is imported once for all cases), what libraries write captured too."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return command(monkeypatch, capfd)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    return write_samples(tmp_path / "few.csv", sentences(4))


def refused(ended: Ended, *parts: str) -> None:
    """Exit code 2 and one line that contains all of `parts`."""
    assert ended.code == 2, ended.err
    assert [part for part in parts if part not in ended.line] == []


def run_own(call: Command, csv: Path, model: str | Path, out: Path, *more: str) -> Ended:
    return call("run", "gest", "--samples", csv, "--model", model, "--out", out, *more)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("sentence,kind\nI sing.,1\n", ["own.csv", "stereotype"]),
        ("sentence,stereotype\nI sing.,17\n", ["own.csv", "17", "line 2"]),
        ("sentence,stereotype\nI sing.,1\n  ,2\n", ["own.csv", "line 3", "empty"]),
    ],
)
def test_wrong_samples(call: Command, tiny_gpt2: Path, tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "own.csv"
    path.write_text(text)
    refused(run_own(call, path, tiny_gpt2, tmp_path / "run"), *parts)
    assert not (tmp_path / "run").exists()


def test_run_folder_of_another_spec(call: Command, few: Path, tiny_gpt2: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run_own(call, few, tiny_gpt2, out).code == 0
    before = (out / "run.json").read_bytes()
    refused(run_own(call, few, tiny_gpt2, out, "--protocol", "published"), "--protocol default", "--out")
    refused(run_own(call, few, tiny_gpt2, out, "--dtype", "float64"), "dtype", "--out")
    other = tmp_path / "other"
    shutil.copytree(tiny_gpt2, other / "tiny-gpt2")
    edit(other / "tiny-gpt2" / "config.json", note="changed")
    refused(run_own(call, few, other / "tiny-gpt2", out), "spec", "--out")
    assert (out / "run.json").read_bytes() == before
    foreign = tmp_path / "letters"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("dear")
    refused(run_own(call, few, tiny_gpt2, foreign), "letters", "not a run")


def test_unknown_words_of_the_command_line(call: Command, few: Path, tiny_gpt2: Path, tmp_path: Path) -> None:
    refused(call("run", "gets", "--model", tiny_gpt2, "--out", tmp_path / "run"), "gets", "gest")
    ended = run_own(call, few, tiny_gpt2, tmp_path / "run", "--engine", "warp")
    assert ended.code == 2
    assert "warp" in ended.err
    templates = tmp_path / "bad.toml"
    templates.write_text('name = "own"\n[[templates]]\nid = "1"\nkind = "odd"\ntext = "{s} []"\nwords = ["a", "b"]\n')
    refused(run_own(call, few, tiny_gpt2, tmp_path / "run", "--templates", str(templates)), "bad.toml", "kind")


def test_probe(call: Command, tiny_gpt2: Path, tiny_bert: Path) -> None:
    good = call("probe", tiny_gpt2, "I like to []", "cook", "read", "--format", "json")
    assert good.code == 0, good.err
    rows = json.loads(good.out)
    assert [r["word"] for r in rows] == ["cook", "read"]
    assert all(r["logprob"] < 0 and len(r["tokens"]) == len(r["ids"]) >= 1 for r in rows)
    masked = call("probe", tiny_bert, "[] said: I sing.", "He", "She", "--format", "json")
    assert masked.code == 0, masked.err
    assert len(json.loads(masked.out)) == 2


def test_probe_refuses_before_weights_are_loaded(
    call: Command, tiny_gpt2: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("too late")

    monkeypatch.setattr("evaluator_serving.opening.open_engine", loaded)
    refused(call("probe", tiny_gpt2, "[] in front", "x"), "must end in []")
    refused(call("probe", tiny_gpt2, "two [] slots []", "x"), "must end in []")
    refused(call("probe", tiny_bert, "[] said: I sing.", "He", "ж"), "'ж'")
    monkeypatch.setattr("evaluator_serving.models.resolving.resolve", loaded)  # a hub model isn't even downloaded
    refused(call("probe", "some/model", "no slot", "x"), "has no []")
    refused(call("probe", "some/model", "she is a []", "nurse", " "), "empty")


def test_traceback_only_with_debug(evaluator: Evaluator, tmp_path: Path) -> None:
    plain = evaluator("status", tmp_path)
    assert (plain.returncode, len(plain.stderr.splitlines())) == (2, 1)
    assert "Traceback" not in plain.stderr
    assert "Traceback" in evaluator("status", tmp_path, "--debug").stderr


def test_help_is_quick_to_import_and_has_examples(evaluator: Evaluator) -> None:
    """`--help` of the program imports none of the heavy packages; every command shows an example."""
    import subprocess

    code = "import sys, evaluator.cli; print({'torch', 'ray', 'vllm', 'polars', 'transformers'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"
    from evaluator.cli import COMMANDS, cli

    for name in COMMANDS:
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert "Example" in (command.help or ""), name
