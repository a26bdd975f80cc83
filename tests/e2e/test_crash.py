"""Nothing is lost: SIGKILL at many moments, a full disk; the same command finishes the run."""

import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from evaluator.store.answers import ANSWERS
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from tests.e2e.conftest import Evaluator


def raw_requests(run: Path) -> list[str]:
    """Ids of all stored answers, candidate 0, with any repetitions."""
    parts = (run / "logprobs").glob("*/*/part-*.parquet")
    return pl.concat([pl.DataFrame(schema=ANSWERS), *map(pl.read_parquet, parts)]).filter(candidate=0)["request"].to_list()


def arguments(model: Path, samples: Path, out: Path) -> list[str]:
    return ["run", "gest", "--samples", str(samples), "--model", str(model), "--out", str(out)]


@pytest.fixture(scope="module")
def undisturbed(evaluator: Evaluator, tiny_gpt2: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    done = evaluator(*arguments(tiny_gpt2, samples, out))
    assert done.returncode == 0, done.stderr
    return out


def assert_equal_runs(a: Path, b: Path) -> None:
    """The same answers, scores and tables, to the last bit."""
    first, second = Run.open(a), Run.open(b)
    assert first.tasks == second.tasks
    (task,) = first.tasks
    assert scores_of(first, task).equals(scores_of(second, task))
    assert sorted(raw_requests(a)) == sorted(raw_requests(b))


@pytest.mark.slow
def test_killed_at_twenty_moments(
    undisturbed: Path, evaluator: Evaluator, tiny_gpt2: Path, samples: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    begun = time.monotonic()
    command = [sys.executable, str(Path(__file__).with_name("killer.py")), "7", "0", "0"]
    subprocess.run([*command, *arguments(tiny_gpt2, samples, tmp_path / "timed")], check=True, capture_output=True)
    whole = time.monotonic() - begun
    command[3:5] = ["20", str(whole * 0.6)]
    done = subprocess.run([*command, *arguments(tiny_gpt2, samples, out)], check=True, capture_output=True, text=True)
    killed, code = map(int, done.stdout.split())
    assert code == 0
    assert killed >= 10, "most attempts must have been hit while they ran"
    requests = raw_requests(out)
    assert len(requests) == len(set(requests)), "a finished request was scored again"
    assert_equal_runs(undisturbed, out)
    report = ["--format", "csv"]
    assert evaluator("report", out, *report).stdout == evaluator("report", undisturbed, *report).stdout


@pytest.mark.slow
def test_killed_on_object_storage_and_finished_on_other_machines(
    undisturbed: Path, evaluator: Evaluator, tiny_gpt2: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    from object_servers import s3_server

    from evaluator.store.remote import run_folder

    with s3_server(tmp_path) as server:
        url = server.url("night/gest")
        # The commands' folders differ from machine to machine; a kill is followed by the lease's end, 3 s.
        machines = server.environment(tmp_path / "machine{}")
        command = [sys.executable, str(Path(__file__).with_name("killer.py")), "3", "6", "6"]
        command += [*arguments(tiny_gpt2, samples, Path())[:-1], url]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=machines)
        killed, code = map(int, done.stdout.split())
        assert code == 0
        assert killed >= 3, "most attempts must have been hit while they ran"
        here = server.environment(tmp_path / "reader")
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL", "EVALUATOR_CACHE"):
            monkeypatch.setenv(key, here[key])
        assert_equal_runs(undisturbed, run_folder(url))
        report = ["--format", "csv"]
        assert evaluator("report", url, *report).stdout == evaluator("report", undisturbed, *report).stdout
        status = evaluator("status", url)
        assert status.stdout.startswith(url)
        assert "done" in status.stdout
        compared = evaluator("compare", url, undisturbed, "--format", "csv", "--permutations", "10", "--resamples", "10")
        assert compared.returncode == 0, compared.stderr
        scores = evaluator("scores", url)
        assert scores.stdout == evaluator("scores", undisturbed).stdout


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_full_disk_is_one_line_and_resumes(
    undisturbed: Path, evaluator: Evaluator, tiny_gpt2: Path, samples: Path, tmp_path: Path
) -> None:
    """A real full disk: a tmpfs of 100 kB, enlarged before the second attempt."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"can't mount a tmpfs: {mounted.stderr.decode()}")
    try:
        full = evaluator(*arguments(tiny_gpt2, samples, disk / "run"))
        assert full.returncode == 2, full.stderr
        assert "No space left on device" in full.stderr.splitlines()[-1]
        assert "Traceback" not in full.stderr
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        done = evaluator(*arguments(tiny_gpt2, samples, disk / "run"))
        assert done.returncode == 0, done.stderr
        assert_equal_runs(undisturbed, disk / "run")
    finally:
        subprocess.run(["umount", disk], check=True)
