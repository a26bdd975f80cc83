"""Every option of a command is an argument of the function that the command calls."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

from evaluator.cli import cli
from evaluator.cli.options import CALLS
from evaluator.scoring.run import run
from evaluator.tasks import RESERVED, known_parameters

SHOWING = {"format_", "figures", "stuck", "log_to", "as_json", "explain"}
"""How a command prints, where it sends its results besides, and with which exit code it ends."""
MORE = {"report": {"samples", "data"}}
"""Options for what is printed beside the result: the sentences of a page."""
WITHOUT = {"new"}
"""Prints a file that the package ships: there is no function to call."""


def commands(group: click.Command, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands that are no groups, by their names."""
    if not isinstance(group, click.Group):
        yield above.strip(), group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        below = group.get_command(context, name)
        assert below is not None
        yield from commands(below, f"{above} {name}")


COMMANDS = dict(commands(cli))


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if hasattr(command, CALLS)])
def test_every_option_is_an_argument_of_the_function_behind_the_command(name: str) -> None:
    command = COMMANDS[name]
    module, function = getattr(command, CALLS).split(":")
    arguments = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    options = {
        parameter.name
        for parameter in command.get_params(click.Context(command))
        if parameter.expose_value and parameter.name not in SHOWING | MORE.get(name, set())
    }
    names = set(arguments)
    for argument in (argument for argument in arguments.values() if argument.kind is argument.VAR_KEYWORD):
        unpacked = get_args(argument.annotation)  # Unpack[a TypedDict]; else parameters, which the tasks that have them check
        names |= set(get_type_hints(unpacked[0]) if unpacked else known_parameters())
    assert options <= names, f"{name} has options that {function}() doesn't have"


def test_commands_without_a_function() -> None:
    assert {name for name, command in COMMANDS.items() if not hasattr(command, CALLS)} == WITHOUT


def test_no_parameter_of_a_task_can_be_named_as_an_option_of_run() -> None:
    arguments = {name for name, each in inspect.signature(run).parameters.items() if each.kind is not each.VAR_KEYWORD}
    context = click.Context(COMMANDS["run"])
    options = [each for each in COMMANDS["run"].get_params(context) if each.name not in known_parameters()]
    flags = {flag.removeprefix("--").replace("-", "_") for each in options for flag in each.opts if flag.startswith("--")}
    assert arguments | flags <= RESERVED


def test_the_page_of_the_python_interface_names_the_function_of_each_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf8")
    for name, command in COMMANDS.items():
        if name not in WITHOUT:
            function = getattr(command, CALLS).replace(":", ".")
            assert f"| `{name}` | `{function}` |" in page or f"::: {function}\n" in page, f"{name}: {function}"
