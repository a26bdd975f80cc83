"""`evaluator import`: published score files as normal runs. A new kind is one module and a line in KINDS."""

import importlib

import click

KINDS: dict[str, tuple[str, str]] = {
    "gest-predictions": ("evaluator.cli.import_gest", "GEST: MODEL_template-K.txt, one log10 score a line."),
    "stereoset-predictions": ("evaluator.cli.import_stereoset", "StereoSet: JSON, a score for each candidate's id."),
}
"""Kind to (module with a click.Command called `command`, one-line help)."""


class ImportGroup(click.Group):
    """The kinds, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of KINDS."""
        return list(KINDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a kind; None for an unknown one."""
        if cmd_name not in KINDS:
            return None
        command: click.Command = importlib.import_module(KINDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the kinds without importing them."""
        with formatter.section("Kinds"):
            formatter.write_dl([(name, text) for name, (_, text) in KINDS.items()])


@click.group(cls=ImportGroup, name="import", subcommand_metavar="KIND PATH… --out RUN")
def command() -> None:
    """Make a run out of published score files: to re-analyse, compare and correct them.

    \b
    Example:
      evaluator import gest-predictions --kind mlm DATA/gest/predictions/english_mlm --out runs/published
      evaluator report runs/published --scale published --interval published
    """
