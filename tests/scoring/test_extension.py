"""A run that grew by several commands reports what one undisturbed command does: nothing is lost, nothing scored twice."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
from safetensors.numpy import load_file
from tiny_models import tiny_model

from evaluator.imports.gest_predictions import import_predictions
from evaluator.reports.notes import run_notes
from evaluator.reports.report import build_report
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import RunSpec
from evaluator.store.run import Run
from evaluator.sweep.config import read_sweep
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import MeasureOptions
from evaluator_serving.errors import InputError
from tests.scoring.made_up import SENTENCES, write_data


@dataclass(frozen=True)
class Step:
    """One command: its tasks, its models (name in the run → folder of the model) and its limit."""

    tasks: tuple[str, ...]
    models: tuple[tuple[str, str], ...]
    limit: int | None = None


GEST, STEREOSET = ("gest",), ("stereoset-en",)
GPT, BERT = (("gpt", "gpt"),), (("bert", "bert"),)
WHOLE = Step(GEST + STEREOSET, GPT + BERT)

SCENARIOS: dict[str, list[Step]] = {
    "tasks, then models": [Step(GEST, GPT), Step(GEST + STEREOSET, GPT), WHOLE],
    "models, then tasks": [Step(GEST, GPT), Step(GEST, GPT + BERT), WHOLE],
    "one pair a command": [Step(t, m) for t in (STEREOSET, GEST) for m in (GPT, BERT)],
    "a second kind of head": [Step(GEST, BERT), Step(STEREOSET, BERT), Step(GEST + STEREOSET, GPT)],
    "a task removed and added": [WHOLE, Step(GEST, GPT + BERT), WHOLE],
    "a model removed": [WHOLE, Step(GEST, GPT)],
    "limit raised": [replace(WHOLE, limit=2), WHOLE],
    "limit lowered": [WHOLE, replace(WHOLE, limit=2)],
    "a task under a limit": [Step(GEST, GPT + BERT), replace(WHOLE, limit=1), Step(STEREOSET, GPT), Step(STEREOSET, BERT)],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models and, in the layout of the public files, made-up data."""
    folder = tmp_path_factory.mktemp("extension")
    tiny_model("gpt2", folder / "gpt")
    tiny_model("bert-pretraining", folder / "bert")
    write_data(folder / "data")
    return folder


def spec_of(step: Step, folder: Path, out: Path, protocol: str = "default") -> RunSpec:
    """The step as a sweep file, read."""
    limit = f"limit = {step.limit}\n" if step.limit else ""
    models = "".join(f'[[models]]\nname = "{name}"\nmodel = "{folder / model}"\n' for name, model in step.models)
    path = out.with_suffix(".toml")
    path.write_text(
        f'tasks = {json.dumps(step.tasks)}\nprotocol = "{protocol}"\ndata = "{folder / "data"}"\n{limit}'
        f'[defaults]\nengine = "transformers"\n{models}'
    )
    return read_sweep(path, out=out)


def rows(run: Run) -> pl.DataFrame:
    """The report's rows in an order that doesn't depend on the order of the commands."""
    frame = build_report(run, MeasureOptions(resamples=20)).rows
    return frame.sort("task", "model", "language", "template", "measure", "group", "other")


def alone(rows: pl.DataFrame, model: str) -> pl.DataFrame:
    """The rows of one model that don't depend on which others are there."""
    return rows.filter(pl.col("model") == model, pl.col("measure") != "r_models")


def answered(run: Run) -> list[str]:
    """Every stored answer's place and request, with any repetitions."""
    parts = sorted((run.path / "logprobs").glob("*/*/part-*.parquet"))
    return [f"{p.parts[-3]}: {r}" for p in parts for r in pl.read_parquet(p).filter(candidate=0)["request"]]


@pytest.fixture(scope="module")
def whole(folder: Path) -> Run:
    return execute(spec_of(WHOLE, folder, folder / "whole")).run


