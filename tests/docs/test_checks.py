"""The checks before a commit are those of CI."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_pre_commit_runs_what_make_lint_runs() -> None:
    lint = (ROOT / "Makefile").read_text().split("\nlint:", 1)[1].split("\n\n", 1)[0]
    wanted = {f".venv/bin/{command}".removesuffix(" .") for command in re.findall(r"^\t\$\(BIN\)/(.+)$", lint, re.MULTILINE)}
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {hook["entry"] for hook in repo["hooks"]} == wanted
    assert "make lint" in (ROOT / ".ci" / "run").read_text()
