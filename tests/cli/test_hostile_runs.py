"""Whatever lies in a run's folder, a command ends with one line that says what is wrong, or leaves out what can't be read."""

import base64
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.store.answers import frames_by_kind
from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.tasks.stored import candidates_of, task_entry
from evaluator.vocabulary import DataSource
from evaluator_serving.answers import Answer
from evaluator_serving.errors import InputError
from tests.commands import Command

COMMANDS = [
    ("status", "RUN"),
    ("report", "RUN", "--format", "csv", "--resamples", "10"),
    ("scores", "RUN"),
    ("compare", "RUN", "--resamples", "10", "--permutations", "10", "--format", "csv"),
    ("samples", "RUN", "--model", "m"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the demo's sentences with made-up answers of one model, and imported scores of another."""
    run = Run.create_or_open(tmp_path_factory.mktemp("whole") / "run", protocol="default", provenance={"command": []})
    demo = task("gest-demo")
    samples = demo.load(DataSource(None))
    made = demo.render(samples, frozenset({"masked"}), "default")
    entry = {"spec": "m", "fingerprint": "f", "heads_used": {"gest-demo": ["masked"]}}
    run.extend(tasks={"gest-demo": task_entry(demo, samples)}, models={"m": entry})
    run.add_table("gest-demo", {"masked"}, made.table)
    dice = random.Random(0)
    answers = [
        Answer(key, tuple((i,) for i in range(count)), tuple((-dice.random(),) for _ in range(count)), kind="masked")
        for key, request in made.requests.items()
        for count in [len(request.candidates)]  # type: ignore[union-attr]
    ]
    run.add_answers(run.answers_folder("m"), frames_by_kind(answers))
    run.add_failures([("m", "gone", "broken")])
    run.add_timings([{"model": "m", "worker": "0", "finished": 1.0, "requests": 1, "rows": 1, "tokens": 1, "seconds": 1.0}])
    rows = candidates_of(run, "gest-demo").select("language", "template", "sample", "group", score=pl.lit(0.5)).unique()
    run.add_imported("gest-demo", task_entry(demo, samples), "other", rows, "sha", part="part")
    return run.path


def edited(**changes: Any) -> Callable[[Path], None]:
    """Change fields of the scored model's entry."""

    def edit(run: Path) -> None:
        record = json.loads((run / "run.json").read_text())
        record["models"]["m"] |= changes
        (run / "run.json").write_text(json.dumps(record))

    return edit


def record(**changes: Any) -> Callable[[Path], None]:
    """Change fields of run.json."""
    return lambda run: (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | changes)) and None


def text(name: str, content: str) -> Callable[[Path], None]:
    """Write a file of the run."""
    return lambda run: (run / name).write_text(content) and None


RECORDS = {
    "cut": text("run.json", '{"format": 1, "models"'),
    "nested": text("run.json", "[" * 100_000),
    "bomb": text("run.json", '{"format": 1, "x": ' + '{"a":' * 100_000 + "1" + "}" * 100_001),
    "list": text("run.json", "[]"),
    "null": text("run.json", "null"),
    "binary": lambda run: (run / "run.json").write_bytes(b"\xff\xfe\x00") and None,
    "format": record(format="1"),
    "models-list": record(models=[]),
    "models-text": record(models={"m": "text"}),
    "tasks": record(tasks={"gest-demo": 3}),
    "attempts": record(attempts=[1]),
    "heads": edited(heads_used=[]),
    "heads-number": edited(heads_used={"gest-demo": 3}),
    "asked": edited(asked={"gest-demo": "x"}),
    "limit": edited(asked={"gest-demo": {"limit": "all"}}),
    "answers-away": edited(answers="../../other"),
    "answers-number": edited(answers=3),
    "parts": edited(parts={"gest-demo": {"p": {"file": "x"}}}),
    "starts": edited(starts=["now"]),
}
PARTS = ("samples/gest-demo.parquet", "imported/*/part-*", "logprobs/*/*/part-*", "failures/part-*", "timings/part-*")


PANIC = base64.b64decode(
    "UEFSMRUAFSIVIiwVAhUuFQYVBgAAAgAAAAMAAwAAAAMDAAEAAAAVAhklAAYZOAFhBGxpc3QHZWxlbWVudBUAFgIWRBZEJggAGRwWCBVEFgAAAB"
    "UCGUxIBHJvb3QVAgA1AhgBYRUCFQZMPAAAADUEGARsaXN0FQIAFQIlAhgHZWxlbWVudCUeTKwTCBEAAAAWAhkcGRwmTBwVAhklAAYZOAFhBGxp"
    "c3QHZWxlbWVudBUAFgIWRBZEJggAFpABFRQAFkQWAiYIFkQUAAAZHBgMQVJST1c6c2NoZW1hGOgBLy8vLy82WUFBQUFFQUFBQTh2Ly8veFFBQU"
    "FBRUFBRUFBQUFLQUFzQUNBQUtBQVFBK1AvLy93d0FBQUFJQUFnQUFBQUVBQUVBQUFBRUFBQUEwUC8vLzJnQUFBQmNBQUFBQ0FBQUFBRVZBQUFC"
    "QUFBQUJBQUFBT3ovLy84NEFBQUFJQUFBQUJnQUFBQUJBZ0FBRUFBU0FBUUFFQUFSQUFnQUFBQU1BQUFBQUFEMC8vLy9DQUFBQUFFQUFBQUlBQW"
    "tBQkFBSUFBUUFBQUJwZEdWdEFBQUFBUHovLy84RUFBUUFBUUFBQUdFQQAYTlBvbGFycyAocHl0aG9uKSB2ZXJzaW9uIDIuMS4wIChidWlsZCA3"
    "ZjkwMmJkM2ZmZDI3ZmY4MmQxNDI3OGEwOWEyOTVmZjJmN2FlZDkyKRkcHAAAAMsBAABQQVIx"
)
"""A Parquet file with a flipped bit in a page's header, at which Polars 2.1 panics instead of raising."""


def damage(path: Path, how: str) -> None:
    """Damage a Parquet file."""
    content = path.read_bytes()
    match how:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("PAR1, it says")
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "schema":
            pl.DataFrame({"other": [1, 2]}).write_parquet(path)
        case "types":
            frame = pl.read_parquet(path)
            frame.select(pl.lit(None, pl.Date()).alias(name) for name in frame.columns).write_parquet(path)
        case "folder":
            path.unlink()
            path.mkdir()
        case "panic":
            path.write_bytes(PANIC)


def ended(arguments: tuple[str, ...], run: Path, command: Command) -> tuple[int, list[str]]:
    """The exit code of a command and its last lines on stderr, warnings left out."""
    found = command(*(run if word == "RUN" else word for word in arguments))
    assert "Traceback" not in found.err
    return found.code, [line for line in found.err.splitlines() if not line.startswith(("warning: ", "note: "))]


@pytest.mark.parametrize("fault", RECORDS)
def test_a_hostile_record_is_refused_in_one_line(fault: str, whole: Path, tmp_path: Path, command: Command) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    RECORDS[fault](run)
    for arguments in COMMANDS:
        code, lines = ended(arguments, run, command)
        assert (code, len(lines)) == (2, 1), lines
        assert "run.json" in lines[0]
    if fault != "answers-away":  # which is found when the answers are asked for
        with pytest.raises(InputError, match=r"run\.json"):
            Run.create_or_open(run, protocol="default", provenance={})


@pytest.mark.parametrize("how", ["empty", "text", "cut", "schema", "types", "folder", "panic"])
def test_hostile_parquet_is_told_in_one_line_or_left_out(how: str, whole: Path, tmp_path: Path, command: Command) -> None:
    needed = {"samples", "imported"}
    for pattern in PARTS:
        run = Path(shutil.copytree(whole, tmp_path / pattern.partition("/")[0]))
        damage(next(iter(run.glob(pattern))), how)
        for arguments in COMMANDS[:3]:
            code, lines = ended(arguments, run, command)
            if pattern.partition("/")[0] in needed and arguments[0] != "status":
                assert (code, len(lines)) == (2, 1), (pattern, arguments, lines)
                assert "can't be read" in lines[0]
            else:
                assert code == 0, (pattern, arguments, lines)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"models": 3}',
        '{"models": [{"name": 3}]}',
        '{"models": [{"name": "m", "state": "running", "total": NaN, "rate": "x"}], "updated": NaN}',
    ],
)
def test_a_hostile_progress_file_is_a_help_that_is_missing(content: str, whole: Path, tmp_path: Path, command: Command) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    (run / "progress.json").write_text(content)
    assert ended(COMMANDS[0], run, command) == (0, [])