def swept(spec: RunSpec) -> object:
    return sweep(spec, SweepOptions("none"))


SWEPT = ("tasks, then models", "one pair a command")
"""Scenarios that a growing sweep file goes through too."""


@pytest.mark.parametrize(
    ("name", "drive"),
    [*((name, execute) for name in SCENARIOS), *((name, swept) for name in SWEPT)],
)
def test_grown_runs_report_what_one_command_does(
    name: str, drive: Callable[[RunSpec], object], folder: Path, whole: Run, tmp_path: Path
) -> None:
    steps = SCENARIOS[name]
    for step in steps:
        drive(spec_of(step, folder, tmp_path / "run"))
    run = Run.open(tmp_path / "run")
    expected = rows(whole)
    assert set(expected["task"]) == {"gest", "stereoset-en"}
    assert set(expected["model"]) == {"gpt", "bert", "all"}
    grown = rows(run)
    numbers = ["value", "low", "high"]
    assert grown.drop(numbers).equals(expected.drop(numbers))
    for column in numbers:
        off = (grown[column] - expected[column]).abs() / (1 + expected[column].abs())
        assert off.max() < 1e-5  # type: ignore[operator]  # batches differ
    for task in ("gest", "stereoset-en"):
        assert set(run.asked(task)) == {"gpt", "bert"}
    found = answered(run)
    assert len(found) == len(set(found)), "an answer was scored again"
    assert sorted(found) == sorted(answered(whole))


def test_a_renamed_model_keeps_its_answers(folder: Path, whole: Run, tmp_path: Path) -> None:
    """Both names stay in the report, with the same numbers; the second one asks only what the first one wasn't asked."""
    execute(spec_of(Step(GEST, GPT), folder, tmp_path / "run"))
    before = answered(Run.open(tmp_path / "run"))
    run = execute(spec_of(Step(GEST, (("new", "gpt"),)), folder, tmp_path / "run")).run
    assert answered(run) == before
    execute(spec_of(Step(STEREOSET, (("new", "gpt"),)), folder, tmp_path / "run"))
    execute(spec_of(Step(STEREOSET, GPT), folder, tmp_path / "run"))
    assert len(answered(run)) == len(set(answered(run))) > len(before)
    found = rows(run)
    old, new = (alone(found, name).drop("model") for name in ("gpt", "new"))
    assert old.equals(new)
    assert old.height == alone(rows(whole), "gpt").height
    assert "new: the same model as gpt, with the same answers." in run_notes(run.record)


