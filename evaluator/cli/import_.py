"""`evaluator import`: published score files as normal runs. A new kind is one module and a line in KINDS."""

import click

from evaluator.cli.lazy_group import LazyGroup

KINDS: dict[str, tuple[str, str]] = {
    "gest-predictions": ("evaluator.cli.import_gest:command", "GEST: MODEL_template-K.txt, one log10 score per line."),
    "stereoset-predictions": ("evaluator.cli.import_stereoset:command", "StereoSet: JSON, a score for each candidate's id."),
}
"""Kind → (import path of its click.Command, one-line help)."""


@click.group(cls=LazyGroup, table=KINDS, section="Kinds", name="import", subcommand_metavar="KIND PATH… --out RUN")
def command() -> None:
    """Import published score files as a run, to re-analyse and compare them.

    \b
    Example:
      evaluator import gest-predictions --kind mlm DATA/gest/predictions/english_mlm --out runs/published
      evaluator report runs/published --scale published --interval published
    """
