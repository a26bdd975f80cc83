"""Runs of imported scores: a few models, sixteen groups, two templates."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evaluator.cli import cli
from tests.made_up_runs import write_gest, write_predictions

ROWS = 320

MakeRun = Callable[..., Path]


def invoke(*arguments: object) -> Result:
    """The command line in this process."""
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def scores(male: float = 0.0, noise: float = 0.0, seed: int = 0) -> list[float]:
    """log10 ratios of the same sentences for each model; `male` is added to those of the male groups, and noise to all."""
    base, own = random.Random(0), random.Random(f"{male} {noise} {seed}")
    return [base.gauss(0, 1) + (male if i % 16 > 6 else 0) + own.gauss(0, noise) for i in range(ROWS)]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 20 sentences of each stereotype."""
    return write_gest(tmp_path_factory.mktemp("data"), ROWS)


def make_run(out: Path, data: Path, **models: list[float]) -> Path:
    """A run of generative models with these scores at both templates."""
    files = out.with_name(out.name + "-files")
    for name, values in models.items():
        write_predictions(files, name, values, values)
    result = invoke("import", "gest-predictions", "--kind", "glm", files, "--out", out, "--data", data)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="session")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`base`, its copy, and `tuned`, whose male groups are 0.5 higher (log10)."""
    out = tmp_path_factory.mktemp("runs") / "both"
    return make_run(out, data, base=scores(), copy=scores(), tuned=scores(0.5, 0.3))