def test_a_model_at_another_path_is_the_same_model(
    folder: Path, whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host and container, a link, another working directory, a trailing slash: content decides, not the spelling."""
    shutil.copytree(folder / "gpt", tmp_path / "container" / "models" / "gpt")
    (tmp_path / "gpt").symlink_to(folder / "gpt")
    monkeypatch.chdir(tmp_path / "container")
    first = spec_of(Step(GEST, GPT, limit=2), folder, tmp_path / "run")
    execute(first)
    for limit, spelling in enumerate(["models/gpt", f"{tmp_path}/gpt", f"{folder}/bert/../gpt/", str(folder / "gpt")], start=3):
        (model,) = first.models
        execute(replace(first, models=(replace(model, spec=spelling),), limit=limit))
        assert Run.open(tmp_path / "run").record["models"]["gpt"]["spec"] == spelling
    run = execute(spec_of(Step(GEST, GPT), folder, tmp_path / "run")).run
    assert len(answered(run)) == len(set(answered(run)))
    assert run.models == ["gpt"]
    ours, expected = (alone(rows(r), "gpt").filter(task="gest")["value"] for r in (run, whole))
    assert ours.to_list() == pytest.approx(expected.to_list(), rel=1e-5)
    shutil.copy(folder / "bert" / "config.json", tmp_path / "container" / "models" / "gpt" / "vocab.json")
    with pytest.raises(InputError, match="another spec for model gpt"):
        execute(replace(first, models=(replace(model, spec="models/gpt"),)))


@pytest.mark.parametrize("imported_first", [True, False])
def test_imported_and_scored_models_share_a_run(folder: Path, tmp_path: Path, imported_first: bool) -> None:
    path = tmp_path / "theirs_template-0.txt"
    path.write_text("\n".join(str(i / 10) for i in range(len(SENTENCES))))
    spec = spec_of(Step(GEST, BERT), folder, tmp_path / "run", "published")
    undisturbed = execute(replace(spec, out=tmp_path / "undisturbed")).run
    if not imported_first:
        execute(spec)
    import_predictions([path], "mlm", spec.data, tmp_path / "run")
    if imported_first:
        execute(spec)
    run = Run.open(tmp_path / "run")
    assert set(scores_of(run, "gest")["model"]) == {"theirs", "bert"}
    assert alone(rows(run), "bert").equals(alone(rows(undisturbed), "bert"))
    with pytest.raises(InputError, match="imported scores called 'theirs': give the model another name"):
        execute(spec_of(Step(GEST, (("theirs", "bert"),)), folder, tmp_path / "run", "published"))
    assert set(run.models) == {"theirs", "bert"}


def test_a_refused_extension_changes_nothing(folder: Path, tmp_path: Path) -> None:
    """One of two models is refused: the other one and the new task aren't in the record either."""
    execute(spec_of(Step(GEST, BERT), folder, tmp_path / "run"))
    before = (tmp_path / "run" / "run.json").read_bytes()
    spec = spec_of(Step(GEST + STEREOSET, (*GPT, ("bert", "gpt"))), folder, tmp_path / "run")
    with pytest.raises(InputError, match="another spec for model bert"):
        execute(spec)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_a_grown_definition_is_refused_and_the_line_named(folder: Path, tmp_path: Path) -> None:
    """Older models of the run were never asked the new template."""
    from tests.own_tasks import custom

    spec = spec_of(Step(GEST, GPT), folder, tmp_path / "run")
    one = 'name = "own"\n[[templates]]\nid = "1"\nkind = "continuation"\ntext = \'"{s}", []\'\nwords = ["he", "she"]\n'
    two = one.replace('id = "1"', 'id = "2"').replace('name = "own"\n', "")
    (tmp_path / "own.toml").write_text(one)
    data = folder / "data" / "gest" / "gest.csv"
    execute(replace(spec, tasks=(custom(data, tmp_path / "own.toml"),)))
    (tmp_path / "own.toml").write_text(one + two)
    with pytest.raises(InputError, match=r"another definition for task own: it has \"\", now \"\[\[templates\]\]\""):
        execute(replace(spec, tasks=(custom(data, tmp_path / "own.toml"),)))


@pytest.mark.parametrize("tasks", [("gest",), ("stereoset-en",)])
def test_auto_stays_with_the_engine_of_the_answers(folder: Path, tmp_path: Path, tasks: tuple[str, ...]) -> None:
    """By itself `auto` means onnx for gest and transformers for a pair: the second command keeps what the run has."""
    auto = [replace(m, engine="auto") for m in spec_of(Step(GEST, BERT), folder, tmp_path / "run").models]
    first = spec_of(Step(STEREOSET if tasks == GEST else GEST, BERT), folder, tmp_path / "run")
    execute(first)
    run = execute(replace(spec_of(Step(tasks, BERT), folder, tmp_path / "run"), models=tuple(auto))).run
    assert run.record["models"]["bert"]["engine"] == "transformers"
    assert set(run.record["models"]["bert"]["heads_used"]) == {"gest", "stereoset-en"}
    weights = load_file(folder / "bert" / "model.safetensors")
    parameters = sum(array.size for array in weights.values())
    assert run.record["models"]["bert"]["facts"] == {"family": "bert", "parameters": parameters}
