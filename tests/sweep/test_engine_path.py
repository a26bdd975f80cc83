"""`module:Class` of a class on PYTHONPATH that no package registers is an engine everywhere."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.store.run import Run
from tests.tiny_models import tiny_model

ENGINE = """
from evaluator_serving.transformers_engine.engine import TransformersEngine

class Mine(TransformersEngine):
    name = "registered-nowhere"
"""
PATH = "engine_of_mine:Mine"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, a sweep file and PYTHONPATH with the class."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "engine_of_mine.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    model = tiny_model("gpt2", tmp_path / "model")
    settings = f'tasks = ["gest-demo"]\nout = "{tmp_path / "run"}"\nlimit = 8\n[[models]]\nmodel = "{model}"\nname = "m"\n'
    (tmp_path / "SWEEP.toml").write_text(settings + f'engine = "{PATH}"\n')
    return tmp_path


def output(*arguments: Any) -> str:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_engine_by_its_path_is_planned_swept_and_probed(folder: Path) -> None:
    plan = json.loads(output("plan", folder / "SWEEP.toml", "--ray", "none", "--format", "json"))
    assert [need["demand"]["engine"] for need in plan["needs"]] == [PATH]
    output("sweep", folder / "SWEEP.toml", "--ray", "none")
    entry = Run.open(folder / "run").record["models"]["m"]
    assert entry["engine"] == PATH
    assert "verified" in entry["verified"]
    asked = ("probe", folder / "model", "The man is []", "strong", "weak", "--format", "json")
    assert output(*asked, "--engine", PATH) == output(*asked, "--engine", "transformers")


@pytest.mark.slow
def test_an_engine_by_its_path_is_measured(folder: Path) -> None:
    said = output("bench", folder / "model", "--engine", PATH, "--samples", "8", "--slices", "2", "--task", "gest-demo")
    assert PATH in said


@pytest.mark.ray
def test_an_engine_by_its_path_runs_in_rays_processes(folder: Path) -> None:
    output("sweep", folder / "SWEEP.toml", "--ray", "local", "--workers", "2")
    assert Run.open(folder / "run").record["models"]["m"]["engine"] == PATH
