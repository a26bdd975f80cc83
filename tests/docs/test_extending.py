"""docs/extending.md: the files of each example are written down and used as installed packages are."""

import importlib
import io
import json
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer

import evaluator
from evaluator.cli import cli
from evaluator.gender.factory import LANGUAGES
from evaluator.gender.rules import forms
from evaluator.reports import figures
from evaluator.store.run import Run
from evaluator.sweep.config import read_sweep
from evaluator_serving.errors import InputError
from tests.reports import pages
from tests.tiny_models import tiny_model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


def section(title: str) -> str:
    """The text below a heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text("utf8"), re.S | re.M)
    assert found, title
    return found[1]


def write_files(text: str, folder: Path) -> list[str]:
    """Write a section's files (blocks with a title); returns their names."""
    blocks = re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', text, re.S | re.M)
    for name, content in blocks:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf8")
    return [name for name, _ in blocks]


def commands(text: str) -> list[list[str]]:
    """The arguments of a section's `evaluator` commands."""
    return [line.split()[2:] for line in text.splitlines() if line.startswith("$ evaluator ")]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make of a folder with a pyproject.toml what pip would: a place on the path with the package's entry points."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()


def files(title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a section's files into a folder on the path, which becomes the current one; returns the section."""
    text = section(title)
    write_files(text, folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    importlib.invalidate_caches()
    return text


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, str]]:
    """A run of the example's measure: its folder, the model's, and the report."""
    folder = tmp_path_factory.mktemp("night")
    with pytest.MonkeyPatch.context() as patch:
        text = section("A new measure with its data set")
        write_files(text, folder)
        install(folder, patch)
        patch.chdir(folder)
        model = tiny_model("gpt2", folder / "model")
        listing, run, report = ([str(model) if word == "some/model" else word for word in line] for line in commands(text))
        assert "night-shift" in CliRunner().invoke(cli, listing).stdout
        done = CliRunner().invoke(cli, run)
        assert done.exit_code == 0, done.output
        told = CliRunner().invoke(cli, report)
        assert told.exit_code == 0, told.output
        yield folder, model, told.stdout
        sys.modules.pop("night_shift")


def test_a_new_measure(night: tuple[Path, Path, str]) -> None:
    folder, path, report = night
    tokens = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64).eval()

    def log_p(context: str, word: str) -> float:
        before, ids = (tokens(text)["input_ids"] for text in (context, context + word))
        assert ids[: len(before)] == before
        with torch.inference_mode():
            logits = torch.log_softmax(model(torch.tensor([[0, *ids]])).logits[0], -1)  # 0: the token in front of a text
        return sum(float(logits[at, ids[at]]) for at in range(len(before), len(ids)))

    expected: dict[str, list[bool]] = {}
    for occupation, group in pl.read_csv(folder / "night_shift.csv").iter_rows():
        context = f"The {occupation} works by"
        expected.setdefault(group, []).append(log_p(context, " night") > log_p(context, " day"))
    rows = pl.read_csv(io.StringIO(report)).filter(measure="night")
    assert dict(zip(rows["group"], rows["value"], strict=True)) == {g: pytest.approx(np.mean(v)) for g, v in expected.items()}
    assert rows["n"].to_list() == [3, 3]
    assert set(rows["interval"]) == {"Wilson"}


