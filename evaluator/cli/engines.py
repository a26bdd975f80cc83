"""`evaluator engines`: what can run a model here."""

from collections.abc import Sequence

import click

from evaluator.cli.listing import listed
from evaluator.cli.options import calls
from evaluator_serving.registry import ENGINES, EngineEntry, known_engines


@calls("evaluator_serving.registry:known_engines")
@click.command(name="engines")
@click.option("--json", "as_json", is_flag=True, help="The same as a JSON list.")
def command(as_json: bool) -> None:
    """List the engines: the program's own, and those of installed plug-ins.

    Engines that cannot be used here are listed with the reason. Options are given as `--extra NAME=VALUE`;
    those marked * cannot change a number, all others are part of the answers' fingerprint.

    \b
    Examples:
      evaluator engines
      evaluator engines --json
    """
    listed(known_engines(), facts, shown, lambda: ENGINES.refused, as_json=as_json)


def facts(known: EngineEntry) -> dict[str, object]:
    """What is known of an engine, as JSON values."""
    facts_of_engine: dict[str, object] = {"name": known.name, "package": known.package, "problem": known.problem}
    if (engine := known.engine) is None:
        return facts_of_engine
    return facts_of_engine | {
        "summary": engine.summary,
        "devices": list(engine.devices),
        "heads": sorted(engine.heads),
        "dtypes": list(engine.dtypes),
        "options": {option.name: {"help": option.help, "harmless": option.harmless} for option in engine.extra},
        "passes_on": engine.passes_on,
    }


def shown(known: EngineEntry) -> list[str]:
    """Lines on an engine."""
    engine, origin = known.engine, f" [{known.package}]" if known.package else ""
    if engine is None:
        return [f"{known.name}{origin}: {known.problem}"]
    lines = [f"{known.name}{origin}: {engine.summary}"]
    if known.problem:
        lines.append(f"  not here: {known.problem}")
    lines.append(f"  on {_list(engine.devices)}; heads {_list(sorted(engine.heads))}; dtypes {_list(engine.dtypes)}")
    options = [f"{option.name}{'*' if option.harmless else ''}" for option in engine.extra]
    if engine.passes_on:
        options.append("and all others that its library has")
    if options:
        lines.append(f"  options {_list(options)}")
    return lines


def _list(words: Sequence[str]) -> str:
    return ", ".join(words)
