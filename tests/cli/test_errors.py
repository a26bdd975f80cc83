"""Whatever goes wrong is one line on stderr, with an exit code that tells whose fault it is."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from evaluator import cli
from evaluator.cli.options import LocalPath, RunFolder
from evaluator.scoring.failures import Failures
from evaluator_serving.errors import InputError, ModelError, NotNowError, UnreachedHubError
from tests.commands import Command, Ended


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["report"], 2, "Missing argument 'RUN'. (see evaluator report --help)"),
        (["nonsense"], 2, "No such command 'nonsense'."),
        (["report", "{run}", "--scale", "bad"], 2, "'bad' is not one of 'ratio', 'published', 'log10'"),
        (["report", "{run}", "--extra", "foo=1"], 2, "--set foo: no task has this report setting"),
        (["report", "{run}"], 2, "run.json can't be read"),
        (
            ["run", "gest-demo", "--model", "m", "--language", "sk"],
            2,
            "--language is a parameter of gest-mt",
        ),
        (
            ["export", "m", "--out", "s3://bucket/m"],
            2,
            "Invalid value for '--out': s3://bucket/m is a URL: only runs can be on object storage",
        ),
        (["report", "{run}", "--figures", "gs://b/f"], 2, "gs://b/f is a URL"),
        (["run", "stereoset-en", "--model", "m", "--set", "case=orig"], 2, "evaluator report RUN --set case=orig"),
        (["run", "gest-mt", "--model", "m", "--translations", "{run}"], 2, "scores no model: remove the models"),
    ],
)
def test_one_line(tmp_path: Path, command: Command, arguments: list[str], code: int, said: str) -> None:
    (tmp_path / "run.json").write_text('{"format": 1, "protocol": "default", "attempts": [], "tasks": {}, "models": {}}')
    (tmp_path / "sys" / "sk").mkdir(parents=True)
    (tmp_path / "sys" / "sk" / "translations.csv").write_text("from,to\n")
    if said.startswith("run.json"):
        (tmp_path / "run.json").write_text("{")
    ended = command(*(a.format(run=tmp_path) for a in arguments))
    assert (ended.code, ended.line[:11]) == (code, "evaluator: ")
    assert said in ended.line


@pytest.mark.parametrize("group", [[], ["bench"], ["data"], ["import"]])
def test_a_group_without_a_command_shows_its_help(group: list[str], command: Command) -> None:
    ended = command(*group)
    assert ended.code == 2
    lines = ended.err.splitlines()
    assert lines[0].startswith("Usage: evaluator")
    assert len(lines) > 5


def test_no_command_takes_a_url_for_a_folder() -> None:
    """Every path is a run's, which may be a URL, or refuses one."""

    def paths(command: click.Command) -> Iterator[click.Path]:
        yield from (one.type for one in command.params if isinstance(one.type, click.Path))
        for inner in command.commands.values() if isinstance(command, click.Group) and command is not cli.cli else ():
            yield from paths(inner)

    context = click.Context(cli.cli)
    found = [one for name in cli.COMMANDS if (command := cli.cli.get_command(context, name)) for one in paths(command)]
    assert len(found) > 30
    assert all(isinstance(one, LocalPath | RunFolder) for one in found)


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch, command: Command) -> Callable[[Exception], Ended]:
    """How a command ends in which an error occurs."""

    def run(error: Exception) -> Ended:
        def failing(**_: object) -> None:
            raise error

        monkeypatch.setattr(cli, "cli", failing)
        return command("status", "x")

    return run


@pytest.mark.parametrize(("error", "code"), [(InputError, 2), (ModelError, 2), (NotNowError, 1), (UnreachedHubError, 1)])
def test_what_may_pass_is_no_wrong_input(error: type[InputError], code: int, fail: Callable[[Exception], Ended]) -> None:
    """A cluster gives a command again that ended with 1, and one that ended with 2 never."""
    alone = fail(error("the line"))
    assert (alone.line, alone.code) == ("evaluator: the line", code)
    failed = Failures({"a": error("one"), "b": InputError("two")})
    assert failed.only_input is (code == 2)
    both = fail(failed.combined())
    assert (both.line, both.code) == ("evaluator: a: one; b: two", code)


@pytest.mark.parametrize(
    ("number", "code", "remedy"),
    [
        (errno.EACCES, 2, "check the path"),
        (errno.ENOSPC, 2, "free some space"),
        (errno.ESTALE, 1, "again to resume"),
        (errno.EIO, 1, "again to resume"),
        (errno.ECONNRESET, 1, "again to resume"),
    ],
)
def test_a_file_server_that_is_away_is_no_wrong_input(
    number: int, code: int, remedy: str, fail: Callable[[Exception], Ended]
) -> None:
    ended = fail(OSError(number, "what it is", "/shared/run/part"))
    assert ended.code == code
    assert remedy in ended.line


def test_a_bug_is_one_line_too_and_debug_shows_it(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setattr(cli, "cli", lambda **_: {}["here"])
    plain, debug = command("status", "x"), command("status", "x", "--debug")
    assert plain.code == debug.code == 1
    assert plain.err == "evaluator: unexpected KeyError: 'here' (run with --debug for a traceback)\n"
    told = debug.err
    assert told.startswith("Traceback (most recent call last):")
    assert told.endswith("evaluator: unexpected KeyError: 'here' (run with --debug for a traceback)\n")
