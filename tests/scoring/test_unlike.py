"""Models and tasks that don't all go together, and samples that can't be asked: left out, told, and no reason to try again."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import polars as pl
import pytest
from click.testing import CliRunner, Result
from tiny_models import tiny_model

from evaluator.cli.plan import command as plan_command
from evaluator.cli.run import finish
from evaluator.cli.status import command as status_command
from evaluator.comparison.build import build, sides
from evaluator.reports.notes import run_notes
from evaluator.reports.report import build_report
from evaluator.scoring.driver import Outcome, execute, prepare
from evaluator.scoring.skip_rules import Skipped
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.scoring.status import model_rows
from evaluator.store.files import write_part
from evaluator.store.record import with_model
from evaluator.store.run import Run
from evaluator.sweep.config import read_sweep
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks import task
from evaluator.tasks.gest import GestTask
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource, MeasureOptions
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError, ModelError
from tests.own_tasks import custom
from tests.scoring.faulty import TOKENS, Faulty
from tests.scoring.made_up import SENTENCES, write_data

FAULTY = "tests.scoring.faulty:Faulty"
Drive = Callable[[RunSpec], Outcome]


def swept(spec: RunSpec) -> Outcome:
    return sweep(spec, SweepOptions("none"))


BOTH = pytest.mark.parametrize("drive", [execute, swept])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unlike")
    tiny_model("gpt2", folder / "gpt")
    tiny_model("gpt2", folder / "long", n_positions=512)
    tiny_model("t5", folder / "t5")
    write_data(folder / "data")
    return folder


def model(folder: Path, name: str, *tasks: str) -> ModelSpec:
    return ModelSpec(str(folder / name), "transformers", options=EngineOptions(dtype="float64"), label=name, tasks=tasks)


def asking(folder: Path, out: Path, names: tuple[str, ...], *tasks: str) -> RunSpec:
    models = tuple(model(folder, name) for name in names)
    return RunSpec(models, tuple(map(task, tasks)), out, data=DataSource(folder / "data"))


def ended(outcome: Outcome, spec: RunSpec) -> Result:
    """How the command ends."""
    command = click.Command("run", callback=lambda: finish(outcome, [model.name for model in spec.models]))
    return CliRunner().invoke(command)


def told(run: Run) -> list[str]:
    """What its readers must know, but for how long sweeps took and were to take."""
    return [note for note in run_notes(run.record) if not note.startswith("the sweep of ")]


def status(run: Run, *more: str) -> str:
    return CliRunner().invoke(status_command, [str(run.path), *more], env={"COLUMNS": "300"}).output


# --- tasks that can't ask a model ----------------------------------------------------------------------------------------


@BOTH
def test_a_task_that_cannot_ask_a_model_is_left_out_for_it(folder: Path, tmp_path: Path, drive: Drive) -> None:
    spec = asking(folder, tmp_path / "run", ("gpt", "t5"), "gest", "stereoset-en")
    for _ in range(2):  # again is no worse
        outcome = drive(spec)
        run = outcome.run
        reason = f"task gest needs a model with a causal or masked head, {folder / 't5'} has seq2seq"
        assert run.record["models"]["t5"]["unasked"] == {"gest": reason}
        assert run.record["models"]["gpt"]["unasked"] == {}
        note = f"t5: gest was skipped: {reason}"
        assert told(run) == [f"{note}."]
        assert f"{note}." in status(run)
        done = ended(outcome, spec)
        assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, f"evaluator: {note}")
        assert run.failures().is_empty()
    for name, tasks in (("gpt", ("gest", "stereoset-en")), ("t5", ("stereoset-en",))) if drive is execute else ():
        alone = execute(asking(folder, tmp_path / name, (name,), *tasks)).run
        for one in tasks:
            scores = scores_of(alone, one)
            assert scores.height
            assert scores_of(run, one).filter(model=name).equals(scores)
    assert run.asked("gest") == ["gpt"]
    assert not build_report(run, MeasureOptions(resamples=20)).sections[0].rows.filter(model="t5").height


@BOTH
def test_strict_refuses_the_whole_command(folder: Path, tmp_path: Path, drive: Drive) -> None:
    spec = replace(asking(folder, tmp_path / "run", ("gpt", "t5"), "gest", "stereoset-en"), strict=True)
    with pytest.raises(InputError, match=r"task gest needs a model with a causal or masked head.*--strict") as caught:
        drive(spec)
    assert not isinstance(caught.value, ModelError)
    assert not (tmp_path / "run").exists()


@BOTH
def test_a_model_that_no_task_can_ask_is_that_models_failure(folder: Path, tmp_path: Path, drive: Drive) -> None:
    spec = asking(folder, tmp_path / "run", ("t5", "gpt"), "gest")
    for _ in range(2):
        outcome = drive(spec)
        assert list(outcome.errors) == ["t5"]
        assert outcome.run.failures().select("model", "request", "kind").rows() == [("t5", "", "unaskable")]
        done = ended(outcome, spec)
        assert done.exit_code == 1
        assert "evaluator: t5 failed: t5: task gest needs a model" in done.stderr.splitlines()[-1]
        assert "to try again" not in done.stderr
    assert len(list((tmp_path / "run" / "failures").iterdir())) == 1, "the same failure was written twice"
    assert scores_of(outcome.run, "gest")["model"].unique().to_list() == ["gpt"]


def test_nothing_to_do_is_wrong_input_and_all_reasons_are_told(folder: Path, tmp_path: Path) -> None:
    spec = asking(folder, tmp_path / "run", ("t5",), "gest")
    with pytest.raises(InputError, match=r"^t5: task gest needs .* has seq2seq; choose another model or task$"):
        execute(spec)
    two = replace(spec, models=(*spec.models, replace(spec.models[0], label="other")))
    with pytest.raises(InputError, match=r"^t5: t5: task gest .*; other: other: task gest"):
        execute(two)
    assert not (tmp_path / "run").exists()


def test_a_model_is_asked_its_own_tasks(folder: Path, tmp_path: Path) -> None:
    """The plan, the run and the report know which; a later command adds to them."""
    file = tmp_path / "sweep.toml"
    text = f"""
