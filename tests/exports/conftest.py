"""Runs of five tasks, with rates that are not defined and with limits; and the validators of other programs' formats."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_models import tiny_model, tiny_talker

import evaluator
from evaluator.cli import cli


@pytest.fixture(scope="session")
def run(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two models: gest and stereoset-en both, gest-who in words (which answer with nothing) and eurogest one."""
    folder = tmp_path_factory.mktemp("exports")
    models = {"org/one": str(tiny_model("gpt2", folder / "one")), "two": str(tiny_talker(folder / "two"))}
    how = {"engine": "transformers", "data": data_dir, "limit": 16, "verify": False}
    out = folder / "run"
    evaluator.run(["gest", "stereoset-en"], models, out, **{**how, "limit": 32})
    evaluator.run("gest-who", {"two": models["two"]}, out, way="text", orders=1, max_tokens=2, **how)
    evaluator.run("eurogest-cs", {"two": models["two"]}, out, **how)
    return out


@pytest.fixture(scope="session")
def translated(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of gest-mt: four systems' translations into two languages."""
    out = tmp_path_factory.mktemp("translated") / "run"
    given = ["--translations", str(data_dir / "gest" / "translations"), "--language", "cs", "--language", "sk"]
    done = CliRunner().invoke(cli, ["run", "gest-mt", *given, "--data", str(data_dir), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="session")
def validator() -> Callable[..., str]:
    """Runs a program of the validators' environment (`make validators`); gives what it prints, fails where it fails."""
    python = os.environ.get("EVALUATOR_VALIDATORS_PYTHON")
    if not python:
        pytest.skip("no EVALUATOR_VALIDATORS_PYTHON: make validators")

    def call(*arguments: object) -> str:
        done = subprocess.run([python, *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call
