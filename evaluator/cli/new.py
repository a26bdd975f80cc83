"""`evaluator new`: example files to begin with."""

from pathlib import Path

import click

from evaluator.cli.output import write

KINDS = {
    "definition": "definition.toml",
    "samples": "samples.csv",
    "pairs": "pairs.toml",
    "pair-samples": "pair-samples.csv",
    "sweep": "sweep.toml",
}
EXAMPLES = Path(__file__).with_name("examples")


@click.command(name="new")
@click.argument("kind", type=click.Choice(tuple(KINDS)))
def command(kind: str) -> None:
    """Write an example file to stdout: valid as it is, with a comment on every key.

    definition: custom templates, groups, poles and word pairs. samples: sentences for it (CSV: a sentence and its group per
    line; double quotes around a sentence with commas). pairs, pair-samples: the same for sentence pairs. sweep: many
    models in one run.

    \b
    Examples:
      evaluator new definition > definition.toml
      evaluator new samples > samples.csv
      evaluator run gest --samples samples.csv --templates definition.toml --model gpt2
      evaluator new pairs > pairs.toml && evaluator new pair-samples > pairs.csv
      evaluator run pairs --samples pairs.csv --templates pairs.toml --model gpt2
      evaluator new sweep > sweep.toml && evaluator plan sweep.toml
    """
    write((EXAMPLES / KINDS[kind]).read_text(encoding="utf8"))
