"""A run folder: what it refuses, what it remembers, how scores come out of it."""

import json
from pathlib import Path

import polars as pl
import pytest

from evaluator.reports.report import build_report
from evaluator.scoring.status import model_rows
from evaluator.store import files
from evaluator.store import run as run_module
from evaluator.store.answers import frames_by_kind
from evaluator.store.run import MANY_PARTS, Run
from evaluator.tasks import task
from evaluator.tasks.stored import candidates_of, scores_of, task_entry
from evaluator.vocabulary import MeasureOptions, Samples
from evaluator_serving.answers import Answer
from evaluator_serving.errors import InputError, NotNowError

DATA = Samples(pl.DataFrame({"sample": [0, 1]}), {"gest.csv": "aa"})
ENTRY = {
    "spec": "m",
    "revision": "r1",
    "engine": "transformers",
    "dtype": "float32",
    "versions": {"torch": "1"},
    "details": {},
    "fingerprint": "ff",
    "heads_used": {"gest": ["causal"]},
}
TABLE = pl.DataFrame(
    {
        "sample": [0, 0, 1],
        "language": ["en"] * 3,
        "template": ["3", "4", "3"],
        "group": ["1", "1", "8"],
        "request": ["a", "b", "c"],
        "polarity": ["female", "female", "male"],
        "family": [False, False, True],
        "head": ["causal"] * 3,
    }
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create_or_open(tmp_path / "run", protocol="default", provenance={})
    made.add_task(task("gest").name, task_entry(task("gest"), DATA))
    made.extend(models={"m": ENTRY})
    made.add_table("gest", ["causal"], TABLE)
    return made


def answer(request: str, male: float, female: float) -> Answer:
    return Answer(request, ((5,), (6, 7)), ((float(male),), (float(female), 0.5)), kind="continuation")


def test_scores_come_from_answers(run: Run) -> None:
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer("a", -1, -2), answer("c", -3, -1)]))
    scores = scores_of(run, "gest")
    assert scores.select("model", "task", "template", "sample", "group", "score").rows() == [
        ("m", "gest", "3", 0, "1", -1 - (-2 + 0.5)),
        ("m", "gest", "3", 1, "8", -3 - (-1 + 0.5)),
    ]
    assert run.done("m") == {"a", "c"}
    assert candidates_of(run, "gest").filter(sample=1)["logprob"].to_list() == [-3.0, -0.5]


def test_answers_written_twice_count_once(run: Run) -> None:
    for _ in range(2):
        run.add_answers(run.answers_folder("m"), frames_by_kind([answer("a", -1, -2)]))
    assert scores_of(run, "gest").height == 1


def test_a_snapshot_reads_the_record_once_and_a_run_every_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer("a", -1, -2), answer("a", -1, -2)]))
    snapshot = run.snapshot()
    assert snapshot.models == run.models
    assert set(snapshot.answered("m")["request"]) == {"a"}
    run.add_attempt({"command": "again"})
    assert len(run.record["attempts"]) == len(snapshot.record["attempts"]) + 1
    assert run.snapshot().record == run.record
    readings: list[Path] = []
    read = run_module.read_json
    run.extend(models={f"n{i}": ENTRY | {"fingerprint": f"g{i}"} for i in range(5)})
    monkeypatch.setattr(run_module, "read_json", lambda path: readings.append(path) or read(path))
    assert [row["done"] for row in model_rows(run)] == [1, 0, 0, 0, 0, 0]
    assert len(readings) == 1


def test_a_kill_while_timings_are_made_one_counts_none_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = {"model": "m", "worker": "0", "requests": 3, "rows": 3, "tokens": 9, "seconds": 0.5}
    for number in range(MANY_PARTS):
        run.add_timings([chunk | {"finished": float(number)}])

    def killed(*paths: Path) -> None:
        paths[0].unlink()
        raise KeyboardInterrupt

    folder = run.path / "timings"
    with monkeypatch.context() as patch:
        patch.setattr(files, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            run.merge_timings()
    assert len(list(folder.iterdir())) == MANY_PARTS
    assert sorted(run.timings()["finished"]) == list(range(MANY_PARTS))
    run.merge_timings()
    assert len(list(folder.iterdir())) == 1
    assert run.timings()["requests"].sum() == 3 * MANY_PARTS


def test_failures_stand_until_answered(run: Run) -> None:
    run.add_failures([("m", "a", "killed"), ("m", "c", "killed")])
    assert run.failures()["request"].to_list() == ["a", "c"]
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer("a", -1, -2)]))
    assert run.failures()["request"].to_list() == ["c"]


def test_a_models_failure_goes_when_it_is_finished(run: Run) -> None:
    run.add_failures([("m", "", "no memory"), ("m", "c", "killed")])
    run.add_failures([("other", "", "no memory")])
    run.clear_model_failure("m")
    assert sorted(run.failures().rows()) == [
        ("m", "c", "killed", "retryable"),
        ("other", "", "no memory", "retryable"),
    ]
    run.clear_model_failure("other")
    run.clear_model_failure("other")
    assert run.failures().rows() == [("m", "c", "killed", "retryable")]


def test_a_model_without_answers_may_be_corrected(run: Run) -> None:
    corrected = ENTRY | {"dtype": "float64", "fingerprint": "gg"}
    run.extend(models={"m": corrected})
    assert run.record["models"]["m"]["dtype"] == "float64"
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer("a", -1, -2)]))
    with pytest.raises(InputError, match="another dtype"):
        run.extend(models={"m": ENTRY})