tasks = ["gest"]
out = "{tmp_path / "run"}"
data = "{folder / "data"}"
[defaults]
engine = "transformers"
[[models]]
model = "{folder / "gpt"}"
[[models]]
model = "{folder / "t5"}"
tasks = ["stereoset-en"]
"""
    file.write_text(text)
    notes = ["gest: not requested for t5.", "stereoset-en: not requested for gpt."]
    planned = json.loads(CliRunner().invoke(plan_command, [str(file), "--format", "json"]).output)
    assert planned["notes"] == notes
    requests = {"gpt": 2 * len(SENTENCES), "t5": 6}
    outcome = swept(read_sweep(file))
    run = outcome.run
    assert {name: len(run.requests(name)) for name in run.models} == requests
    assert told(run) == notes
    assert (run.asked("gest"), run.asked("stereoset-en")) == (["gpt"], ["t5"])
    assert {(row["name"], row["state"], row["done"]) for row in model_rows(run)} == {
        (name, "done", count) for name, count in requests.items()
    }
    file.write_text(text.replace('["gest"]', '["gest", "stereoset-en"]'))
    run = swept(read_sweep(file)).run
    assert run.asked("stereoset-en") == ["gpt", "t5"]
    assert told(run) == notes[:1]


# --- samples that can't be asked ---------------------------------------------------------------------------------------

GOOD = 18
LONG, LONGER = ("I work" + " and I work" * times for times in (60, 200))
"""Too long for the model of 128 tokens, and for that of 512 as well."""


def own(path: Path, *extra: str, good: int = GOOD) -> GestTask:
    """A task of `good` short sentences in 16 groups, then others."""
    texts = [*(f"I am not {i % 10} {'the boss' if i > 9 else 'a nurse'}" for i in range(good)), *extra]
    path.write_text("sentence,stereotype\n" + "".join(f"{text}.,{i % 16 + 1}\n" for i, text in enumerate(texts)))
    return custom(path)


@BOTH
def test_a_sample_that_cannot_be_asked_is_one_models_skipped_sample(folder: Path, tmp_path: Path, drive: Drive) -> None:
    mine = own(tmp_path / "own.csv", LONG, LONGER)
    models = tuple(model(folder, name) for name in ("gpt", "long"))
    spec = RunSpec(models, (mine,), tmp_path / "run")
    for attempt in range(2):
        outcome = drive(spec)
        run, entries = outcome.run, outcome.run.record["models"]
        assert not outcome.errors
        asked = {name: entries[name]["asked"][mine.name] for name in ("gpt", "long")}
        assert {n: (a["samples"], a["skipped"]) for n, a in asked.items()} == {"gpt": (20, 2), "long": (20, 1)}
        assert asked["gpt"]["reason"].startswith(f"{mine.name}, sample 18, template 3: ")
        assert "context of 128" in asked["gpt"]["reason"]
        assert asked["long"]["reason"].startswith(f"{mine.name}, sample 19, template 3: ")
        assert run_notes(run.record)[0] == (
            f"gpt: 2 of 20 samples of {mine.name} cannot be scored and are skipped; the first: {asked['gpt']['reason']}."
        )
        failures = run.failures()
        assert failures.group_by("model").len().sort("model").rows() == [("gpt", 4), ("long", 2)]
        assert set(failures["kind"]) == {"unaskable"}
        assert len(list((tmp_path / "run" / "failures").iterdir())) == 2, "a second time they are not recorded again"
        done = ended(outcome, spec)
        said = "evaluator: requests that cannot be scored and are skipped: 4 of gpt, 2 of long: evaluator status "
        assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, f"{said}{run.path}")
        told = json.loads(status(run, "--format", "json"))
        counts = [(row["state"], row["done"], row["total"], row["failed"], row["unaskable"]) for row in told["models"]]
        assert counts == [("done", 36, 36, 0, 4), ("done", 38, 38, 0, 2)]
        assert "cannot be scored: gpt " in status(run)
        if attempt == 0:
            timings = run.timings().height
    assert run.timings().height == timings, "nothing was scored again"
    numbers = build_report(run, MeasureOptions(resamples=20)).rows.filter(measure="q", template="3")
    assert numbers.group_by("model").agg(pl.col("n").sum()).sort("model").rows() == [("gpt", 18), ("long", 19)]
    short = execute(RunSpec(models[:1], (own(tmp_path / "short.csv"),), tmp_path / "short")).run
    (task_,) = short.tasks
    kept = scores_of(run, mine.name).filter(model="gpt")
    assert kept["score"].to_list() == pytest.approx(scores_of(short, task_)["score"].to_list(), rel=1e-9)
    assert not any("no answer" in line for line in build_report(run, MeasureOptions(resamples=20)).warnings)


@BOTH
def test_strict_ends_at_the_first_such_sample(folder: Path, tmp_path: Path, drive: Drive) -> None:
    mine = own(tmp_path / "own.csv", LONG)
    spec = RunSpec((model(folder, "gpt"), model(folder, "long")), (mine,), tmp_path / "run", strict=True)
    with pytest.raises(InputError, match=rf"^gpt: {mine.name}, sample 18, template 3: .* context of 128"):
        drive(spec)
    assert not (tmp_path / "run").exists()


def test_where_most_samples_cannot_be_asked_the_model_fails_and_others_go_on(folder: Path, tmp_path: Path) -> None:
    mine = own(tmp_path / "own.csv", *(f"{LONG} {i}" for i in range(3)), good=2)
    models = (model(folder, "gpt"), model(folder, "long"))
    spec = RunSpec(models, (mine,), tmp_path / "run", data=DataSource(folder / "data"))
    outcome = execute(spec)
    assert list(outcome.errors) == ["gpt"]
    said = (
        rf"^gpt: {mine.name}, sample 2, template 3: .* context of 128 \(and 2 more of its 5 samples cannot be scored\); choose"
    )
    with pytest.raises(InputError, match=said):
        execute(replace(spec, models=models[:1], out=tmp_path / "alone"))
    both = execute(replace(spec, models=models[:1], tasks=(mine, task("gest")), out=tmp_path / "both"))
    entry = both.run.record["models"]["gpt"]
    assert list(entry["heads_used"]) == ["gest"]
    assert "2 more of its 5 samples" in entry["unasked"][mine.name]
    assert len(both.run.requests("gpt")) == len(both.run.done("gpt")) == 2 * len(SENTENCES)
    assert both.run.failures().is_empty()


@pytest.mark.parametrize(
    ("lost", "of", "whole", "gest", "winobias"),
    [
        (1, 2, False, False, False),
        (2, 3, False, True, False),
        (1, 1, True, True, True),
        (100, 600, False, False, False),
        (101, 600, False, True, False),
        (300, 3565, False, False, False),
        (357, 3565, False, True, False),
        (3565, 3565, True, True, True),
    ],
)
def test_how_many_may_be_missing(lost: int, of: int, whole: bool, gest: bool, winobias: bool) -> None:
    """A tenth but at least a hundred, and never more than half; tasks that expect it lose as many as there are."""
    loss = Skipped(lost, of, whole, "why")
    assert loss.too_much(task("gest")) is gest
    assert loss.too_much(task("winobias")) is winobias


def test_what_was_left_out_belongs_to_the_limit_that_was_asked() -> None:
    """A smaller limit takes nothing back, a task that can be asked now is no longer told as one that can't."""

    def entry(limit: int | None, skipped: int) -> dict[str, object]:
        asked = {"limit": limit, "seed": 0, "samples": limit or 50, **({"skipped": skipped, "reason": "r"} if skipped else {})}
        return {"fingerprint": "f", "heads_used": {"gest": ["causal"]}, "asked": {"gest": asked}, "unasked": {"winobias": "w"}}

    run = Path("run")
    whole = with_model(None, entry(None, 3), "m", run, answered=True)
    smaller = with_model(whole, entry(8, 0), "m", run, answered=True)
    assert smaller["asked"]["gest"]["skipped"] == 3
    assert with_model(smaller, entry(None, 0), "m", run, answered=True)["asked"]["gest"] == entry(None, 0)["asked"]["gest"]  # type: ignore[index]
    able = {**entry(8, 0), "heads_used": {"winobias": ["causal"]}, "unasked": {}, "asked": {}}
    assert with_model(smaller, able, "m", run, answered=True)["unasked"] == {}
    assert with_model(smaller, {**able, "heads_used": {}}, "m", run, answered=True)["unasked"] == {"winobias": "w"}


