"""A package of its own, installed into an environment of its own: a measure with its data set and an engine, run end to end."""

import csv
import io
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.tiny_models import tiny_model

ROOT = Path(__file__).parents[2]

FILES = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "length-measure"
version = "0.3"

[project.entry-points."evaluator.tasks"]
lengths = "length_measure.task:Lengths"

[project.entry-points."evaluator.engines"]
letters = "length_measure.engine:Letters"

[tool.setuptools]
packages = ["length_measure"]

[tool.setuptools.package-data]
length_measure = ["*.csv"]
""",
    "length_measure/__init__.py": "",
    "length_measure/sentences.csv": "sentence,group\nThe nurse is,a\nThe doctor is,b\nThe boss is,b\n",
    "length_measure/task.py": '''
"""How much likelier `tired` is than `happy` behind a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import polars as pl
from pydantic import Field

from evaluator.datasets.check import sha256
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import REPORT, Parameters
from evaluator.vocabulary import Rendered, Samples, tidy
from evaluator_serving.requests import Continuation, request_id

FILE = Path(__file__).with_name("sentences.csv")
KEYS = ["model", "task", "language", "template", "group"]


class LengthParameters(Parameters):
    """What a report can choose."""

    times: Annotated[float, REPORT] = Field(default=1.0, description="what every mean is multiplied by")


@dataclass(frozen=True, slots=True)
class Lengths(Task):
    """Score: log P(tired) - log P(happy)."""

    about: ClassVar[str] = "tired or happy"
    columns: ClassVar[Mapping[str, pl.DataType]] = {"tokens": pl.Int64()}
    parameters: ClassVar[Parameters] = LengthParameters()
    name: str = "lengths"
    heads: frozenset[str] = frozenset({"causal"})

    def load(self, data):
        return Samples(pl.read_csv(FILE).with_row_index("sample").cast({"sample": pl.Int64}), {FILE.name: sha256(FILE)})

    def render(self, samples, heads, protocol):
        requests = {}
        rows = []
        for sample in samples.frame.iter_rows(named=True):
            request = Continuation(sample["sentence"], (" tired", " happy"))
            requests[request_id(request)] = request
            rows.append((sample["sample"], "en", "is", sample["group"], request_id(request)))
        columns = ["sample", "language", "template", "group", "request"]
        return Rendered(pl.DataFrame(rows, schema=columns, orient="row"), requests)

    def score(self, table, answers, protocol):
        tokens = pl.col("tokens").list.len().cast(pl.Int64)
        sums = answers.select("request", "candidate", x=pl.col("logprobs").list.sum(), n=tokens)
        one, other = (sums.filter(candidate=i).drop("candidate") for i in (0, 1))
        both = table.join(one, on="request", maintain_order="left").join(other, on="request", maintain_order="left")
        return both.select("language", "template", "sample", "group", score=pl.col("x") - pl.col("x_right"), tokens="n")

    def measure(self, scores, options):
        times = options.of(self.name, LengthParameters).times
        rows = scores.group_by(KEYS, maintain_order=True).agg(value=pl.col("score").mean() * times, n=pl.len().cast(pl.Int64))
        return tidy(rows.with_columns(measure=pl.lit("tiredness")))
''',
    "length_measure/engine.py": '''
"""Minus the number of a token, as its log-probability."""

import numpy as np

from evaluator_serving.engine import Engine


class Letters(Engine):
    """See the module's text."""

    name = "letters"
    summary = "minus the token's number"
    heads = frozenset({"causal"})
    dtypes = ("float32",)
    devices = ("cpu",)
    packages = ("length-measure",)
    comparable = False

    def __init__(self, source, options, rows, workload=None):
        self.check(source, options, frozenset(row.head for row in rows))
        self.device_kind = "cpu"

    def score(self, rows):
        return [np.array([-float(token) for _, token in row.lookups]) for row in rows]

    def close(self):
        """Nothing is held."""
''',
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has all that this one has, and the package."""
    folder = tmp_path_factory.mktemp("plugin")
    package = folder / "package"
    for name, text in FILES.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())
    venv.create(folder / "venv", with_pip=False)
    made = folder / "venv" / "bin" / "python"
    site = subprocess.run(
        [made, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    )
    own = [str(ROOT), str(ROOT / "serving"), str(ROOT / "kernels")]
    here = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (Path(site.stdout.strip()) / "layer.pth").write_text("\n".join([*own, *here]))
    command = [sys.executable, "-m", "pip", "--python", str(made), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--no-build-isolation", str(package)], check=True)
    return made


def evaluator(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "EVALUATOR_CACHE": str(python.parents[2] / "cache")}
    command = [str(python), "-m", "evaluator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=python.parents[2])


@pytest.mark.slow
def test_a_measure_and_an_engine_of_another_package(python: Path, tmp_path: Path) -> None:
    tasks = json.loads(evaluator(python, "tasks", "--json").stdout)
    (mine,) = [one for one in tasks if one["name"] == "lengths"]
    assert (mine["package"], mine["about"]) == ("length-measure 0.3", "tired or happy")
    assert mine["settings"] == {"times": "what every mean is multiplied by (default 1.0)"}
    model = tiny_model("gpt2", tmp_path / "gpt2")
    run = tmp_path / "run"
    done = evaluator(python, "run", "lengths", "--model", f"m={model}", "--engine", "letters", "--out", run)
    assert done.returncode == 0, done.stderr
    assert "tiredness" in done.stdout
    told = evaluator(python, "report", run, "--format", "csv", "--set", "times=2")
    assert told.returncode == 0, told.stderr
    assert "note: lengths: times = 2.0." in told.stderr
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(model)([" tired", " happy"])["input_ids"]
    expected = 2 * (sum(ids[1]) - sum(ids[0]))  # each token's log-probability is minus its number
    rows = list(csv.DictReader(io.StringIO(told.stdout)))
    assert {(row["group"], row["n"]): float(row["value"]) for row in rows} == {("a", "1"): expected, ("b", "2"): expected}
    entry = json.loads((run / "run.json").read_text())["models"]["m"]
    assert (entry["engine"], entry["versions"]["length-measure"]) == ("letters", "0.3")
    wrong = evaluator(python, "report", run, "--format", "csv", "--set", "time=2")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--set time: no task has this report setting: choose from times" in wrong.stderr
