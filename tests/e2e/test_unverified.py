"""Whether an engine was compared with the oracle is recorded, and told where it wasn't."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.scoring.worker import Load, Worker
from evaluator.store.run import Run
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.resolving import resolve
from tests.e2e.conftest import sentences, write_samples

OWN = "evaluator_serving.transformers_engine.engine:TransformersEngine"
"""To the program an engine of the user's own."""


@pytest.mark.parametrize("verify", [True, False])
def test_in_this_process(tiny_gpt2: Path, tmp_path: Path, verify: bool) -> None:
    samples = write_samples(tmp_path / "few.csv", sentences(2))
    asked = [
        "run",
        "gest",
        "--samples",
        str(samples),
        "--model",
        str(tiny_gpt2),
        "--engine",
        OWN,
        "--out",
        str(tmp_path / "run"),
    ]
    result = CliRunner().invoke(cli, asked if verify else [*asked, "--no-verify"])
    assert result.exit_code == 0, result.output
    (entry,) = Run.open(tmp_path / "run").record["models"].values()
    assert isinstance(entry["verified"], str) == verify
    assert ("was not compared with transformers" in " ".join(result.stdout.split())) != verify


def test_in_a_worker(tiny_gpt2: Path) -> None:
    source, options = resolve(str(tiny_gpt2)), EngineOptions(device="cpu")
    for engine, verified in ((OWN, False), ("transformers", None)):
        worker, load = Worker(), Load(engine, source, options, (), None, verify=False)
        worker.fetch(load)
        assert worker.load(load).verified is verified
