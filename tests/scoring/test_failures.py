"""Whatever one model throws, wherever, is that model's failure: the others are scored as if they were alone."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from polars.testing import assert_frame_equal
from tiny_models import tiny_model
from transformers import AutoTokenizer

from evaluator.cli.run import finish
from evaluator.scoring.driver import Outcome, execute
from evaluator.scoring.failures import Failures
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.errors import StoreError
from evaluator.store.run import Run
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks.stored import scores_of
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError, ModelError, in_words
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom

NAMES = ("first", "second", "third")
FAULTY = "tests.scoring.faulty:Faulty"
UNEXPECTED = "unexpected OddError: broken at"
ENGINES = {
    "load": f"{UNEXPECTED} load",
    "load memory": "unexpected MemoryError: no more of it",
    "load exit": "unexpected SystemExit: the library gave up",
    "verify": f"{UNEXPECTED} verify",
    "score": f"{UNEXPECTED} score",
    "score exit": "unexpected SystemExit: the library gave up",
    "close": f"{UNEXPECTED} close",
}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    """Three models under three names, two chunks of work each, in the transformers engine."""
    folder = tmp_path_factory.mktemp("failures")
    samples = write_samples(folder / "own.csv", [(text, group) for text, group in sentences(480) if len(text) < 90])
    folders = [tiny_model("gpt2", folder / str(seed), seed=seed) for seed in range(3)]
    models = tuple(ModelSpec(str(f), "transformers", label=n) for f, n in zip(folders, NAMES, strict=True))
    return RunSpec(models, (custom(samples),), folder / "run")


@pytest.fixture(scope="module")
def undisturbed(spec: RunSpec) -> Run:
    return execute(spec).run


def swept(spec: RunSpec) -> Outcome:
    return sweep(spec, SweepOptions("none"))


def broken(spec: RunSpec, out: Path, fault: str) -> RunSpec:
    """The second model breaks."""
    first, second, third = spec.models
    bad = replace(second, engine=FAULTY, options=EngineOptions(extra={"fault": fault}))
    return replace(spec, models=(first, bad, third), out=out)


def assert_whole(run: Run, undisturbed: Run, *names: str, within: float = 0.0) -> None:
    (task,) = undisturbed.tasks
    for name in names:
        found = scores_of(run, task).filter(model=name)
        assert found.height
        assert_frame_equal(found, scores_of(undisturbed, task).filter(model=name), rel_tol=0.0, abs_tol=within)


@pytest.mark.parametrize(("fault", "drive"), [*((fault, execute) for fault in ENGINES), ("score", swept)])
def test_an_engine_that_breaks(
    spec: RunSpec, undisturbed: Run, fault: str, drive: Callable[[RunSpec], Outcome], tmp_path: Path
) -> None:
    said = ENGINES[fault]
    outcome = drive(broken(spec, tmp_path / "run", fault))
    assert {name: in_words(error) for name, error in outcome.errors.items()} == {"second": said}
    assert_whole(outcome.run, undisturbed, "first", "third")
    assert outcome.run.failures().rows() == [("second", "", said, "retryable")]


@pytest.mark.parametrize(
    ("where", "error", "said"),
    [
        ("evaluator_serving.models.resolving.resolve", OSError("no such thing\n and a traceback"), "no such thing"),
        ("evaluator.scoring.model_setup.identity", KeyError("who"), "unexpected KeyError: 'who'"),
        ("evaluator_serving.encoding.encoder_for", ModelError("token 7 has no embedding"), "token 7 has no embedding"),
    ],
)
def test_a_model_that_breaks_before_it_is_loaded(
    spec: RunSpec, undisturbed: Run, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception, said: str, tmp_path: Path
) -> None:
    right = pytest.importorskip(where.rpartition(".")[0]).__dict__[where.rpartition(".")[2]]
    calls: list[object] = []

    def wrong(*arguments: object, **named: object) -> object:
        calls.append(arguments)
        if len(calls) == 2:
            raise error
        return right(*arguments, **named)

    monkeypatch.setattr(where, wrong)
    monkeypatch.setattr("evaluator_serving.encoding.likeness", lambda source: source.spec)  # or one encoder serves all three
    outcome = execute(replace(spec, out=tmp_path / "run"))
    assert {name: in_words(error) for name, error in outcome.errors.items()} == {"second": said}
    kind = "unaskable" if isinstance(error, ModelError) else "retryable"
    assert outcome.run.failures().rows() == [("second", "", said, kind)]
    assert_whole(outcome.run, undisturbed, "first", "third")
    monkeypatch.undo()
    again = execute(replace(spec, out=tmp_path / "run"))
    assert not again.errors
    assert again.run.failures().is_empty()
    assert_whole(again.run, undisturbed, *NAMES)


def test_a_tokenizer_with_more_tokens_than_the_model_is_one_models_failure(
    spec: RunSpec, undisturbed: Run, tmp_path: Path
) -> None:
    second = tmp_path / "unresized"
    shutil.copytree(spec.models[1].spec, second)
    tokenizer = AutoTokenizer.from_pretrained(second)
    size = len(tokenizer)
    tokenizer.add_tokens([" always"])
    tokenizer.save_pretrained(second)
    models = (spec.models[0], replace(spec.models[1], spec=str(second)), spec.models[2])
    outcome = execute(replace(spec, models=models, out=tmp_path / "run"))
    ((name, error),) = outcome.errors.items()
    assert name == "second"
    assert isinstance(error, ModelError)
    assert re.match(
        rf"second: gest-\w+, sample \d+, template \d: token ' always' \(id {size}\) is beyond the {size} tokens", str(error)
    )
    assert_whole(outcome.run, undisturbed, "first", "third")


def test_all_models_that_a_command_is_refused_for_are_told_at_once(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = Path(shutil.copytree(spec.models[1].spec, tmp_path / "pickled"))
    (pickled / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(1)}, pickled / "pytorch_model.bin")
    wrong = [replace(spec.models[1], spec=str(pickled)), replace(spec.models[2], spec=str(tmp_path / "none"))]
    monkeypatch.setattr("evaluator.scoring.driver.prepare_model", lambda *_: pytest.fail("a model was prepared"))
    with pytest.raises(InputError) as told:
        execute(replace(spec, models=(spec.models[0], *wrong), out=tmp_path / "run"))
    first, second = str(told.value).splitlines()
    assert f"{pickled}: its weights are pickled (pytorch_model.bin)" in first
    assert f"{tmp_path / 'none'}: no such folder" in second
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("error", "kind"), [(KeyError("who"), EngineError), (ModelError("no embedding"), InputError)])
def test_where_no_model_is_left_nothing_is_written(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], tmp_path: Path
) -> None:
    def wrong(*_: object) -> None:
        raise error

    monkeypatch.setattr("evaluator.scoring.model_setup.identity", wrong)
    with pytest.raises(kind) as caught:
        execute(replace(spec, out=tmp_path / "run"))
    assert str(caught.value) == "; ".join(f"{m.name}: {in_words(error)}" for m in spec.models)
    with pytest.raises(type(error)):
        execute(replace(spec, models=spec.models[:1], out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_interruption_and_a_full_disk_end_the_run(spec: RunSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are no model's fault: nothing is recorded, and the same command goes on."""
    for error in (KeyboardInterrupt(), StoreError(28, "No space left on device")):

        def wrong(*_: object, error: BaseException = error, **__: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(Run, "add_answers", wrong)
            with pytest.raises(type(error)):
                execute(replace(spec, out=tmp_path / "run"))
        assert Run.open(tmp_path / "run").failures().is_empty()


def test_what_is_kept_of_an_error_holds_no_weights() -> None:
    class Weights:
        alive = 0

        def __init__(self) -> None:
            Weights.alive += 1

        def __del__(self) -> None:
            Weights.alive -= 1

    def load() -> None:
        weights = Weights()
        try:
            raise KeyError(str(weights))
        except KeyError as error:
            raise RuntimeError("no") from error

    errors = Failures()
    with errors.of("m"):
        load()
    assert Weights.alive == 0
    assert isinstance(errors["m"], RuntimeError)


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        ({"second": ModelError("no embedding")}, 1),
        ({"first": InputError("bad"), "second": ModelError("no"), "third": InputError("bad")}, 2),
        ({"first": InputError("bad"), "second": EngineError("no"), "third": InputError("bad")}, 1),
    ],
)
def test_exit_codes_and_causes_at_the_end(
    spec: RunSpec, undisturbed: Run, failed: dict[str, Exception], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 where wrong input is all that came of it, else 1."""
    import click

    monkeypatch.setattr("evaluator.cli.report.show", lambda path: None)
    command = click.Command(
        "run", callback=lambda: finish(Outcome(undisturbed, Failures(failed)), [model.name for model in spec.models])
    )
    done = CliRunner().invoke(command)
    assert done.exit_code == code
    causes = [f"evaluator: {name} failed: {error}" for name, error in failed.items()]
    assert done.stderr.splitlines()[-len(causes) :] == causes


@pytest.mark.ray
@pytest.mark.slow
def test_models_that_break_on_ray(spec: RunSpec, undisturbed: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Errors that don't survive pickling, a library that ends the process, a model that can't be queued."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])))
    right = PreparedModel.pending_chunks

    def cut(model: PreparedModel, *arguments: object, **named: object) -> object:
        if model.name == "queue":
            raise KeyError("who")
        return right(model, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(PreparedModel, "pending_chunks", cut)
    _, second, third = spec.models
    stages = ["load exit", "score", "queue"]
    bad = [replace(second, label=s, engine=FAULTY, options=EngineOptions(extra={"fault": s})) for s in stages]
    outcome = sweep(replace(spec, models=(*bad, third), out=tmp_path / "run"), SweepOptions("local"))
    expected = {s: ENGINES[s] for s in stages if s in ENGINES} | {"queue": "unexpected KeyError: 'who'"}
    assert {name: in_words(error) for name, error in outcome.errors.items()} == expected
    assert sorted(outcome.run.failures().rows()) == sorted((n, "", said, "retryable") for n, said in expected.items())
    assert_whole(outcome.run, undisturbed, "third", within=1e-5)  # of another number of threads