@pytest.mark.parametrize(
    ("field", "value"), [("revision", "r2"), ("dtype", "bfloat16"), ("engine", "onnx"), ("versions", {"torch": "2"})]
)
def test_another_model_under_the_same_name_is_refused(run: Run, field: str, value: object) -> None:
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer("a", -1, -2)]))
    run.extend(models={"m": ENTRY})
    with pytest.raises(InputError, match=f"another {field} for model m") as caught:
        run.extend(models={"m": ENTRY | {field: value}})
    assert "--out" in str(caught.value)


def test_other_data_and_protocol_are_refused(run: Run) -> None:
    with pytest.raises(InputError, match="another sha256 for task gest"):
        run.add_task(task("gest").name, task_entry(task("gest"), Samples(DATA.frame, {"gest.csv": "bb"})))
    with pytest.raises(InputError, match="made with --protocol default, now asked published"):
        Run.create_or_open(run.path, protocol="published", provenance={})


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is not a run"):
        Run.create_or_open(tmp_path, protocol="default", provenance={})
    with pytest.raises(InputError, match="is not a run"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match="can't be read"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="format 99"):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"format": 1}', '{"format": 1, "protocol": "default", "attempts": [], "tasks": {}}']
)
def test_a_damaged_record_is_one_line(run: Run, content: str) -> None:
    (run.path / "run.json").write_text(content)
    with pytest.raises(InputError, match=r"run\.json .*: restore it or use another folder"):
        Run.open(run.path)


def test_a_damaged_table_is_one_line(run: Run) -> None:
    (run.path / "samples" / "gest.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"gest\.parquet can't be read .*: run the same command again"):
        scores_of(run, "gest")


def test_what_is_missing_is_said(run: Run) -> None:
    report = build_report(run, MeasureOptions())
    assert "gest: m has no answers yet: run the same command again" in report.warnings
    shown = {"name": "m", "state": "done", "total": 3, "rate": 1.0}
    (run.path / "progress.json").write_text(json.dumps({"models": [shown]}))
    assert [(row["state"], row["done"], row["total"]) for row in model_rows(run)] == [("incomplete", 0, 3)]
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer("a", -1, -2)]))
    run.add_failures([("m", "b", "killed")])
    said = "gest: m: 1 of 3 requests have no answer yet and the rates omit them: run the same command again"
    assert said in build_report(run, MeasureOptions()).warnings
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer(r, -1, -2) for r in "abc"]))
    assert [(row["state"], row["done"]) for row in model_rows(run)] == [("done", 3)]
    assert not any("no answer" in line for line in build_report(run, MeasureOptions()).warnings)
    (run.path / "progress.json").write_text("junk")
    assert [row["done"] for row in model_rows(run)] == [3]


def test_models_that_are_not_in_the_last_command_are_read_from_what_is_stored(run: Run) -> None:
    run.extend(models={"n": ENTRY | {"fingerprint": "gg"}})
    run.extend(models={"refused": ENTRY | {"fingerprint": "hh"}})
    run.extend(models={"last": ENTRY | {"fingerprint": "ii"}})
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer(r, -1, -2) for r in "abc"]))
    run.add_answers(run.answers_folder("n"), frames_by_kind([answer(r, -1, -2) for r in "ab"]))
    run.add_failures([("n", "c", "too long"), ("refused", "", "no such engine")])
    shown = {"name": "last", "state": "running", "total": 3, "rate": 1.0}
    (run.path / "progress.json").write_text(json.dumps({"models": [shown]}))
    ended = [("m", "done", 3), ("n", "done", 3), ("refused", "failed", 3)]
    assert [(r["name"], r["state"], r["total"]) for r in model_rows(run)] == [*ended, ("last", "interrupted", 3)]
    with run.locked():
        assert [(r["name"], r["state"], r["total"]) for r in model_rows(run)] == [*ended, ("last", "running", 3)]
    for part in run.answers_folder("m").glob("*/*"):
        part.unlink()
    assert model_rows(run)[0]["state"] == "interrupted"


def test_what_earlier_commands_asked_counts_too(run: Run) -> None:
    """Of `m` a task is cut off, then another one finished; `n` has the same answers and was asked less."""
    run.add_task(task("winobias").name, task_entry(task("winobias"), DATA))
    run.add_table("winobias", ["causal"], TABLE[2:].with_columns(request=pl.lit("d")))
    run.extend(models={"m": ENTRY | {"heads_used": {"winobias": ["causal"]}}})
    run.extend(models={"n": ENTRY | {"heads_used": {"winobias": ["causal"]}}})
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer(r, -1, -2) for r in "ad"]))
    shown = {"name": "m", "state": "done", "total": 1, "done": 1, "failed": 0, "rate": 1.0}
    (run.path / "progress.json").write_text(json.dumps({"models": [shown]}))
    states = [(r["name"], r["state"], r["done"], r["total"]) for r in model_rows(run)]
    assert states == [("m", "incomplete", 2, 4), ("n", "done", 1, 1)]


def test_one_writer(run: Run) -> None:
    assert not run.busy
    with run.locked():
        assert run.busy
        with pytest.raises(NotNowError, match="another process"), run.locked():
            pass
    assert not run.busy
