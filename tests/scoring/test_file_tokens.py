"""Runs of models whose class makes other tokens than their tokenizer.json."""

import json
from pathlib import Path

import pytest
from tiny_models import tiny_model

from evaluator.reports.notes import run_notes
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator_serving.errors import InputError
from evaluator_serving.models import file_tokens
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom


def spec_of(folder: Path, *, space: bool) -> RunSpec:
    """A byte-level model labelled GPT2Tokenizer; with `space` its file puts a space in front of a text."""
    model = tiny_model("gpt2", folder / "model")
    described = json.loads((model / "tokenizer.json").read_text())
    described["pre_tokenizer"] |= {"add_prefix_space": space, "trim_offsets": not space}
    (model / "tokenizer.json").write_text(json.dumps(described))
    configured = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(configured | {"tokenizer_class": "GPT2Tokenizer"}))
    samples = write_samples(folder / "own.csv", [(text, group) for text, group in sentences(8) if len(text) < 90])
    return RunSpec((ModelSpec(str(model), "transformers", label="m"),), (custom(samples),), folder / "run")


def test_the_run_says_that_the_file_is_used_and_older_answers_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, space=True)
    with monkeypatch.context() as older:
        older.setattr(file_tokens, "with_file_tokens", lambda source, _: source)
        execute(spec)
    with pytest.raises(InputError, match=r"made with another details for model m: .*tokenizer\.json.*another --out folder"):
        execute(spec)
    entry = execute(RunSpec(spec.models, spec.tasks, tmp_path / "new")).run.record["models"]["m"]
    assert entry["details"]["tokenizer"] == "tokenizer.json"
    assert entry["tokenizer"] == {"instead_of": "GPT2Tokenizer", "differ": True}
    again = execute(RunSpec(spec.models, spec.tasks, tmp_path / "new"))
    note = "m: its tokens come from its tokenizer.json and differ from those of transformers' GPT2Tokenizer."
    assert note in run_notes(again.run.record)


def test_right_answers_of_an_older_version_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(tmp_path, space=False)
    with monkeypatch.context() as older:
        older.setattr(file_tokens, "with_file_tokens", lambda source, _: source)
        before = dict(execute(spec).run.record["models"]["m"])
    after = execute(spec).run.record["models"]["m"]
    assert after["fingerprint"] == before["fingerprint"]
    assert Run.open(spec.out).record["models"]["m"].get("tokenizer", {"differ": False})["differ"] is False
