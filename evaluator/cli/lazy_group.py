"""A Click group whose commands are modules that are imported when they run."""

from collections.abc import Mapping
from typing import Any

import click

from evaluator_serving.plugins import load_object


class LazyGroup(click.Group):
    """A group of which only names and one-line helps are known before a command is imported."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], section: str, **attributes: Any) -> None:
        """`table`: name → (`module:attribute` of a click.Command, one-line help); `section`: their heading in the help."""
        super().__init__(*args, **attributes)
        self._table = table
        self._section = section

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None for an unknown one (Click then says so)."""
        command: click.Command | None = load_object(self._table[cmd_name][0]) if cmd_name in self._table else None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section(self._section):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
