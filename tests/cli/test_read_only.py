"""Reading a run needs no right to write in it."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.store.run import Run
from tests.made_up_runs import add_scores, score_frame

COMMANDS = [
    ["status", "RUN"],
    ["scores", "RUN"],
    *(["report", "RUN", "--format", f] for f in ("table", "csv", "json", "markdown", "latex", "html")),
    ["validity", "RUN"],
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of both tasks that `validity` compares."""
    made = Run.create_or_open(tmp_path / "run", protocol="default", provenance={})
    columns = {"gest": ("3", [str(i) for i in range(1, 17)]), "winobias": ("type1-test", ["male", "female"])}
    for model in range(4):
        for name, (template, groups) in columns.items():
            rows = [(g, (i * 7 + model * model) % 5 / 3) for i, g in enumerate(groups * 3)]
            add_scores(made, name, f"m{model}", score_frame(template, rows))
    return made.path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_every_writing_call_fails(run: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(run)
    os_open, path_open = os.open, Path.open

    def refuse(path: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    def low(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if str(path).startswith(str(run)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse(path)
        return os_open(path, flags, *more, **named)

    def high(path: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        if path.is_relative_to(run) and set(mode) & set("wax+"):
            refuse(path)
        return path_open(path, mode, *more, **named)

    monkeypatch.setattr(os, "open", low)
    monkeypatch.setattr(Path, "open", high)
    monkeypatch.setattr(Path, "mkdir", lambda path, *_, **__: refuse(path))
    for command in COMMANDS:
        result = CliRunner().invoke(cli, [str(run) if part == "RUN" else part for part in command])
        assert result.exit_code == 0, (command, result.output)
        assert result.stdout
    assert f"not kept in {run / 'tables'}: {os.strerror(number)}" in result.stderr
    assert content(run) == before


@pytest.mark.skipif(
    os.geteuid() != 0
    or shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
    reason="needs root to mount",
)
def test_a_read_only_mount(run: Path) -> None:
    mount = f"mount --bind {run} {run} && mount -o remount,ro,bind {run} && ! touch {run}/x 2>/dev/null"
    program = f"{sys.executable} -m evaluator"
    commands = [f"{program} {command} {run} >/dev/null" for command in ("status", "report", "validity")]
    script = " && ".join([mount, *commands])
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("not kept in")
