"""Which PyTorch `make setup` installs: a stand-in for pip writes down what it was asked; the index is a server of this test."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy"))
import install_torch

from tests.local_server import Handler, LocalServer


@pytest.fixture
def pip(tmp_path: Path) -> Path:
    """A Python whose pip fails where the index is called `/broken`."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncase "$*" in *broken*) exit 1;; esac\n')
    python.chmod(0o755)
    return python


def asked(pip: Path) -> list[str]:
    return (pip.parent / "asked").read_text().splitlines()


@pytest.fixture
def server() -> Iterator[str]:
    class Index(Handler):
        def do_HEAD(self) -> None:
            if "slow" in self.path:
                time.sleep(2)
            self.answer(200)

    with LocalServer(Index) as http:
        yield http.url


def test_the_cpu_build_where_its_index_answers(pip: Path, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert install_torch.install(str(pip), [], f"{server}/cpu") == 0
    assert asked(pip) == [f"-m pip install --quiet torch==2.13.0 --index-url {server}/cpu"]
    assert capsys.readouterr().out.splitlines()[-1] == f"torch==2.13.0: CPU build of {server}/cpu"


def test_else_what_the_configured_index_has(pip: Path, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert install_torch.install(str(pip), [], "http://127.0.0.1:1") == 0
    assert asked(pip) == ["-m pip install --quiet torch==2.13.0"]
    assert capsys.readouterr().out.endswith("(several GB larger): http://127.0.0.1:1 does not answer\n")
    assert install_torch.install(str(pip), [], f"{server}/broken") == 0
    assert asked(pip)[1:] == [f"-m pip install --quiet torch==2.13.0 --index-url {server}/broken", asked(pip)[0]]
    assert not install_torch.answers(f"{server}/slow", 0.5)


def test_a_build_of_the_users_own(pip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["torch", "--index-url", "https://example.org/cu130"]
    called = subprocess.run([sys.executable, install_torch.__file__, str(pip), *given])
    assert called.returncode == 0
    assert asked(pip) == ["-m pip install --quiet torch --index-url https://example.org/cu130"]


def test_a_driver_is_told_the_line_for_cuda(
    pip: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install_torch.shutil, "which", lambda name: f"/usr/bin/{name}")
    install_torch.install(str(pip), [], "http://127.0.0.1:1")
    assert capsys.readouterr().out.startswith("an NVIDIA driver is here; the CUDA build: make setup TORCH=")
