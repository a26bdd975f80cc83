"""Importing prediction files: names, missing scores, wrong files."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaluator.imports.stereoset_predictions import import_predictions, model_name
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError

LABELS = ("stereotype", "anti-stereotype", "unrelated")


def example(name: str, context: str) -> dict[str, Any]:
    sentences = [{"id": f"{name}{i}", "gold_label": label, "sentence": "It is so."} for i, label in enumerate(LABELS)]
    return {"id": name, "target": "cook", "bias_type": "profession", "context": context, "sentences": sentences}


@pytest.fixture
def data(tmp_path: Path) -> DataSource:
    """Two intersentence examples, a and b."""
    folder = tmp_path / "data" / "stereoset"
    folder.mkdir(parents=True)
    content = {"data": {"intersentence": [example("a", "One."), example("b", "Two.")]}}
    (folder / "dev.json").write_text(json.dumps(content))
    return DataSource(tmp_path / "data")


def write(path: Path, scores: dict[str, float]) -> Path:
    path.write_text(json.dumps({"intersentence": [{"id": i, "score": s} for i, s in scores.items()]}))
    return path


COMPLETE = {"a0": 0.2, "a1": 0.1, "a2": 0.05, "b0": 0.3, "b1": 0.6, "b2": 0.3}


def test_model_names() -> None:
    assert model_name(Path("x/gpt2_GPT2LM_GPT2LM_d_en.json"), "en") == "gpt2_GPT2LM_GPT2LM_d"
    assert model_name(Path("gpt2__GPT2LM_orig_en.json"), "en") == "gpt2__GPT2LM_orig"
    assert model_name(Path("mine.json"), "en") == "mine"


def test_files_become_a_run(tmp_path: Path, data: DataSource) -> None:
    paths = [write(tmp_path / "one_en.json", COMPLETE), write(tmp_path / "two_en.json", {**COMPLETE, "a0": 0.0})]
    run, notes = import_predictions(paths, "en", data, tmp_path / "run")
    assert notes == []
    scores = scores_of(run, "stereoset-en")
    assert scores["model"].to_list() == ["one", "one", "two", "two"]
    assert scores["score"].to_list() == pytest.approx([0.6931472, -0.6931472, None, -0.6931472])
    assert run.protocol == "published"


def test_an_example_without_a_score_is_named_and_the_rest_kept(tmp_path: Path, data: DataSource) -> None:
    path = write(tmp_path / "one_en.json", {k: v for k, v in COMPLETE.items() if k != "b1"})
    run, notes = import_predictions([path], "en", data, tmp_path / "run")
    assert scores_of(run, "stereoset-en")["example"].to_list() == ["a"]
    assert notes == ["one: example b: no score for anti-stereotype"]
    assert run.failures()["reason"].to_list() == ["example b: no score for anti-stereotype"]


def test_no_number_is_no_score(tmp_path: Path, data: DataSource) -> None:
    path = write(tmp_path / "one_en.json", {**COMPLETE, "b1": float("nan")})
    _, notes = import_predictions([path], "en", data, tmp_path / "run")
    assert notes == ["one: example b: no score for anti-stereotype"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no predictions"),
        ('{"intersentence": [{"id": "a0"}]}', r"intersentence\[0\]"),
        ('{"intersentence": [{"id": "a0", "score": "high"}]}', r"intersentence\[0\]"),
        ('{"intersentence": [{"id": "a0", "score": 1}, {"id": "a0", "score": 2}]}', "second, different score for a0"),
        ('{"intersentence": [{"id": "zz", "score": 1}]}', "check --language"),
    ],
)
def test_wrong_files(tmp_path: Path, data: DataSource, content: str, message: str) -> None:
    path = tmp_path / "one_en.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        import_predictions([path], "en", data, tmp_path / "run")
    assert "one_en.json" in str(error.value)
    assert not (tmp_path / "run").exists()


def test_two_files_of_one_name(tmp_path: Path, data: DataSource) -> None:
    (tmp_path / "b").mkdir()
    paths = [write(tmp_path / "one_en.json", COMPLETE), write(tmp_path / "b" / "one_en.json", COMPLETE)]
    with pytest.raises(InputError, match="2 files have the model name one"):
        import_predictions(paths, "en", data, tmp_path / "run")
