"""Few, larger writes: what has arrived is written after some seconds, when it is much, or at once where it was paid for."""

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from evaluator.scoring import commits
from evaluator.scoring.commits import AT_ONCE, Arrival, Commits
from evaluator.scoring.score import Scored
from evaluator.store.answers import frames_by_kind
from evaluator.store.errors import StoreError
from evaluator.store.files import write_part
from evaluator.store.run import MANY_PARTS, PARTS_APART, Run
from evaluator_serving.answers import Answer
from evaluator_serving.chunks import make_chunk
from evaluator_serving.errors import InputError


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create_or_open(tmp_path / "run", protocol="default", provenance={})
    made.extend(models={name: {"spec": name, "fingerprint": f"f{name}"} for name in "mn"})
    return made


def arrival(model: str, number: int, engine: str = "onnx") -> Arrival:
    """A chunk with one answer."""
    answer = Answer(f"{model}{number}", ((number, 1),), ((-0.5 - number, -0.1),), kind="masked")
    active: Any = SimpleNamespace(
        number=0, model=SimpleNamespace(name=model, prepared=SimpleNamespace(info=SimpleNamespace(engine=engine)))
    )
    return Arrival(active, make_chunk([]), Scored(1, frames_by_kind([answer]), 0.1, 1, 2, 3, 0))


def write(waiting: Commits) -> list[str]:
    """The models whose answers were written."""
    models = []
    for arrivals, written in waiting.write():
        assert written.result() > 0
        models.append(arrivals[0].active.model.name)
    return models


def test_what_arrives_within_the_seconds_is_one_part_a_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(commits.time, "monotonic", lambda: now)
    waiting = Commits(run, 5.0)
    for number in range(20):
        waiting.add(arrival("m", number))
        waiting.add(arrival("n", number))
    assert not waiting.due
    now = 105.0
    assert waiting.due
    write(waiting)
    assert not waiting.due
    for model in "mn":
        (part,) = run.answers_folder(model).glob("masked/part-*")
        stored = pl.read_parquet(part)
        assert stored["request"].to_list() == [f"{model}{number}" for number in range(20)]
        assert np.array_equal(stored["logprobs"].list.first(), -0.5 - np.arange(20))
    assert run.timings().height == 40
    assert len(list((run.path / "timings").iterdir())) == 1


@pytest.mark.parametrize(("engine", "expected"), [("onnx", 3), ("openai", 5)])
def test_a_commit_syncs_each_file_once_and_folders_for_paid_answers_only(
    run: Run, engine: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file of timings, and one of answers for each of two models."""
    waiting = Commits(run)
    waiting.add(arrival("m", 0, engine))
    waiting.add(arrival("n", 0, engine))
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write(waiting)
    assert len(synced) == expected


def test_the_models_of_a_commit_are_synced_at_the_same_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model's part is synced before all others are about to be: one after the other, none would."""
    models = [f"m{number}" for number in range(AT_ONCE)]
    run.extend(models={name: {"spec": name, "fingerprint": f"f{name}"} for name in models})
    waiting = Commits(run)
    for name in models:
        waiting.add(arrival(name, 0))
    together, sync = threading.Barrier(AT_ONCE), os.fsync

    def fsync(file: int) -> None:
        if threading.current_thread() is not threading.main_thread():  # which writes the timings, before the answers
            together.wait(timeout=30)
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    assert write(waiting) == models
    assert all(run.done(name) == {f"{name}0"} for name in models)


def test_an_interrupted_commit_is_completed_by_the_next(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Commits(run)
    for model in "mn":
        waiting.add(arrival(model, 0))

    def interrupt(*given: Any) -> None:
        raise KeyboardInterrupt

    for where in ("ThreadPoolExecutor.submit", "wait"):
        with monkeypatch.context() as interrupted:
            interrupted.setattr(f"evaluator.scoring.commits.{where}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                write(waiting)
    assert run.timings()["model"].to_list() == ["m", "n"]
    assert write(waiting) == ["m", "n"]
    assert all(run.answers(model)["request"].to_list() == [f"{model}0"] for model in "mn")
    assert run.timings().height == 2


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_does_not_wait_for_a_slow_disk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was being written is whole after the next commit."""
    waiting, answered, sync = Commits(run), threading.Event(), os.fsync
    waiting.add(arrival("m", 0))

    def fsync(file: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            os.kill(os.getpid(), signal.SIGINT)
            answered.wait(timeout=5)
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyboardInterrupt):
        write(waiting)
    assert not run.done("m"), "the disk has not answered yet"
    answered.set()
    assert set(write(waiting)) == {"m"}
    assert run.done("m") == {"m0"}


def test_a_model_that_cannot_be_written_leaves_the_others(run: Run) -> None:
    waiting = Commits(run)
    for model in "mn":
        waiting.add(arrival(model, 0))
    run.answers_folder("m").parent.mkdir()
    run.answers_folder("m").touch()
    (_, failed), (_, written) = waiting.write()
    assert isinstance(failed.exception(), StoreError)
    assert written.result() > 0
    assert run.done("n") == {"n0"}


@pytest.mark.parametrize(("seconds", "engine", "most"), [(0.0, "onnx", 1 << 30), (1e9, "openai", 1 << 30), (1e9, "onnx", 1)])
def test_what_was_paid_for_or_is_much_is_due_at_once(
    run: Run, seconds: float, engine: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "BYTES", most)
    waiting = Commits(run, seconds)
    assert not waiting.due
    waiting.add(arrival("m", 0, engine))
    assert waiting.due


def test_the_seconds_are_a_setting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATOR_COMMIT", "2.5")
    assert Commits(run).seconds == 2.5
    monkeypatch.delenv("EVALUATOR_COMMIT")
    assert Commits(run).seconds == 5
    monkeypatch.setenv("EVALUATOR_COMMIT", "often")
    with pytest.raises(InputError, match="EVALUATOR_COMMIT is not a number of seconds: 'often'"):
        Commits(run)


def test_the_parts_of_a_finished_model_become_one(run: Run) -> None:
    """Also those of older versions, a part each chunk, some of them twice."""
    folder = run.answers_folder("m")
    for number in [*range(PARTS_APART - 1), 0]:
        run.add_answers(folder, arrival("m", number).scored.answers)
    before = run.answers("m")
    run.merge_answers("m")
    assert len(list(folder.glob("masked/part-*"))) == 1
    assert run.answers("m").equals(before)
    assert before.height == PARTS_APART - 1


def test_the_parts_of_a_long_run_are_merged_while_it_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of earlier commands, which ended before there were many. A large part is left as it is."""
    folder = run.answers_folder("m") / "masked"
    for number in range(MANY_PARTS):
        run.add_answers(folder.parent, arrival("m", number).scored.answers)
    large = write_part(folder, pl.concat([arrival("m", 1000 + i).scored.answers["masked"] for i in range(100)]))
    monkeypatch.setattr("evaluator.store.run.SMALL_PART", large.stat().st_size - 1)
    waiting, expected = Commits(run), {f"m{number}" for number in (*range(MANY_PARTS), *range(1000, 1100))}
    for number in range(2000, 2000 + MANY_PARTS + 1):
        waiting.add(arrival("m", number))
        write(waiting)
        expected.add(f"m{number}")
        if number in (2000, 2000 + MANY_PARTS):
            assert len(list(folder.iterdir())) == 2 + (number > 2000)
            assert large.exists()
            assert run.done("m") == expected
