"""Attempts of a cluster at the same command: what can't succeed is refused at once, everything else goes on."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluator import logs
from evaluator.deploy.attempt import attempt


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A command that counts its calls and ends with the code that the file says."""
    script = "import sys; open(sys.argv[2], 'a').write('.'); sys.exit(int(open(sys.argv[1]).read()))"
    (tmp_path / "code").write_text("2")
    return [sys.executable, "-c", script, str(tmp_path / "code"), str(tmp_path / "calls")]


@pytest.fixture(autouse=True)
def handlers() -> object:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_wrong_input_is_not_tried_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = f"open({str(tmp_path / 'calls')!r}, 'a').write('.'); raise SystemExit(2)"
    (tmp_path / "SWEEP.toml").write_text("wrong")
    given = [sys.executable, "-c", script, str(tmp_path / "SWEEP.toml")]
    assert [attempt(tmp_path / "marks", given) for _ in range(3)] == [2, 2, 2]
    assert (tmp_path / "calls").read_text() == "."
    mark = next((tmp_path / "marks").iterdir())
    assert f"remove {mark}" in capfd.readouterr().err
    (tmp_path / "SWEEP.toml").write_text("mended")
    assert attempt(tmp_path / "marks", given) == 2
    assert (tmp_path / "calls").read_text() == "..", "another file is another attempt"
    mark.unlink()
    (tmp_path / "SWEEP.toml").write_text("wrong")
    assert attempt(tmp_path / "marks", given) == 2
    assert (tmp_path / "calls").read_text() == "..."


@pytest.mark.parametrize("code", [0, 1, 130])
def test_every_other_end_is_tried_again(code: int, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "code").write_text(str(code))
    assert [attempt(tmp_path / "marks", command) for _ in range(2)] == [code, code]
    assert (tmp_path / "calls").read_text() == ".."
    assert not (tmp_path / "marks").exists()


def test_its_lines_are_json_where_the_commands_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        given = [sys.executable, "-c", "raise SystemExit(2)", "--log-format", "json"]
        assert [attempt(tmp_path / "marks", given) for _ in range(2)] == [2, 2]
        (line,) = capfd.readouterr().err.splitlines()
        assert json.loads(line)["message"].startswith("evaluator: refused before, and its input has not changed")
    finally:
        logs.use("text")


def test_arguments_that_are_no_files_and_places_that_cannot_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the arguments are, the command is run, and its exit code is the attempt's."""
    (tmp_path / "file").write_text("")
    large = tmp_path / "model.gguf"
    with large.open("wb") as file:
        file.truncate(1 << 40)  # nobody reads that into memory
    given = [sys.executable, "-c", "raise SystemExit(2)", "x" * 5000, "\udcff", str(large), "http://bob:s3cret@proxy"]
    assert attempt(tmp_path / "file" / "marks", given) == 2
    said = capfd.readouterr().err
    assert "the marker of a refused command can't be written to" in said
    assert "Traceback" not in said
    assert attempt(tmp_path / "marks", given) == 2
    (mark,) = (tmp_path / "marks").iterdir()
    assert b"s3cret" not in mark.read_bytes()
    assert attempt(tmp_path / "marks", [str(tmp_path / "none")]) == 127
    assert attempt(tmp_path / "marks", [str(tmp_path / "file")]) == 126
    assert "none can't be run: No such file or directory" in capfd.readouterr().err


def test_a_kill_leaves_no_mark_and_signals_go_on(tmp_path: Path) -> None:
    assert attempt(tmp_path / "marks", [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137
    ready = tmp_path / "ready"
    script = f"import signal, time; signal.signal(15, lambda *_: exit(130)); open({str(ready)!r}, 'w'); time.sleep(600)"
    given = [sys.executable, "-m", "evaluator.deploy.attempt", str(tmp_path / "marks"), sys.executable, "-c", script]
    with subprocess.Popen(given) as driver:
        while not ready.exists():
            assert driver.poll() is None
            time.sleep(0.02)
        driver.terminate()
        assert driver.wait(timeout=200) == 130
    assert not (tmp_path / "marks").exists()