# --- rows that fail while they are scored ------------------------------------------------------------------------------


def breaking(folder: Path, path: Path, fault: str) -> RunSpec:
    """A sweep of one model of which one request of TOKENS tokens breaks."""
    bad = ModelSpec(str(folder / "gpt"), FAULTY, options=EngineOptions(extra={"fault": fault}), label="bad")
    spec = RunSpec((bad,), (own(path / "first.csv"),), path / "run", verify=False)
    lengths = {len(row.ids) for m in prepare(spec).models for item in m.encoded for row in item.rows}
    assert max(lengths) < TOKENS - 2
    for words in range(4, TOKENS):
        mine = own(path / "own.csv", "I " + "cook " * words)
        made = prepare(replace(spec, tasks=(mine,)))
        broken = [i for m in made.models for i in m.encoded if any(len(row.ids) == TOKENS for row in i.rows)]
        if len(broken) == 1:
            return replace(spec, tasks=(mine,))
    raise AssertionError("no sentence has so many tokens")


@pytest.mark.parametrize(("fault", "kind", "code"), [("row", "poisonous", 0), ("row memory", "retryable", 1)])
def test_what_a_second_command_asks_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, kind: str, code: int
) -> None:
    """A row that fails whenever it is tried, only on request; one that had no memory, always."""
    spec = breaking(folder, tmp_path, fault)
    total = 2 * (GOOD + 1)
    outcome = swept(spec)
    run = outcome.run
    assert run.failures()["kind"].to_list() == [kind]
    assert len(run.done("bad")) == total - 1
    done = ended(outcome, spec)
    assert done.exit_code == code
    assert ("1 of bad: evaluator status" in done.stderr.splitlines()[-1]) == (code == 0)
    assert ("--retry" in done.stderr) == (kind == "poisonous")
    assert ("--retry" in status(run)) == (kind == "poisonous")
    timings = run.timings().height
    monkeypatch.setattr(Faulty, "mended", True)
    again = swept(spec)
    assert ended(again, spec).exit_code == 0
    if kind == "poisonous":
        assert run.timings().height == timings, "it was asked again unasked"
        assert run.failures()["kind"].to_list() == [kind]
        (row,) = model_rows(run)
        assert (row["state"], row["done"], row["total"], row["failed"]) == ("done", total - 1, total, 1)
        swept(replace(spec, retry=True))
    assert run.failures().is_empty()
    assert len(run.done("bad")) == total


