"""docs/extending.md: the files of each example are written down and used as installed packages are."""

import importlib
import json
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from transformers import AutoTokenizer

from evaluator.cli import cli
from evaluator.store.run import Run
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


def test_a_new_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, package = section("A new engine"), tmp_path / "package"
    assert write_files(text, package) == ["pyproject.toml", "unigram_engine.py"]
    install(package, monkeypatch)
    model = tiny_model("gpt2", tmp_path / "model")
    (tmp_path / "words.txt").write_text("I am strong. A man met the men. A woman met the man.\n")
    monkeypatch.chdir(tmp_path)
    listing, run = commands(text)
    told = CliRunner().invoke(cli, listing)
    assert "unigram [unigram-engine 1.0]: token frequencies of a text file, whatever stands around a token" in told.stdout
    run = [str(model) if word == "some/model" else word for word in run]
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
