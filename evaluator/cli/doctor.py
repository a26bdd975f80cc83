"""`evaluator doctor`: check the installation and the machine."""

import json
from typing import Any

import click

from evaluator.cli.options import calls, data_option


@calls("evaluator.doctor.examine:examine")
@click.command(name="doctor")
@data_option
@click.option("--quick", is_flag=True, help="Skip the trials of engines and Ray (for container health checks).")
@click.option(
    "--need",
    "needs",
    multiple=True,
    metavar="NAME",
    help="Also require this engine, extra, gpu or data; may be repeated.",
)
@click.option("--ray", metavar="ADDRESS", help="Ray cluster to try (default: RAY_ADDRESS, else a local one).")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def command(as_json: bool, **arguments: Any) -> None:
    """Check this installation and machine: one line per finding, with a remedy if something is wrong.

    Engines are tried on tiny models with random weights; nothing is downloaded. Values of access tokens are never printed.
    Exit code 1 if something required is broken.

    \b
    Examples:
      evaluator doctor
      evaluator doctor --quick --need vllm --need gpu
    """
    from evaluator.doctor.examine import examine

    findings = []
    for finding in examine(**arguments):
        findings.append(finding)
        if not as_json:
            click.echo(finding.line())
    states = [finding.state for finding in findings]
    if as_json:
        click.echo(json.dumps([finding.record() for finding in findings], indent=1, ensure_ascii=False))
    else:
        click.echo(", ".join(f"{states.count(state)} {state}" for state in ("ok", "note", "warning", "broken")))
    if "broken" in states:
        raise click.exceptions.Exit(1)
