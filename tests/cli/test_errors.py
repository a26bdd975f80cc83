"""Whatever goes wrong is one line on stderr, with an exit code that tells whose fault it is."""

from pathlib import Path

import pytest

from evaluator import cli


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["report"], 2, "Missing argument 'RUN'. (see evaluator report --help)"),
        (["nonsense"], 2, "No such command 'nonsense'."),
        (["report", "{run}", "--scale", "bad"], 2, "'bad' is not one of 'ratio', 'published', 'log10'"),
        (["report", "{run}", "--extra", "foo=1"], 2, "no task has a report setting 'foo'"),
        (["report", "{run}"], 2, "run.json can't be read"),
        (
            ["run", "gest-demo", "--model", "m", "--language", "sk"],
            2,
            "--language goes with the tasks gest-mt",
        ),
        (["run", "stereoset-en", "--model", "m", "--set", "case=orig"], 2, "evaluator report RUN --set case=orig"),
        (["run", "gest-mt", "--model", "m", "--translations", "{run}"], 2, "asks no model: leave --model out"),
    ],
)
def test_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    (tmp_path / "run.json").write_text('{"format": 1, "protocol": "default", "attempts": [], "tasks": {}, "models": {}}')
    (tmp_path / "sys" / "sk").mkdir(parents=True)
    (tmp_path / "sys" / "sk" / "translations.csv").write_text("from,to\n")
    if said.startswith("run.json"):
        (tmp_path / "run.json").write_text("{")
    monkeypatch.setattr("sys.argv", ["evaluator", *(a.format(run=tmp_path) for a in arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("evaluator: ")
    assert said in line


def test_a_bug_is_one_line_too_and_debug_shows_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "cli", lambda **_: {}["here"])
    monkeypatch.setattr("sys.argv", ["evaluator", "status", "x"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert capsys.readouterr().err == "evaluator: unexpected KeyError: 'here' (--debug shows where)\n"
    monkeypatch.setattr("sys.argv", ["evaluator", "status", "x", "--debug"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith("Traceback (most recent call last):")
    assert told.endswith("evaluator: unexpected KeyError: 'here' (--debug shows where)\n")
