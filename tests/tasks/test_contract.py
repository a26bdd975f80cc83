"""The contract of a task: what the registry's tasks declare is what they give, and what breaks it is told at the border."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import polars as pl
import pytest
from pydantic import Field

from evaluator.reports.report import build_report
from evaluator.scoring.existing_answers import perform
from evaluator.scoring.spec import RunSpec
from evaluator.store.run import Run
from evaluator.tasks import TASKS, chosen_tasks, task
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import REPORT, CommaList, Parameters, describe_settings, parse_settings
from evaluator.tasks.stored import validate_scores
from evaluator.vocabulary import DataSource, Layout, MeasureOptions, Protocol_, Rendered, Samples
from evaluator_serving.errors import InputError
from tests.made_up_runs import add_scores, write_gest

NAMES = [*TASKS, "stereoset-en"]
SCORED = {"language": ["en"], "template": ["t"], "sample": [0], "group": ["1"], "score": [0.5]}


class Counted(Parameters):
    """A report's parameters of every kind."""

    case: Annotated[str, REPORT] = Field(default="d", description="which case")
    only: Annotated[CommaList | None, REPORT] = Field(default=None, description="only these")
    at_least: Annotated[int, REPORT] = Field(default=2, ge=1, description="fewest samples")
    words: Annotated[Path | None, REPORT] = Field(default=None, description="a file")


@dataclass(frozen=True, slots=True)
class Least(Task):
    """No more than a task must have, one column and settings."""

    columns: ClassVar[Mapping[str, pl.DataType]] = {"kept": pl.Boolean()}
    parameters: ClassVar[Parameters] = Counted()
    name: str = "least"
    heads: frozenset[str] = frozenset({"causal"})

    def load(self, data: DataSource) -> Samples:
        """One sample."""
        return Samples(pl.DataFrame({"sample": [0]}), {})

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """Nothing."""
        raise NotImplementedError


