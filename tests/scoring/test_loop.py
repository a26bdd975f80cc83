"""The one scoring loop over both kinds of replicas, this process and Ray: the same exit codes, failures, records and scores.

Every case is a command, with chunks so small that there are several; all the cases on Ray share one cluster.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from transformers import AutoModelForCausalLM

from evaluator import cli
from evaluator.scoring import commits
from evaluator.scoring.driver import prepare
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store import run as store
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from evaluator_serving import engine
from tests.e2e.conftest import write_samples
from tests.own_tasks import custom
from tests.tiny_models import tiny_model

FAULTY = "tests.scoring.faulty:Faulty"
CHUNK = 200
"""Tokens of a chunk."""
APART = 2
"""So many files of timings are made one."""
LONG = "I am not " + "always " * 30 + "tired"
"""Much longer than the others."""
COUNT = 40
WORDS = ["always", "not", "strong", "weak", "happy", "tired", "a", "boss", "nurse", "friend", "people"]
KEYS = ["template", "sample"]
SCRIPT = f"from evaluator_serving import engine; engine.CHUNK_TOKENS['cpu'] = {CHUNK}; from evaluator.cli import main; main()"

ON = [
    "none",
    pytest.param(
        "local",
        marks=[pytest.mark.ray, pytest.mark.slow],
    ),
]


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, what it said on stderr, and its run."""

    code: int
    said: list[str]
    out: Path

    @property
    def run(self) -> Run:
        return Run.open(self.out)

    @property
    def failures(self) -> set[tuple[str, str]]:
        """(model, kind) of every failure."""
        return set(self.run.failures().select("model", "kind").rows())

    def scores(self, model: str) -> pl.DataFrame:
        (task,) = self.run.tasks
        return scores_of(self.run, task).filter(model=model).drop("model").sort(KEYS)


Command = Callable[..., Ended]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, the same one that has no finite number beyond the length of all sentences but one, and the sentences."""
    folder = tmp_path_factory.mktemp("loop")
    good = tiny_model("gpt2", folder / "good")
    dice = random.Random(0)
    texts = [" ".join(["I am", *dice.choices(WORDS, k=dice.randint(2, 12))]) for _ in range(COUNT)]
    write_samples(folder / "own.csv", [*((text, i % 16 + 1) for i, text in enumerate(texts)), (LONG, 1)])
    usual = max(length for length in tokens(folder) if length < 30)
    model = AutoModelForCausalLM.from_pretrained(good)
    with torch.no_grad():
        model.transformer.wpe.weight[usual:] = torch.nan
    tiny_model("gpt2", folder / "nan")
    model.save_pretrained(folder / "nan")
    return folder


def tokens(folder: Path) -> list[int]:
    """Lengths of the rows, in tokens, ascending."""
    spec = RunSpec((ModelSpec(str(folder / "good"), "transformers"),), (custom(folder / "own.csv"),), folder / "none")
    (model,) = prepare(spec).models
    return sorted({len(row.ids) for item in model.encoded for row in item.rows})


@pytest.fixture(scope="module", params=ON)
def on(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `--ray` is given: this process, or a cluster that was started once for all cases."""
    if request.param == "none":
        yield request.param
        return
    from evaluator.sweep.on_ray import cluster

    with pytest.MonkeyPatch.context() as patch:
        root = str(Path(__file__).parents[2])
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])))
        cluster.connect("local", 1)
        end = cluster.disconnect
        patch.setattr(cluster, "connect", lambda *_: None)
        patch.setattr(cluster, "disconnect", lambda: None)
        try:
            yield request.param
        finally:
            end()


