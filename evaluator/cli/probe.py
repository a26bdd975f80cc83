"""`evaluator probe`: ask one model about some words."""

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from evaluator.cli.options import calls, code_option, engine_options, pickle_option


@calls("evaluator.scoring.probe:probe")
@click.command(name="probe")
@click.argument("model")
@click.argument("text")
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@engine_options
@pickle_option
@code_option
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(format_: str, **arguments: Any) -> None:
    """Print each word's tokens, ids, log-probability (natural log) and probability in TEXT's slot [].

    \b
    Examples:
      evaluator probe bert-base-uncased '[] said: "I love cooking."' He She
      evaluator probe gpt2 '"I love cooking.", []' he she
    """
    from evaluator.scoring.probe import probe

    rows = probe(**arguments)
    if format_ == "json":
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table()
    for column in ("word", "tokens", "ids"):
        table.add_column(column)
    table.add_column("log P", justify="right")
    table.add_column("P", justify="right")
    for row in rows:
        table.add_row(
            row["word"],
            " ".join(row["tokens"]),
            " ".join(map(str, row["ids"])),
            f"{row['logprob']:.4f}",
            f"{row['probability']:.3g}",
        )
    Console().print(table)
