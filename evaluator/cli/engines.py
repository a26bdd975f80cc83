"""`evaluator engines`: what can run a model here."""

from collections.abc import Sequence

import click

from evaluator.cli.listing import listed
from evaluator_serving.registry import EngineEntry, known_engines, refused_plugins


@click.command(name="engines")
@click.option("--json", "as_json", is_flag=True, help="The same as a JSON list.")
def command(as_json: bool) -> None:
    """List the engines: the program's own, and those of installed plug-ins.

    What can't be used here is listed with the reason. An option is given as `--extra NAME=VALUE`; those marked * can't change
    a number, all others are part of what answers are known by.

    \b
    Examples:
      evaluator engines
      evaluator engines --json
    """
    listed(known_engines(), facts, shown, refused_plugins, as_json=as_json)


def facts(known: EngineEntry) -> dict[str, object]:
    """What is known of an engine, as JSON values."""
    told: dict[str, object] = {"name": known.name, "package": known.package, "problem": known.problem}
    if (made := known.made) is None:
        return told
    return told | {
        "summary": made.summary,
        "devices": list(made.devices),
        "heads": sorted(made.heads),
        "dtypes": list(made.dtypes),
        "options": {option.name: {"help": option.help, "harmless": option.harmless} for option in made.extra},
        "passes_on": made.passes_on,
    }


def shown(known: EngineEntry) -> list[str]:
    """Lines on an engine."""
    made, origin = known.made, f" [{known.package}]" if known.package else ""
    if made is None:
        return [f"{known.name}{origin}: {known.problem}"]
    lines = [f"{known.name}{origin}: {made.summary}"]
    if known.problem:
        lines.append(f"  not here: {known.problem}")
    lines.append(f"  on {_list(made.devices)}; heads {_list(sorted(made.heads))}; dtypes {_list(made.dtypes)}")
    options = [f"{option.name}{'*' if option.harmless else ''}" for option in made.extra]
    if made.passes_on:
        options.append("and all others that its library has")
    if options:
        lines.append(f"  options {_list(options)}")
    return lines


def _list(words: Sequence[str]) -> str:
    return ", ".join(words)
