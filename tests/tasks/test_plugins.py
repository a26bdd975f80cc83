"""Tasks of other packages: a dist-info on the path is all that an installed package is to this program."""

import importlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.comparison.build import build, sides
from evaluator.reports.report import build_report
from evaluator.store.run import Run
from evaluator.tasks import chosen_tasks, task, task_names
from evaluator.tasks.stored import task_entry
from evaluator.translate.base import make_translator
from evaluator.vocabulary import MeasureOptions, Samples
from evaluator_serving.errors import InputError

Install = Callable[..., None]

TASK = """
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from evaluator.tasks.base import Task
from evaluator.tasks.parameters import REPORT, Parameters


class Chosen(Parameters):
    least: Annotated[int, REPORT] = Field(default=2, description="fewest samples")


@dataclass(frozen=True, slots=True)
class Made(Task):
    about: ClassVar[str] = "nothing much"
    reads: ClassVar[tuple[str, ...]] = ("made-data",)
    parameters: ClassVar[Parameters] = Chosen()
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
    "thing = thing:Made": ("Made = dict", "does not return an evaluator.tasks.base.Task"),
    "other = other:Made": (TASK, "returns a task named 'made'"),
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
        "  data made-data; heads causal",
        "  --set least=…: fewest samples (default 2)",
    ]
    for entry, (_, said) in BROKEN.items():
        name = entry.partition(" ")[0]
        (line,) = [line for line in lines if line.startswith(f"{name} [{name}-task 1.5]: ")]
        assert said in line
        with pytest.raises(InputError, match=name):
            task(name)
    assert told.stderr.splitlines() == ["plug-in 'gest' of made-task 1.5 is ignored: this program has the same name"]
    assert type(task("gest")).__module__ == "evaluator.tasks.gest"


@pytest.mark.parametrize(("key", "type_"), [("limit", "int"), ("systems", "tuple[str, ...]"), ("system", "str")])
def test_a_parameter_named_as_an_option_of_run_is_refused(install: Install, key: str, type_: str) -> None:
    code = TASK.replace(
        "least: Annotated[int, REPORT] = Field(default=2", f"{key}: {type_} = Field(default={type_.partition('[')[0]}()"
    )
    install("made-task", "made_up_task", code, "made = made_up_task:Made")
    with pytest.raises(InputError, match=f"made-task 1.5 has a parameter '{key}' .*rename it"):
        task("made")
    told = CliRunner().invoke(cli, ["tasks"])
    assert told.exit_code == 0
    assert f"made [made-task 1.5]: plug-in 'made' of made-task 1.5 has a parameter '{key}'" in told.stdout
    assert CliRunner().invoke(cli, ["run", "--help"]).exit_code == 0, "and no flag is there twice"


OWN = """
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from evaluator.measures.sampled import Label, Output, Sampled, Units
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import Parameters
from evaluator.vocabulary import tidy


class OwnParameters(Parameters):
    times: int = Field(default=1, ge=1, description="what values are multiplied by")


@dataclass(frozen=True, slots=True)
class Own(Task):
    about: ClassVar[str] = "what a user gives"
    measures: ClassVar[tuple[str, ...]] = ("times",)
    name: str = "own"
    parameters: OwnParameters = field(default_factory=OwnParameters)
    heads: frozenset[str] = frozenset({"causal"})

    def load(self, data): ...
    def render(self, samples, heads, protocol): ...
    def score(self, table, answers, protocol): ...

    def measure(self, scores, options):
        keys = ["model", "task", "language", "template", "group"]
        rows = scores.group_by(keys, maintain_order=True).agg(value=pl.col("score").mean() * self.parameters.times, n=pl.len())
        return tidy(rows.with_columns(measure=pl.lit("times"), n=pl.col("n").cast(pl.Int64)))

    def sampled(self, scores, options):
        values = np.stack([scores["score"].to_numpy(), np.ones(scores.height)], axis=1)
        times = self.parameters.times

        def mean(sums):
            return sums[..., :1, 0] / sums[..., :1, 1] * times

        outputs = (Output(Label("t", "times", "a"), len(values)),)
        return [Sampled(outputs, (Units("a", tuple(scores["sample"]), values),), mean)]
