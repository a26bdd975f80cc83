"""The Python interface: the numbers of the command line, from a light import."""

import io
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tiny_models import tiny_model, tiny_talker

import evaluator
from evaluator.cli import cli
from evaluator.comparison.differences import COMPARED
from evaluator.reports.results import Results
from evaluator.tasks import chosen_tasks
from evaluator.vocabulary import SCORES, TIDY
from evaluator_serving.errors import InputError
from tests.scoring.made_up import write_data

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.py"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two small generative models."""
    folder = tmp_path_factory.mktemp("models")
    return {name: str(tiny_model("gpt2", folder / name, seed=seed)) for seed, name in enumerate(("one", "two"))}


@pytest.fixture(scope="module")
def run(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Both on 32 of the shipped sentences."""
    return evaluator.run("gest-demo", models, tmp_path_factory.mktemp("runs") / "run", limit=32, engine="transformers")


def csv(*arguments: object) -> pl.DataFrame:
    """What a command prints as csv."""
    result = CliRunner().invoke(cli, [*map(str, arguments), "--format", "csv"])
    assert result.exit_code == 0, result.output
    return pl.read_csv(io.StringIO(result.stdout), schema_overrides={"template": pl.String, "group": pl.String})


def same(ours: pl.DataFrame, theirs: pl.DataFrame) -> bool:
    """Whether two tables are equal, with nothing rounded."""
    return ours.equals(theirs.select(pl.col(name).cast(dtype) for name, dtype in ours.schema.items()))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_numbers_are_those_of_the_command_line(run: Results) -> None:
    assert run.rates().schema == pl.Schema(TIDY)
    assert same(run.rates(scale="log10", resamples=100), csv("report", run.path, "--scale", "log10", "--resamples", 100))
    assert same(run.scores().select(list(SCORES)), csv("scores", run.path))
    compared = evaluator.compare(run, baseline="two", permutations=99)
    assert compared.schema == pl.Schema(COMPARED)
    assert same(compared, csv("compare", run.path, "--baseline", "two", "--permutations", 99))


def test_what_a_run_holds(run: Results) -> None:
    assert (run.models, run.tasks) == (["one", "two"], ["gest-demo"])
    answers = run.answers("one")
    assert answers.columns == ["request", "candidate", "tokens", "logprobs"]
    assert answers.height == run.candidates("gest-demo").filter(pl.col("model") == "one").height
    assert any("only 32" in note for note in run.notes)
    assert run.failures().is_empty()
    with pytest.warns(UserWarning, match="only 32"):
        run.rates(resamples=10)


def test_a_run_goes_on_where_it_was(run: Results, models: dict[str, str]) -> None:
    before = sorted((run.path / "logprobs").rglob("*.parquet"))
    again = evaluator.run(["gest-demo"], list(models.values()), run.path, limit=32, engine="transformers")
    assert again.models == ["one", "two"]  # the folders' names are the labels
    assert sorted((run.path / "logprobs").rglob("*.parquet")) == before


def test_how_a_question_is_put(models: dict[str, str], tmp_path: Path) -> None:
    """As with the options of the command: the tasks that know them get them."""
    wording = tmp_path / "mine.toml"
    wording.write_text('prompt = "{s} Who? (a) {a} (b) {b} (c) {c}"\nmale = "he"\nfemale = "she"\nneither = "?"\n')
    how: Any = {"limit": 8, "engine": "transformers"}
    data = write_data(tmp_path / "data")
    (name, *_) = models
    with pytest.raises(InputError, match="languages is a parameter of gest-mt, eurogest"):
        evaluator.run("gest-demo", models[name], tmp_path / "run", languages="cs", **how)
    with pytest.raises(InputError, match=r"no chat template"):
        evaluator.run(["gest-who"], models[name], tmp_path / "run", data=data, **how)
    talker = str(tiny_talker(tmp_path / "talker"))
    asked: Any = {"way": "text", "orders": 2, "wording": wording, "max_tokens": 3}
    run = evaluator.run(["gest-demo", "gest-who"], talker, tmp_path / "run", data=data, **how, **asked)
    assert run.tasks == ["gest-demo", chosen_tasks(["gest-who"], **asked)[0].name]
    assert run.record["models"]["talker"]["chats"]["replies"] == 2 * 8


def test_wrong_input_is_told_in_a_line(run: Results, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run"):
        evaluator.open(tmp_path)
    with pytest.raises(InputError, match="has no model 'three': it has one, two"):
        run.answers("three")
    with pytest.raises(InputError, match="has no task 'gest'"):
        run.scores("gest")
    with pytest.raises(InputError, match="gest-demo scores models and none is given"):
        evaluator.run("gest-demo", [])
    with pytest.raises(InputError, match="two or more models"):
        evaluator.compare(run, models=["one"])
    with pytest.raises(InputError, match="there is none"):
        evaluator.compare()


def test_the_import_is_light_and_run_stays_callable() -> None:
    code = """
import sys, evaluator
heavy = [name for name in ("torch", "transformers", "ray", "vllm", "onnxruntime", "polars", "numpy") if name in sys.modules]
assert not heavy, heavy
import evaluator.scoring.spec
assert callable(evaluator.run) and evaluator.scoring.spec.RunSpec
assert evaluator.open.__name__ == "open" and evaluator.compare.__name__ == "compare"
assert "torch" not in sys.modules
try:
    evaluator.nothing
except AttributeError as error:
    assert "no attribute 'nothing'" in str(error)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_the_notebook_runs(models: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NOTEBOOK_MODELS", ",".join(f"{name}={path}" for name, path in models.items()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left = runpy.run_path(str(NOTEBOOK))
    assert left["differences"].height > 10
    assert "['one', 'two'] ['gest-demo']" in capsys.readouterr().out