def test_so_many_that_the_model_was_at_fault_are_asked_again(folder: Path, tmp_path: Path) -> None:
    """It may have been mended since (another card, a repaired file)."""
    texts = [f"I am not {i // 10} {i % 10}" for i in range(60)]
    mine = own(tmp_path / "own.csv", *texts, good=0)
    spec = RunSpec((model(folder, "gpt"),), (mine,), tmp_path / "run")
    run = execute(replace(spec, limit=1)).run
    (ready,) = prepare(spec).models
    requests = [item.request for item in ready.encoded if item.request not in ready.answered]
    run.add_failures([("gpt", request, "NaN") for request in requests[:12]], "poisonous")
    (few,) = prepare(spec).models
    assert few.given_up == set(requests[:12])
    run.add_failures([("gpt", request, "NaN") for request in requests[12:110]], "poisonous")
    (many,) = prepare(spec).models
    assert many.given_up == set()


# --- what is recorded --------------------------------------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path) -> Run:
    made = Run.create_or_open(tmp_path / "run", protocol="default", provenance={})
    made.extend(models={"m": {"fingerprint": "ff", "heads_used": {}}})
    return made


def test_failures_of_older_versions_have_no_kind(empty: Run) -> None:
    old = pl.DataFrame({"model": ["m", "m"], "request": ["a", ""], "reason": ["too long", "no memory"]})
    write_part(empty.path / "failures", old)
    assert empty.failures().rows() == [("m", "a", "too long", "retryable"), ("m", "", "no memory", "retryable")]
    empty.add_new_failures([("m", "a", "too long")], "unaskable")
    assert empty.failures().rows() == [("m", "", "no memory", "retryable"), ("m", "a", "too long", "unaskable")]
    empty.clear_model_failure("m")
    assert empty.failures().rows() == [("m", "a", "too long", "unaskable")]