"""


def own_run(out: Path, models: dict[str, float]) -> Run:
    """A run of the package's task as the user asked it, with a made-up score of each model."""
    (own,) = chosen_tasks(("own",), times=3)
    run = Run.create_or_open(out, protocol="default", provenance={"command": []})
    for name, score in models.items():
        scores = pl.DataFrame(
            {"language": "en", "template": "t", "sample": [0, 1], "group": "a", "score": [score, score + 1.0]}
        )
        entry = task_entry(own, Samples(scores.select("sample"), {}))
        run.add_imported(own.name, entry, name, scores, {"made": "up"})
    return run


def test_a_run_of_a_plug_in_with_what_a_user_gave_it_is_restored_as_a_built_in_is(install: Install, tmp_path: Path) -> None:
    install("own-task", "own_up_task", OWN, "own = own_up_task:Own")
    run = own_run(tmp_path / "run", {"m": 0.5, "n": 1.5})
    assert (
        run.record["tasks"]["own-times-3"] | {"made_of": "own", "package": "own-task 1.5"} == run.record["tasks"]["own-times-3"]
    )
    rows = build_report(run, MeasureOptions(resamples=5)).rows
    assert dict(rows.select("model", "value").iter_rows()) == {"m": 3.0, "n": 6.0}
    other = own_run(tmp_path / "other", {"k": -0.5})
    compared = build(sides([run, other]), MeasureOptions(resamples=5), permutations=5).rows
    assert dict(compared.select("model", "difference").iter_rows()) == {"n": 3.0, "k": -3.0}


def test_a_run_of_a_package_that_is_gone_names_it(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("own-task", "own_up_task", OWN, "own = own_up_task:Own")
    run = own_run(tmp_path / "run", {"m": 0.5})
    shutil.rmtree(next(tmp_path.glob("own_task-*.dist-info")))
    importlib.invalidate_caches()
    with pytest.raises(InputError, match=r"task own-times-3 belongs to own-task 1\.5, which isn't installed here: install"):
        build_report(run, MeasureOptions())


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ("def restored(self, definition):\n        return self", "it makes 'own'"),
        ("def restored(self, definition):\n        return {}[definition]", "unexpected KeyError"),
        ("definition: ClassVar[None] = None", "unknown task 'own-times-3'"),
        ('made_of: ClassVar[str] = "other"', "unknown task 'other'"),
    ],
)
def test_what_no_run_could_restore_is_refused_before_anything_is_asked(install: Install, member: str, said: str) -> None:
    install("own-task", "own_up_task", f"{OWN}\n    {member}\n", "own = own_up_task:Own")
    with pytest.raises(InputError, match=f"task own-times-3: a run couldn't restore it .*{said}"):
        chosen_tasks(("own",), times=3)


def test_the_list_as_json() -> None:
    told = CliRunner().invoke(cli, ["tasks", "--json"])
    listed = {one["name"]: one for one in json.loads(told.stdout)}
    assert listed["stereoset-LANGUAGE"]["settings"].keys() == {"case"}
    assert listed["gest-mt"]["options"] == ["--translations", "--language", "--encoding"]
    assert (listed["gest-mt"]["heads"], listed["winobias"]["data"]) == ([], ["winobias"])
    assert listed["crows-negation"]["measures"][:2] == ["cs_mu", "cs_plus"]


def test_a_plug_in_translator(install: Install) -> None:
    code = "class Upper:\n    price, batch, parameters = 0.0, 9, {}\n    def __init__(self, text='x'): self.system = text\n"
    install("upper", "upper_module", code, "upper = upper_module:Upper", group="evaluator.translators")
    assert make_translator("upper").system == "x"
    assert make_translator("upper:loud").system == "loud"
    with pytest.raises(InputError, match="unknown translator 'lower'"):
        make_translator("lower")
