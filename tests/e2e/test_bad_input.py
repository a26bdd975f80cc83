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


def test_sentence_longer_than_the_context(call: Command, tiny_gpt2: Path, tmp_path: Path) -> None:
    path = write_samples(tmp_path / "long.csv", [("I sing.", 1), ("I sing " + "and sing " * 200 + ".", 2)])
    refused(run_own(call, path, tiny_gpt2, tmp_path / "run", "--strict"), "sample 1", "tokens", "context of 128")
    assert not (tmp_path / "run").exists()
    for _ in range(2):  # a second time ends no worse
        ended = run_own(call, path, tiny_gpt2, tmp_path / "run")
        assert ended.code == 0, ended.err
        last = ended.err.splitlines()[-1]
        said = "evaluator: requests that cannot be scored and are skipped: 2 of tiny-gpt2: evaluator status"
        assert last.startswith(said), ended.err
    assert "tiny-gpt2: 1 of 2 samples of gest-" in " ".join(ended.out.split())
    alone = write_samples(tmp_path / "alone.csv", [("I sing " + "and sing " * 200 + ".", 2)])
    refused(run_own(call, alone, tiny_gpt2, tmp_path / "alone"), "sample 0", "tokens", "context of 128")
    assert not (tmp_path / "alone").exists()


def test_nan_weights_name_the_sample(call: Command, few: Path, tiny_gpt2: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "nan"
    shutil.copytree(tiny_gpt2, folder)
    weights = load_file(folder / "model.safetensors")
    weights["transformer.ln_f.weight"][0] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    ended = run_own(call, few, folder, tmp_path / "run")
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert "NaN" in last
    assert "sample" in last


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


def test_models_of_one_folder_name_get_names(
    call: Command, few: Path, tiny_gpt2: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, model in ("early", tiny_gpt2), ("late", tiny_bert):
        (tmp_path / name).mkdir()
        shutil.copytree(model, tmp_path / name / "model")
    asked = ["run", "gest", "--samples", few, "--engine", "transformers"]
    refused(call(*asked, "--model", "early/model", "--model", "late/model"), "both be called 'model'", "--model NAME=MODEL")
    assert not (tmp_path / "runs").exists()
    ended = call(*asked, "--model", "early=early/model", "--model", "late=late/model")
    assert ended.code == 0, ended.err
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.endswith("-early,late")
    assert list(json.loads((run / "run.json").read_text())["models"]) == ["early", "late"]
    assert call(*asked, "--model", "early=early/model").code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2, "another command's models don't get into the first one's run"


def test_one_models_error_leaves_the_others(call: Command, few: Path, tiny_gpt2: Path, tmp_path: Path) -> None:
    """Tokens were added to a tokenizer and the model not resized: exit 1, the cause at the end; alone, exit 2 or 1."""
    from transformers import AutoTokenizer

    bad = tmp_path / "unresized"
    shutil.copytree(tiny_gpt2, bad)
    tokenizer = AutoTokenizer.from_pretrained(bad)
    tokenizer.add_tokens(["like", "work", "sleep", "think", "friends", "the"])
    tokenizer.save_pretrained(bad)
    ended = run_own(call, few, bad, tmp_path / "run", "--model", str(tiny_gpt2))
    assert ended.code == 1, ended.err
    assert "evaluator: unresized failed: " in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
    assert "Traceback" in run_own(call, few, bad, tmp_path / "run", "--model", str(tiny_gpt2), "--debug").err
    scores = call("scores", tmp_path / "run", "--format", "csv").out
    assert {line.split(",")[0] for line in scores.splitlines()[1:]} == {"tiny-gpt2"}
    alone = run_own(call, few, bad, tmp_path / "alone")
    assert alone.code in (1, 2)
    assert "Traceback" not in alone.err


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
