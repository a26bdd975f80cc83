"""Import-linter's contracts hold, and notice what breaks them; no name means two classes."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECK = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

PLANTED = {
    "evaluator/vocabulary/rows.py": "from evaluator.tasks.base import Task",
    "evaluator/measures/scales.py": "from evaluator.reports import table",
    "serving/evaluator_serving/errors.py": "from evaluator.vocabulary import TIDY",
    "evaluator/datasets/normal_forms.py": "from evaluator.datasets import registry",
    "evaluator/datasets/registry.py": "from evaluator.datasets import normal_forms",
}
"""File → an import that doesn't belong there: to a higher room, to a higher package, and two that make a circle."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The three packages and their configuration."""
    for folder in ("evaluator", "serving/evaluator_serving", "kernels/evaluator_kernels"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.csv"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def checked(folder: Path) -> tuple[int, str]:
    places = os.pathsep.join(str(folder / place) for place in (".", "serving", "kernels"))
    environment = {**os.environ, "PYTHONPATH": places, "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_imports_run_downwards(copy: Path) -> None:
    code, said = checked(copy)
    assert code == 0, said
    assert "kept, 0 broken" in said


def test_a_planted_import_is_noticed(copy: Path) -> None:
    for name, line in PLANTED.items():
        path = copy / name
        path.write_text(f"{path.read_text(encoding='utf8')}\n{line}\n", encoding="utf8")
    code, said = checked(copy)
    assert code == 1, said
    assert said.count(" BROKEN") >= 3, said
    for found in (
        "evaluator.vocabulary is not allowed to import evaluator.tasks",
        "evaluator.measures is not allowed to import evaluator.reports",
        "evaluator_serving is not allowed to import evaluator",
    ):
        assert found in said
    assert "evaluator.datasets" in said


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for package in ("evaluator", "serving/evaluator_serving", "kernels/evaluator_kernels"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 200
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
