"""Tasks of other packages: a dist-info on the path is all that an installed package is to this program."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.tasks import task, task_names
from evaluator.translate.base import make_translator
from evaluator_serving.errors import InputError

Install = Callable[..., None]

TASK = """
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from evaluator.tasks.base import Task
from evaluator.tasks.settings import Settings


class Chosen(Settings):
    least: int = Field(2, description="fewest samples")


@dataclass(frozen=True, slots=True)
class Made(Task):
    about: ClassVar[str] = "nothing much"
    reads: ClassVar[tuple[str, ...]] = ("made-data",)
    settings: ClassVar[type[Settings]] = Chosen
    name: str = "made"
    heads: frozenset[str] = frozenset({"causal"})

    def load(self, data): ...
    def render(self, samples, heads, protocol): ...
    def score(self, table, answers, protocol): ...
    def measure(self, scores, options): ...
"""


@pytest.fixture
def install(install_package: Install) -> Install:
    """A package with one module, of entry points of this group unless another is named."""
    return partial(install_package, group="evaluator.tasks")


def test_a_plug_in_task_is_a_task_by_its_name(install: Install) -> None:
    install("made-task", "made_up_task", TASK, "made = made_up_task:Made")
    assert task_names()[-1] == "made"
    assert type(task("made")).__module__ == "made_up_task"


BROKEN = {
    "torn = torn:Made": ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
    "odd = odd:Made": ("raise SystemExit('bye')", "SystemExit: bye"),
    "thing = thing:Made": ("Made = dict", "makes no evaluator.tasks.base.Task"),
    "other = other:Made": (TASK, "makes a task called 'made'"),
    "bare = bare:Made": (
        "from evaluator.tasks.base import Task as Made",
        "TypeError: Can't instantiate abstract class",
    ),
}


def test_one_that_fails_is_a_line_and_stops_no_other(install: Install) -> None:
    install("made-task", "made_up_task", TASK, "made = made_up_task:Made", "gest = made_up_task:Made")
    for entry, (code, _) in BROKEN.items():
        name = entry.partition(" ")[0]
        install(f"{name}-task", name, code, entry)
    told = CliRunner().invoke(cli, ["tasks"])
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    at = lines.index("made [made-task 1.5]: nothing much")
    assert lines[at + 1 : at + 3] == [
        "  data made-data; asks models with a causal head",
        "  --set least=…: fewest samples (default 2)",
    ]
    for entry, (_, said) in BROKEN.items():
        name = entry.partition(" ")[0]
        (line,) = [line for line in lines if line.startswith(f"{name} [{name}-task 1.5]: ")]
        assert said in line
        with pytest.raises(InputError, match=name):
            task(name)
    assert told.stderr.splitlines() == ["plug-in 'gest' of made-task 1.5 is left out: this program has that name"]
    assert type(task("gest")).__module__ == "evaluator.tasks.gest"


def test_the_list_as_json() -> None:
    told = CliRunner().invoke(cli, ["tasks", "--json"])
    listed = {one["name"]: one for one in json.loads(told.stdout)}
    assert listed["stereoset-LANGUAGE"]["settings"].keys() == {"case"}
    assert listed["gest-mt"]["options"] == ["--translations", "--language"]
    assert (listed["gest-mt"]["heads"], listed["winobias"]["data"]) == ([], ["winobias"])
    assert listed["crows-negation"]["measures"][:2] == ["cs_mu", "cs_plus"]


def test_a_plug_in_translator(install: Install) -> None:
    code = "class Upper:\n    price, batch, parameters = 0.0, 9, {}\n    def __init__(self, text='x'): self.system = text\n"
    install("upper", "upper_module", code, "upper = upper_module:Upper", group="evaluator.translators")
    assert make_translator("upper").system == "x"
    assert make_translator("upper:loud").system == "loud"
    with pytest.raises(InputError, match="unknown translator 'lower'"):
        make_translator("lower")
