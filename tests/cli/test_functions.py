"""Every option of a command is an argument of the function that the command calls."""

import importlib
import inspect
from collections.abc import Iterator

import click
import pytest

from evaluator.cli import cli
from evaluator.cli.options import CALLS
from evaluator.tasks import known_parameters

SHOWING = {"format_", "figures", "stuck", "log_to", "as_json"}
"""How a command prints, where it sends its results besides, and with which exit code it ends."""
MORE = {"plan": {"price"}, "archive": {"tasks"}, "report": {"samples", "data"}, "gender": {"explain"}}
"""Options for what is printed beside the result; archive refuses --task, which the other commands with rates have."""
WITHOUT = {
    "new",
    "translate",
    "translate-dataset",
}
"""Commands that are still to say which function they call."""


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
    if any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values()):
        options -= set(known_parameters())  # they are checked by the tasks that have them
    assert options <= set(arguments), f"{name} has options that {function}() doesn't have"


def test_commands_without_a_function() -> None:
    assert {name for name, command in COMMANDS.items() if not hasattr(command, CALLS)} == WITHOUT
