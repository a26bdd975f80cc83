"""`evaluator doctor`: what works here, and what to do about what doesn't."""

import json
from pathlib import Path

import click

from evaluator.cli.options import data_option


@click.command(name="doctor")
@data_option
@click.option("--quick", is_flag=True, help="Try neither engines nor Ray: a second, as a container's health check.")
@click.option(
    "--need",
    "needs",
    multiple=True,
    metavar="NAME",
    help="This must work too: an engine, an extra, gpu, data; may be repeated.",
)
@click.option("--ray", metavar="ADDRESS", help="Try the cluster there (default: RAY_ADDRESS, else one started here).")
@click.option("--json", "as_json", is_flag=True, help="The same as a JSON list.")
def command(data: Path | None, quick: bool, needs: tuple[str, ...], ray: str | None, as_json: bool) -> None:
    """Examine this installation and machine: one line a finding, with what to do where something isn't well.

    Engines are tried on tiny models made on the spot; nothing is fetched. Of tokens is told whether they are there. Exit code
    1 if something that is needed is broken.

    \b
    Examples:
      evaluator doctor
      evaluator doctor --quick --need vllm --need gpu
    """
    from evaluator.doctor.examine import examine, unmet

    found = []
    for finding in examine(data=data, ray=ray, quick=quick):
        found.append(finding)
        if not as_json:
            click.echo(finding.line())
    wanting = list(unmet(found, needs))
    if as_json:
        click.echo(json.dumps([finding.record() for finding in (*found, *wanting)], indent=1, ensure_ascii=False))
    else:
        click.echo("".join(f"{finding.line()}\n" for finding in wanting), nl=False)
        counts = {state: sum(one.state == state for one in (*found, *wanting)) for state in ("ok", "note", "warning", "broken")}
        click.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    if wanting or any(one.state == "broken" for one in found):
        raise click.exceptions.Exit(1)
