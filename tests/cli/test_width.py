"""What commands print fits 80 columns, also where models have long names."""

from pathlib import Path

import pytest

from evaluator.cli import engines, tasks
from evaluator.cli.listing import fitted
from evaluator.tasks import known_tasks
from evaluator_serving.registry import known_engines
from tests.comparison.conftest import ROWS, invoke, make_run, scores
from tests.made_up_runs import write_gest

NAMES = [f"a-language-model-with-a-very-long-name-70B-Instruct-and-then-some-v0.{i}" for i in (1, 2)]


def test_tables_and_sentences_of_models_with_long_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = make_run(
        tmp_path / "run", write_gest(tmp_path / "data", ROWS), **dict(zip(NAMES, (scores(), scores(0.5, 0.3)), strict=True))
    )
    data = ("--data", tmp_path / "data")
    for command in (
        ("report", run, "--resamples", "9"),
        ("compare", run, "--resamples", "9", "--permutations", "9"),
        ("samples", run, "--model", NAMES[0], *data),
        ("samples", run, "--model", NAMES[0], "--against", NAMES[1], *data),
        ("status", run),
        ("data", "list", *data),
    ):
        done = invoke(*command)
        assert done.exit_code == 0, done.exception
        assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
        assert done.stdout.strip()


def test_lists_of_tasks_and_engines_are_wrapped_between_words() -> None:
    lines = [line for one in known_tasks() for line in tasks.shown(one)]
    lines += [line for one in known_engines() for line in engines.shown(one)]
    assert max(map(len, lines)) > 100
    for line in lines:
        shown = fitted(line, 80)
        assert max(map(len, shown)) <= 80
        assert " ".join(shown).split() == line.split()
        assert all(more.startswith("    ") for more in shown[1:])
