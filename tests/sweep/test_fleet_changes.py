"""Machines that join and leave while a sweep runs are used and missed, and the tables are those of an undisturbed run."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from tests.e2e.conftest import sentences, write_samples
from tests.scoring.faulty import held
from tests.tiny_models import tiny_model

pytestmark = [pytest.mark.ray, pytest.mark.slow]


SENTENCES = 1500


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without workers and one machine with one."""
    from tests.sweep.patient_ray import PatientCluster

    made = PatientCluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        yield made
    finally:
        made.shutdown()


def wait_for(run: Path, replicas: int, driver: subprocess.Popen[bytes], log: Path) -> None:
    """Until so many replicas of the model have stored something."""
    deadline = time.monotonic() + 250
    while time.monotonic() < deadline:
        assert driver.poll() is None, log.read_text()
        if (run / "run.json").is_file():
            entries = Run.open(run).record["models"].values()
            if sum(len(entry.get("starts", ())) for entry in entries) >= replicas:
                return
        time.sleep(0.3)
    raise AssertionError(log.read_text())


def test_a_machine_joins_and_another_leaves(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    first = cluster.add_node(num_cpus=1)
    samples = write_samples(tmp_path / "own.csv", sentences(SENTENCES))
    model = tiny_model("gpt2", tmp_path / "gpt2")
    path, gate = tmp_path / "SWEEP.toml", tmp_path / "gate"
    path.write_text(f'tasks = ["gest"]\nsamples = "{samples}"\n[[models]]\nmodel = "{model}"\n{held(gate)}')
    command = [sys.executable, "-m", "evaluator", "sweep", str(path)]
    run, log = tmp_path / "run", tmp_path / "log"
    with log.open("w") as file:
        driver = subprocess.Popen(
            [*command, "--out", str(run), "--ray", cluster.address], stdout=subprocess.DEVNULL, stderr=file
        )
    try:
        wait_for(run, 1, driver, log)
        cluster.add_node(num_cpus=1)
        wait_for(run, 2, driver, log)  # it is used
        cluster.remove_node(first, allow_graceful=False)
        gate.touch()
        assert driver.wait(timeout=300) == 0, log.read_text()
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    assert "Traceback" not in log.read_text()
    path.write_text(path.read_text().replace(held(gate), 'engine = "transformers"\n'))
    whole = [*command, "--out", str(tmp_path / "whole"), "--ray", "none"]
    subprocess.run(whole, check=True, capture_output=True, timeout=400)
    found, expected = (Run.open(folder) for folder in (run, tmp_path / "whole"))
    assert found.failures().is_empty()
    a, b = (scores_of(one, one.tasks[0]).sort("template", "sample") for one in (found, expected))
    assert a.height == b.height == 2 * SENTENCES
    assert float((a["score"] - b["score"]).abs().max()) < 1e-4
