"""What starts took: sums by hand, and the lines that `evaluator status` prints of them."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from evaluator.cli.status import command
from evaluator.reports.starts import Starts, start_lines
from evaluator.scoring.score import start_record
from evaluator.store.run import Run

ENTRY: dict[str, Any] = {"spec": "m", "revision": "r1", "engine": "transformers", "dtype": "float32", "heads_used": {}}
FIRST = start_record(0, "2 × CPU", {}, {"engine": 4.0, "verify": 1.25, "first_answer": 6.5})
AGAIN = start_record(1, "2 × CPU", {}, {"engine": 0.5, "verify": 0.25, "first_answer": 1.0}, reused=True)
HERE = start_record(0, "this process", {}, {"engine": 2.0, "verify": 0.5})


def test_what_is_left_until_the_first_answers_is_a_part_of_its_own() -> None:
    told = Starts.of([FIRST, AGAIN])
    assert told.parts == {"engine": 4.5, "verify": 1.5, "first_answer": 1.25 + 0.25}
    assert told.record() == {"count": 2, "reused": 1, "seconds": 7.5, "parts": dict(told.parts)}
    assert Starts.of([HERE]).parts == {"engine": 2.0, "verify": 0.5}, "nothing was measured of a first answer"


def test_parts_that_are_not_known_here_are_told_by_their_own_names() -> None:
    told = Starts.of([start_record(0, "", {}, {"warming": 1.0, "engine": 2.0, "fetch": 3.0, "first_answer": 6.0})])
    assert str(told) == "6.0 s (fetching weights 3.0, engine 2.0, process and first answers 0.0, warming 1.0)"


def test_older_runs_and_imports_have_nothing_to_tell() -> None:
    assert list(start_lines({}, 0.0)) == []
    assert list(start_lines({"models": {"a": {}, "b": {"imported": True}}}, 0.0)) == []


def test_status_tells_each_models_starts_and_their_sum(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run", protocol="default", provenance={})
    for name, starts in {"one": [FIRST], "two": [AGAIN], "three": [FIRST, AGAIN], "four": []}.items():
        run.extend(models={name: {**ENTRY, "fingerprint": name}})
        for start in starts:
            run.add_start(name, start)
    lines = CliRunner().invoke(command, [str(run.path)], env={"COLUMNS": "200"}).output.splitlines()
    assert [line for line in lines if "start" in line] == [
        "one: started in 6.5 s (engine 4.0, verifying it 1.2, process and first answers 1.2)",
        "two: started in 1.0 s (engine 0.5, verifying it 0.2, process and first answers 0.2), process reused",
        "three: 2 starts in 7.5 s (engine 4.5, verifying it 1.5, process and first answers 1.5), process reused by 1",
        "4 starts took 15.0 s (engine 9.0, verifying it 3.0, process and first answers 3.0), 2 of them in a reused process; "
        "scoring took 0.0 s",
    ]
    told = json.loads(CliRunner().invoke(command, [str(run.path), "--format", "json"]).output)
    assert told["starts"]["three"] == Starts.of([FIRST, AGAIN]).record()
    assert "four" not in told["starts"]