def test_a_new_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written once, it is a flag, a key, an argument, a report's choice, a part of the definition and a row of the page."""
    text, measure = section("A new parameter"), section("A new measure with its data set")
    package = tmp_path / "package"
    assert write_files(measure, package)[0] == "pyproject.toml"
    assert write_files(text, package) == ["any_shift.py"]
    with (package / "pyproject.toml").open("a") as file:
        file.write('any-shift = "any_shift:AnyShift"\n')
    install(package, monkeypatch)
    monkeypatch.chdir(tmp_path)
    model = str(tiny_model("gpt2", tmp_path / "model"))
    helped = " ".join(CliRunner().invoke(cli, ["run", "--help"]).stdout.split())
    assert "--shift night|evening The shift that is compared with the day." in helped
    listed = CliRunner().invoke(cli, ["tasks"]).stdout
    assert "options --shift; heads" in listed
    assert "--set caution=…: A warning for readers of the report." in listed
    done = CliRunner().invoke(
        cli, ["run", "any-shift", "--shift", "evening", "--model", model, "--engine", "transformers", "--out", "run"]
    )
    assert done.exit_code == 0, done.output
    entry = Run.open(tmp_path / "run").record["tasks"]["any-shift-shift-evening"]
    assert (json.loads(entry["definition"]), entry["made_of"]) == ({"shift": "evening"}, "any-shift")
    answers = list((tmp_path / "run" / "logprobs").rglob("*.parquet"))
    evaluator.run("any-shift", model, "run", engine="transformers", shift="evening")
    sweep = 'tasks = ["any-shift"]\nout = "run"\n[task.any-shift]\nshift = "{}"\n[[models]]\nmodel = "{}"\n'
    sweep += 'engine = "transformers"\n'
    Path("sweep.toml").write_text(sweep.format("evening", model))
    swept = CliRunner().invoke(cli, ["sweep", "sweep.toml", "--ray", "none"])
    assert swept.exit_code == 0, swept.output
    assert list((tmp_path / "run" / "logprobs").rglob("*.parquet")) == answers
    reported = CliRunner().invoke(cli, ["report", "run", "--set", "caution=Only six.", "--format", "markdown"])
    assert "Only six." in reported.stdout
    rates = evaluator.open("run").rates(settings={"caution": "Only six."})
    assert rates["value"].is_not_null().all()
    page = runpy.run_path(str(PAGE.with_name("parameters.py")))
    (described,) = [part for part in page["sections"]() if part.startswith("## any-shift\n")]
    assert "| `--shift` | `shift` | night or evening | night | The shift that is compared with the day. |" in described
    assert "| `--set caution=…` | `caution` | TEXT |" in described
    # Each interface names a wrong value as its user wrote it.
    wrong = CliRunner().invoke(cli, ["run", "any-shift", "--shift", "noon", "--model", model])
    assert str(wrong.exception) == "any-shift: --shift: 'noon' is not one of night, evening"
    with pytest.raises(InputError, match=r"^any-shift: shift: 'noon' is not one of night, evening$"):
        evaluator.run("any-shift", model, shift="noon")
    Path("sweep.toml").write_text(sweep.format("noon", model))
    with pytest.raises(InputError, match=r"^sweep\.toml, line 4: task\.any-shift\.shift: 'noon' is not one of night, evening$"):
        read_sweep(Path("sweep.toml"))
    with pytest.raises(InputError, match="--set shift: no task has this report setting: choose from caution"):
        evaluator.open("run").rates(settings={"shift": "night"})
    for module in ("night_shift", "any_shift"):
        sys.modules.pop(module)


def test_a_new_figure(night: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files("A new figure", tmp_path, monkeypatch)
    figure = importlib.import_module("spans").spans
    monkeypatch.setattr(figures, "FIGURES", (*figures.FIGURES, figure))
    folder, _, report = night
    done = CliRunner().invoke(cli, ["report", str(folder / "runs" / "night"), "--format", "html"])
    assert done.exit_code == 0, done.output
    _, drawn = pages.figure(done.stdout, "night: lowest and highest group")
    values = pl.read_csv(io.StringIO(report)).filter(measure="night")["value"]
    assert drawn.rows() == [("model", values.min(), values.max())]
    sys.modules.pop("spans")


def test_a_new_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = files("A language of gender rules", tmp_path, monkeypatch)
    monkeypatch.setattr(forms, "FOLDER", tmp_path)
    monkeypatch.setitem(LANGUAGES, "bg", "Bulgarian")
    (arguments,) = commands(text)
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    (shown,) = re.findall(r"^```text\n(.*?)^```$", text, re.S | re.M)
    assert done.stdout.split() == shown.split()


@pytest.mark.parametrize("installed", [True, False])
def test_a_new_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    """As a package, and as a file anywhere on PYTHONPATH whose name no package registers."""
    text, package = section("A new engine"), tmp_path / "package"
    assert write_files(text, package) == ["pyproject.toml", "unigram_engine.py"]
    if installed:
        install(package, monkeypatch)
    monkeypatch.syspath_prepend(str(package))
    importlib.invalidate_caches()
    model = tiny_model("gpt2", tmp_path / "model")
    (tmp_path / "words.txt").write_text("I am strong. A man met the men. A woman met the man.\n")
    monkeypatch.chdir(tmp_path)
    listing, run = commands(text)
    told = CliRunner().invoke(cli, listing)
    listed = "unigram [unigram-engine 1.0]: token frequencies of a text file, independent of context" in told.stdout
    assert listed == installed
    run = [str(model) if word == "some/model" else word for word in run]
    if not installed:
        run[run.index("unigram")] = "unigram_engine:UnigramEngine"
    done = CliRunner().invoke(cli, run)
    assert done.exit_code == 0, done.output
    (entry,) = Run.open(tmp_path / "runs" / "floor").record["models"].values()
    assert entry["verified"].startswith("verified against itself one row at a time: max |Δ log P| 0.0e+00")
    assert entry["details"]["text"].startswith("sha256:")
    tokens = AutoTokenizer.from_pretrained(model)
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    ids = tokens((tmp_path / "words.txt").read_text())["input_ids"]
    answers = pl.concat([pl.read_parquet(file) for file in (tmp_path / "runs" / "floor" / "logprobs").rglob("*.parquet")])
    seen = answers.select(pl.col("tokens").explode(), pl.col("logprobs").explode()).unique()
    assert seen["logprobs"].n_unique() > 1
    for token, number in seen.iter_rows():
        assert number == pytest.approx(np.log((ids.count(token) + 1) / (len(ids) + size)), abs=1e-6)
    refused = CliRunner().invoke(cli, [word for word in run if word not in ("--extra", "text=words.txt")])
    assert "the unigram engine needs a text to count" in str(refused.exception)
    sys.modules.pop("unigram_engine")