def test_a_task_needs_five_members_and_has_defaults_for_the_rest() -> None:
    it = Least()
    assert Task.__abstractmethods__ == {"name", "heads", "load", "render"}
    assert (it.about, it.reads, it.parameters, it.measures, it.strata, it.skips_unscorable) == (
        "",
        (),
        Counted(),
        (),
        (),
        False,
    )
    assert (it.definition, it.layout(MeasureOptions()), it.warnings(pl.DataFrame(), MeasureOptions())) == (None, None, [])
    assert (it.sampled(pl.DataFrame(), MeasureOptions()), it.given(it.load(DataSource()))) == ([], ())
    assert it.using(Counted()) is it
    with pytest.raises(InputError, match=r"task least defines no sampled\(\)"):
        it.measure(pl.DataFrame(SCORED), MeasureOptions())
    assert it.load_limited(DataSource(), None).frame.to_dict(as_series=False) == {"sample": [0], "order": [0]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, r"task least: score\(\) returned no column 'kept'"),
        ({"kept": [1]}, r"task least: score\(\) returned 'kept' as Int64, it must be Boolean"),
        (
            {"kept": [True], "other": [1]},
            r"task least: score\(\) returned a column 'other', which Task.columns doesn't "
            r"declare",
        ),
        ({"kept": [True], "score": ["0.5"]}, r"returned 'score' as String, it must be Float64"),
    ],
)
def test_other_columns_than_declared_are_told(columns: dict[str, Sequence[Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        validate_scores(Least(), pl.DataFrame(SCORED | columns))


def test_declared_columns_pass_and_a_column_of_nulls_has_every_type() -> None:
    given = pl.DataFrame({"kept": [None], **SCORED})
    assert validate_scores(Least(), given).schema == pl.Schema({**{k: given.schema[k] for k in SCORED}, "kept": pl.Boolean()})


@pytest.mark.parametrize("name", NAMES)
def test_every_task_says_what_it_is(name: str) -> None:
    it = task(name)
    assert it.name == name
    assert it.about
    assert it.measures
    assert all(field.description for field in type(it.parameters).model_fields.values())
    assert type(it).measure is Task.measure
    assert type(it).sampled is not Task.sampled
    layout = it.layout(MeasureOptions())
    assert layout is not None
    assert {*layout.summary, *layout.details, *layout.ranks, *layout.pairs} <= {*it.measures, "rho_ss_frequency"}


def test_settings_are_typed_and_told() -> None:
    types = {"least": Counted, "gest": type(task("gest").parameters)}
    found = parse_settings(types, {"only": "a,b", "at_least": "3", "words": "counts.txt"})
    assert found == {"least": Counted(only=("a", "b"), at_least=3, words=Path("counts.txt"))}
    assert str(found["least"]) == "only = a,b, at_least = 3, words = counts.txt"
    options = MeasureOptions(settings=found)
    assert options.of("least", Counted).at_least == 3
    assert options.of("another", Counted).at_least == 2
    assert dict(describe_settings(Counted))["at_least"] == "fewest samples (default 2)"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cases": "d"}, "--set cases: no task has this report setting: choose from case, only, at_least, words"),
        ({"at_least": "many"}, "least: at_least: expected a whole number, not 'many'"),
        ({"at_least": "0"}, "least: at_least: must be greater than or equal to 1, not '0'"),
    ],
)
def test_wrong_settings_are_one_line(values: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_settings({"least": Counted}, values)


def test_a_report_tells_what_was_set(tmp_path: Path) -> None:
    it = task("crows-pairs")
    run = Run.create_or_open(tmp_path / "run", protocol="default", provenance={})
    none = pl.Series([None], dtype=pl.Int64)
    scores = pl.DataFrame({**SCORED, "group": ["age"], "cs": [0.5], "tokens_stereotype": none, "tokens_anti": none})
    add_scores(run, "crows-pairs", "m", scores)
    chosen = parse_settings({it.name: type(it.parameters)}, {"bias_types": "Age"})
    assert "crows-pairs: bias_types = age." in build_report(run, MeasureOptions(resamples=5, settings=chosen)).notes
    assert not any("bias_types" in note for note in build_report(run, MeasureOptions(resamples=5)).notes)


@pytest.mark.parametrize(
    ("names", "inputs", "message"),
    [
        (("winobias",), {"samples": Path("x")}, "samples is a parameter of gest, gest-slavic, "),
        (("winobias", "stereoset-en"), {"samples": Path("x")}, "samples is a parameter of gest, gest-slavic, "),
        (("gest",), {"languages": ("sk",)}, "languages is a parameter of gest-mt, eurogest"),
        (("gest-mt",), {"languages": ("sk",)}, "gest-mt scores translations: give translations=.FOLDER"),
    ],
)
def test_what_a_user_gives_goes_to_a_task_that_takes_it(names: tuple[str, ...], inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chosen_tasks(names, **inputs)


def test_each_of_several_tasks_gets_what_it_takes(tmp_path: Path) -> None:
    samples = tmp_path / "own.csv"
    samples.write_text("sentence,stereotype\nI cook.,1\n")
    tasks = chosen_tasks(("gest", "gest-who", "eurogest-cs"), samples=samples, template="N", orders=2, way="text")
    assert [each.name for each in tasks[1:]] == ["gest-who-text-2orders", "eurogest-cs-N"]
    assert tasks[0] == chosen_tasks(("gest",), samples=samples)[0]
    assert chosen_tasks(("eurogest", "gest"), languages=("cs",))[1] == task("gest")


def test_models_and_translations_in_one_command(tmp_path: Path) -> None:
    """A task that asks models and one that is given answers: each needs what it works on."""
    folder = tmp_path / "t" / "sys" / "sk"
    folder.mkdir(parents=True)
    (folder / "translations.csv").write_text("from,to\nI was sad.,Bola som smutná.\n")
    write_gest(tmp_path / "data", [("I was sad.", 1)])
    (mt,) = chosen_tasks(("gest-mt",), translations=tmp_path / "t")
    spec = RunSpec((), (mt, task("gest-demo")), tmp_path / "run", data=DataSource(tmp_path / "data"))
    with pytest.raises(InputError, match="gest-demo scores models and none is given"):
        perform(spec)
    assert not spec.out.exists()
    outcome = perform(RunSpec((), (mt,), tmp_path / "run", data=DataSource(tmp_path / "data")))
    (rate,) = build_report(outcome.run, MeasureOptions(resamples=5)).rows.filter(measure="p", group="1")["value"]
    assert rate == 0.0


def test_groups_of_unknown_poles_are_refused() -> None:
    with pytest.raises(ValueError, match="polarity names young, but the poles are old and rich"):
        Layout((), polarity={"a": "young"}, poles=("old", "rich"))