def test_of_a_request_the_last_failure_counts(empty: Run) -> None:
    for kind in ("retryable", "poisonous"):
        empty.add_failures([("m", "a", f"it was {kind}")], kind)
    assert empty.failures().rows() == [("m", "a", "it was poisonous", "poisonous")]
    assert empty.given_up("m") == {"a"}
    empty.add_failures([("m", "a", "no memory")])
    assert empty.given_up("m") == set()


def test_a_model_whose_samples_were_left_out_is_not_done_before_it_is(folder: Path, tmp_path: Path) -> None:
    """The state is read from what is stored: 4 requests can't be asked, and 4 others have no answer."""
    mine = own(tmp_path / "own.csv", LONG, LONGER)
    run = execute(RunSpec((model(folder, "gpt"),), (mine,), tmp_path / "run")).run
    whole = Run.open(shutil.copytree(run.path, tmp_path / "whole"))
    answers = run.answers("gpt")
    lost = answers["request"].unique(maintain_order=True)[:4].to_list()
    (kind,) = run.answers_folder("gpt").iterdir()
    for part in kind.iterdir():
        part.unlink()
    write_part(kind, answers.filter(~pl.col("request").is_in(lost)))
    (run.path / "progress.json").unlink()
    (row,) = model_rows(run)
    assert (row["state"], row["done"], row["total"], row["unaskable"]) == ("interrupted", 32, 36, 4)
    said = f"{mine.name}: gpt: 4 of 40 requests have no answer yet and the rates omit them: run the same command again"
    assert said in build_report(run, MeasureOptions(resamples=20)).warnings
    compared = build(sides([whole, run]), MeasureOptions(resamples=20), permutations=19)
    assert f"run:gpt: 4 of 40 requests of {mine.name} have no answer yet." in compared.notes
    assert set(compared.rows["difference"].drop_nulls()) == {0.0}  # one model's answers, on the samples that both runs have
    assert set(compared.rows["p"].drop_nulls()) == {1.0}
