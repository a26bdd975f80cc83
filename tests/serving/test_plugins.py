"""Engines of other packages: a dist-info on the path is all that an installed package is to this program."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from transformers import GPT2Config

from evaluator.cli import cli
from evaluator.sweep.config import read_sweep
from evaluator.tasks import task_names
from evaluator_serving.choose import choose_engine
from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.identity import identity
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import ENGINES, engine_class

Install = Callable[..., None]

ENGINE = """
import numpy as np
from evaluator_serving.engine import Engine, Extra


class Made(Engine):
    name = "made"
    summary = "says minus the token's number"
    heads = frozenset({"causal"})
    dtypes = ("float32",)
    extra = (Extra("seed", "begins something"), Extra("threads", "how many", harmless=True))
    packages = ("made-engine",)

    def __init__(self, source, options, rows, workload=None):
        self.device_kind = "cpu"

    def score(self, rows):
        return [np.array([-float(token) for _, token in row.lookups]) for row in rows]

    def close(self):
        pass
"""


@pytest.fixture
def install(install_package: Install) -> Install:
    """A package with one module, of entry points of this group unless another is named."""
    return partial(install_package, group="evaluator.engines")


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    """A source without any file."""
    return ModelSource("m", tmp_path, "sha256:00", frozenset({"causal"}), GPT2Config(), 8)


def test_a_plug_in_engine_is_an_engine_by_its_name(install: Install, source: ModelSource, tmp_path: Path) -> None:
    install("made-engine", "made_up_module", ENGINE, "made = made_up_module:Made")
    assert list(ENGINES)[-1] == "made"
    made = engine_class("made")
    assert issubclass(made, Engine)
    assert made.__module__ == "made_up_module"
    info = identity("made", source, EngineOptions(extra={"seed": "3", "threads": "9"}))
    assert info.versions == {"made-engine": "1.5"}
    assert info.details == {"chat_template": "none", "quantization": None, "seed": 3}
    with pytest.raises(InputError, match="the made engine has no option colour"):
        made.check(source, EngineOptions(extra={"colour": "red"}), frozenset({"causal"}))
    with pytest.raises(InputError, match="need a pair head, and the made engine scores causal ones only"):
        made.check(source, EngineOptions(), frozenset({"pair"}))
    sweep = tmp_path / "SWEEP.toml"
    sweep.write_text('tasks = ["gest-demo"]\nout = "o"\n[[models]]\nmodel = "m"\nengine = "made"\n')
    assert [model.engine for model in read_sweep(sweep).models] == ["made"]


def test_what_a_package_adds_is_no_choice_of_auto_unless_it_says_so(install: Install, source: ModelSource) -> None:
    install("made-engine", "made_up_module", ENGINE, "made = made_up_module:Made")
    cpu = EngineOptions(device="cpu")
    assert choose_engine(source, ["causal"], cpu) in ENGINES
    keen = ENGINE + "\n    @classmethod\n    def preference(cls, source, options, heads):\n        return 9\n"
    install("keen-engine", "keen_module", keen, "keen = keen_module:Made")
    assert choose_engine(source, ["causal"], cpu) == "keen"


BROKEN = {
    "torn = torn:Made": ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
    "odd = odd:Made": ("raise SystemExit('bye')", "SystemExit: bye"),
    "wrong = wrong:Made": ("def Made(", "SyntaxError"),
    "empty = empty:Made": ("", "AttributeError"),
    "thing = thing:Made": ("Made = 3", "not a subclass of evaluator_serving.engine.Engine"),
    "older = older:Older": (
        ENGINE.replace("class Made", "class Older") + "\n    def describe(self):\n        return None\n",
        "its class Older has describe(), now details()",
    ),
    "bare = bare:Made": (
        "from evaluator_serving.engine import Engine\nclass Made(Engine):\n    name = 'bare'\n",
        "has no summary, heads, dtypes, __init__, close, score",
    ),
}


def test_one_that_fails_is_a_line_and_stops_no_other(install: Install, source: ModelSource) -> None:
    install("made-engine", "made_up_module", ENGINE, "made = made_up_module:Made")
    for entry, (code, _) in BROKEN.items():
        name = entry.partition(" ")[0]
        install(f"{name}-engine", name, code, entry)
    told = CliRunner().invoke(cli, ["engines"])
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    assert "made [made-engine 1.5]: says minus the token's number" in lines
    assert "  on cpu, cuda; heads causal; dtypes float32" in lines
    assert "  options seed, threads*" in lines
    for entry, (_, said) in BROKEN.items():
        name = entry.partition(" ")[0]
        (line,) = [line for line in lines if line.startswith(f"{name} [{name}-engine 1.5]: ")]
        assert said in line
        with pytest.raises(InputError, match=f"{name}"):
            engine_class(name)
    assert choose_engine(source, ["causal"], EngineOptions(device="cpu")) in ENGINES


def test_the_list_as_json(install: Install) -> None:
    install("made-engine", "made_up_module", ENGINE, "made = made_up_module:Made")
    install("torn-engine", "torn", "import no_such_library", "torn = torn:Made")
    told = CliRunner().invoke(cli, ["engines", "--json"])
    listed = {one["name"]: one for one in json.loads(told.stdout)}
    assert list(listed)[:4] == ["transformers", "onnx", "vllm", "openai"]
    assert listed["made"] == {
        "name": "made",
        "package": "made-engine 1.5",
        "problem": "",
        "summary": "says minus the token's number",
        "devices": ["cpu", "cuda"],
        "heads": ["causal"],
        "dtypes": ["float32"],
        "options": {
            "seed": {"help": "begins something", "harmless": False},
            "threads": {"help": "how many", "harmless": True},
        },
        "passes_on": False,
    }
    assert listed["transformers"]["heads"] == ["causal", "chat", "masked", "pair", "seq2seq"]
    assert listed["openai"]["devices"] == ["server"]
    assert "no_such_library" in listed["torn"]["problem"]


def test_names_that_are_taken(install: Install) -> None:
    """The program's own engines stay what they are, and of two packages the first in the alphabet has a name."""
    install("b-engine", "module_b", ENGINE, "made = module_b:Made", "onnx = module_b:Made")
    install("a-engine", "module_a", ENGINE, "made = module_a:Made")
    assert engine_class("made").__module__ == "module_a"
    assert engine_class("onnx").__module__ == "evaluator_serving.onnx.engine"
    told = CliRunner().invoke(cli, ["engines"])
    assert told.stderr.splitlines() == [
        "plug-in 'made' of b-engine 1.5 is ignored: a-engine 1.5 has the same name",
        "plug-in 'onnx' of b-engine 1.5 is ignored: this program has the same name",
    ]


def test_groups_are_apart(install: Install) -> None:
    install("made-engine", "made_up_module", ENGINE, "made = made_up_module:Made", group="evaluator.tasks")
    assert task_names()[-1] == "made"
    assert "made" not in ENGINES
    with pytest.raises(InputError, match="unknown engine 'made': choose one of transformers, onnx, vllm, openai, or"):
        engine_class("made")


PATHS = {
    "nowhere:Mine": "No module named 'nowhere'.*: is its folder on PYTHONPATH",
    "nobodys:Other": "has no attribute 'Other'.*: correct module:Class",
    "nobodys:number": "not a subclass of evaluator_serving.engine.Engine",
    "broken:Mine": "engine 'broken:Mine' can't be imported .ZeroDivisionError: division by zero",
}


def test_an_import_path_that_names_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nobodys.py").write_text("number = 3\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for path, said in PATHS.items():
        with pytest.raises(InputError, match=said):
            engine_class(path)