@pytest.fixture(scope="module")
def command(on: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Sweep over models called NAME, of the folder's model `of` in an engine with the fault: `command(NAME=(of, fault, …))`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.CHUNK_TOKENS, "cpu", CHUNK)
        for module in (commits, store):
            patch.setattr(module, "MANY_PARTS", APART)

        def run(out: Path | None = None, *flags: str, **models: dict[str, Any]) -> Ended:
            out = out or tmp_path_factory.mktemp("runs") / "run"
            error = tmp_path_factory.mktemp("said") / "stderr"
            patch.setattr(sys, "argv", ["evaluator", *arguments(folder, out, on, models), *flags])
            with error.open("w", encoding="utf8") as file, pytest.MonkeyPatch.context() as streams:
                streams.setattr(sys, "stderr", file)
                with pytest.raises(SystemExit) as ended:
                    cli.main()
            return Ended(int(ended.value.code or 0), error.read_text(encoding="utf8").strip().splitlines(), out)

        yield run


def arguments(folder: Path, out: Path, on: str, models: dict[str, dict[str, Any]]) -> list[str]:
    """The command's arguments; its file lies beside its run."""
    lines = ['tasks = ["gest"]', f'samples = "{folder / "own.csv"}"', "[defaults]", 'dtype = "float64"']
    for name, model in models.items():
        of, extra = model.get("of", "good"), {k: v for k, v in model.items() if k not in ("of", "engine")}
        engine = model.get("engine", FAULTY if extra else "transformers")
        lines += ["[[models]]", f'name = "{name}"', f'model = "{folder / of}"', f'engine = "{engine}"']
        lines += [f"extra = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in extra.items())} }}"] if extra else []
    path = out.with_suffix(".toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return ["sweep", str(path), "--out", str(out), "--ray", on, "--no-verify"]


def assert_whole(ended: Ended, model: str, expected: pl.DataFrame) -> None:
    """All scores of a model, those of the undisturbed one, and each answer stored once."""
    columns = expected.columns
    assert_frame_equal(ended.scores(model).select(columns), expected, rel_tol=0.0, abs_tol=1e-9)
    parts = list(ended.run.answers_folder(model).glob("*/part-*"))
    stored = pl.concat(map(pl.read_parquet, parts)).select("request", "candidate")
    assert stored.is_duplicated().sum() == 0
    assert ended.run.timings().filter(model=model).height >= 2, "chunks"


@pytest.fixture(scope="module")
def rows_that_break(command: Command, folder: Path) -> Ended:
    """An undisturbed model, one with an engine that raises at a row, one that has no finite number for it."""
    return command(clean={}, raising={"fault": "row", "tokens": tokens(folder)[-1]}, bad={"of": "nan"})


def test_a_clean_run_and_what_is_recorded_of_it(rows_that_break: Ended, on: str, folder: Path) -> None:
    run = rows_that_break.run
    assert scores_of(run, run.tasks[0]).filter(model="clean").height == 2 * (COUNT + 1)
    assert_whole(rows_that_break, "clean", rows_that_break.scores("clean"))
    entry = run.record["models"]["clean"]
    (start,) = entry["starts"]
    assert set(start["seconds"]) == {"fetch", "engine", "verify", "first_answer"}
    assert start["placement"]["devices"] == 1
    assert start["on"].startswith("this process" if on == "none" else "1 × CPU")
    assert entry["engine_details"]["device"] == "cpu"
    assert "verified" not in entry
    (counts,) = entry["text_tokens"].values()
    assert counts["unknown"] == 0
    assert counts["tokens"] > 0
    assert len(list((run.path / "timings").iterdir())) <= APART
    timings = run.timings().filter(model="clean")
    assert timings["requests"].sum() == len(run.done("clean"))
    assert set(timings["worker"]) == {"0"}
    states = {m["name"]: m["state"] for m in json.loads((run.path / "progress.json").read_text())["models"]}
    assert set(states.values()) == {"done"}


@pytest.mark.parametrize(("model", "lost", "why"), [("raising", 1, "broken"), ("bad", 2, "NaN")])
def test_a_row_that_cannot_be_scored_is_given_up_and_nothing_else(
    rows_that_break: Ended, model: str, lost: int, why: str
) -> None:
    """It is no reason to try again: exit code 0, and a line that counts it. Its sample is named."""
    assert rows_that_break.code == 0
    failures = rows_that_break.run.failures().filter(model=model)
    assert failures["kind"].to_list() == ["poisonous"] * lost
    assert all(f"sample {COUNT}, template" in reason and why in reason for reason in failures["reason"])
    assert f"{lost} of {model}" in rows_that_break.said[-1]
    scores, clean = rows_that_break.scores(model), rows_that_break.scores("clean")
    answered = scores.filter(pl.col("score").is_not_null())
    assert answered.height == clean.height - lost
    assert_whole(rows_that_break, model, clean.join(answered, on=KEYS, how="semi", maintain_order="left"))


def test_a_row_that_cannot_be_scored_ends_the_model_where_nothing_may_be_left_out(command: Command) -> None:
    ended = command(None, "--strict", bad={"of": "nan"})
    assert ended.code == 2
    assert "bad: " in ended.said[-1]
    assert f"sample {COUNT}, template" in ended.said[-1]
    assert "NaN" in ended.said[-1]
    assert ended.failures == {("bad", "retryable")}
    assert ended.run.failures()["request"].to_list() == [""]


def test_an_engine_that_refuses_or_breaks_is_its_models_failure(command: Command, rows_that_break: Ended) -> None:
    ended = command(refused={"fault": "refuse"}, broken={"fault": "score"}, closing={"fault": "close"}, clean={})
    assert ended.code == 1
    said = {
        "refused": "this model can't be loaded: take another one",
        "broken": "unexpected OddError: broken at score",
        "closing": "unexpected OddError: broken at close",
    }
    assert ended.said[-3:] == [f"evaluator: {name} failed: {reason}" for name, reason in said.items()]
    assert sorted(ended.run.failures().rows()) == sorted((name, "", reason, "retryable") for name, reason in said.items())
    for model in ("clean", "closing"):
        assert_whole(ended, model, rows_that_break.scores("clean"))
    assert not ended.scores("refused").height or ended.scores("refused")["score"].is_null().all()


def test_a_single_model_that_is_refused(command: Command) -> None:
    """When it is loaded: its failure, and wrong input. Before that: nothing is written at all."""
    loading = command(refused={"fault": "refuse"})
    assert (loading.code, loading.said[-1]) == (2, "evaluator: this model can't be loaded: take another one")
    assert loading.failures == {("refused", "retryable")}
    before = command(refused={"engine": "transformers", "graph": "plain"})
    assert before.code == 2
    assert "no option graph" in before.said[-1]
    assert not before.out.exists()


def test_a_killed_worker_costs_nothing(command: Command, on: str, rows_that_break: Ended, folder: Path, tmp_path: Path) -> None:
    """On Ray the actor's process is killed, and another one goes on; else the command's own, and it is given again."""
    models = {"killed": {"fault": "kill", "mark": str(tmp_path / "mark")}}
    out = tmp_path / "run"
    if on == "none":
        process = [sys.executable, "-c", SCRIPT, *arguments(folder, out, on, models)]
        done = subprocess.run(process, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert Run.open(out).timings().height
    ended = command(out, **models)
    assert (tmp_path / "mark").exists()
    assert ended.code == 0, ended.said
    assert ended.run.failures().is_empty()
    assert_whole(ended, "killed", rows_that_break.scores("clean"))
    # A start counts from the first answer on. On Ray that may be lost with its process, and another replica may do the rest.
    assert len(ended.run.record["models"]["killed"]["starts"]) >= (2 if on == "none" else 1)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_command_and_the_same_one_goes_on(command: Command, rows_that_break: Ended, tmp_path: Path) -> None:
    mark, out = tmp_path / "mark", tmp_path / "run"
    models = {"held": {"fault": "hold", "mark": str(mark)}}

    def press() -> None:
        while not list((out / "logprobs").glob("*/*/part-*")):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    ended = command(out, **models)
    thread.join(timeout=60)
    assert ended.code == 130
    assert ended.said[-1] == "interrupted: all finished work is kept; run the same command again to resume"
    assert ended.run.failures().is_empty()
    assert 0 < len(ended.run.done("held")) < len(rows_that_break.run.done("clean"))
    mark.touch()
    again = command(out, **models)
    assert again.code == 0, again.said
    assert_whole(again, "held", rows_that_break.scores("clean"))
    assert "held: all answers are already stored" in "\n".join(command(out, **models).said)


@pytest.mark.parametrize(("memory", "both"), [("4", True), ("0.8", False)])
def test_the_next_model_loads_beside_the_last_chunks_where_memory_is_left_for_both(
    command: Command, rows_that_break: Ended, on: str, memory: str, both: bool, tmp_path: Path
) -> None:
    """Half a GiB a model is what a worker's libraries take. This process has nobody who could load beside it.

    Where the second one loads beside the first, that waits for it with its last two chunks.
    """
    beside = both and on == "local"
    chunks = rows_that_break.run.timings().filter(model="clean").height
    first, second = {"fault": "hold" if beside else "none", "calls": chunks - 2}, {"fault": "touch"}
    mark = {"mark": str(tmp_path / "mark")}
    ended = command(None, "--worker-memory", memory, first=first | mark, second=second | mark)
    assert ended.code == 0, ended.said
    assert ended.run.failures().is_empty()
    for model in ("first", "second"):
        assert_whole(ended, model, rows_that_break.scores("clean"))
    (start,) = ended.run.record["models"]["second"]["starts"]
    assert start["reused_process"] != beside, "beside it means in another process"
