"""Print the page of all commands, from their own help: `make docs` writes it to docs/cli.md."""

from collections.abc import Iterator

import click

from evaluator.cli import cli

HEAD = """# Commands

Made from the program's own help: `evaluator COMMAND --help` prints the same.

Exit codes: 0 done; 1 something failed that may succeed when the same command is given again, or a whole model failed; 2 the
command or its input is wrong; 3 a check of `evaluator compare --fail-if` failed; 130 interrupted.
"""


def sections(command: click.Command, above: click.Context | None, name: str) -> Iterator[str]:
    """A heading and the help of a command, then of those below it."""
    context = click.Context(command, parent=above, info_name=name, max_content_width=100, terminal_width=100)
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is None:
                raise LookupError(f"no command {below} in {context.command_path}")
            yield from sections(found, context, below)


if __name__ == "__main__":
    click.echo("\n".join([HEAD, *sections(cli, None, "evaluator")]), nl=False)
