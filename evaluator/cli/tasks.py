"""`evaluator tasks`: what can be asked of a model."""

import click

from evaluator.cli.listing import listed
from evaluator.cli.options import calls
from evaluator.tasks import TaskEntry, known_tasks, refused_plugins
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import as_flag, describe_settings, request_parameters


@calls("evaluator.tasks:known_tasks")
@click.command(name="tasks")
@click.option("--json", "as_json", is_flag=True, help="The same as a JSON list.")
def command(as_json: bool) -> None:
    """List the tasks: the program's own, and those of installed plug-ins.

    A setting is given to a report as `--set NAME=VALUE`. Tasks that cannot be used are listed with the reason.

    \b
    Examples:
      evaluator tasks
      evaluator tasks --json
    """
    listed(known_tasks(), facts, shown, refused_plugins, as_json=as_json)


def facts(known: TaskEntry) -> dict[str, object]:
    """What is known of a task, as JSON values."""
    entry: dict[str, object] = {"name": known.name, "package": known.package, "problem": known.problem}
    if (made := known.made) is None:
        return entry
    return entry | {
        "about": made.about,
        "data": list(made.reads),
        "options": options(made),
        "heads": sorted(made.heads),
        "measures": list(made.measures),
        "settings": dict(describe_settings(type(made.parameters))),
    }


def options(task: Task) -> list[str]:
    """The flags of a task's parameters."""
    return [as_flag(key, field, None) for key, field in request_parameters(type(task.parameters)).items()]


def shown(known: TaskEntry) -> list[str]:
    """Lines on a task."""
    made, origin = known.made, f" [{known.package}]" if known.package else ""
    if made is None:
        return [f"{known.name}{origin}: {known.problem}"]
    properties = [f"data {', '.join(made.reads)}"] if made.reads else []
    if flags := options(made):
        properties.append(f"options {', '.join(flags)}")
    properties.append(f"heads {', '.join(sorted(made.heads))}" if made.heads else "scores no model")
    settings = [f"  --set {key}=…: {text}" for key, text in describe_settings(type(made.parameters))]
    return [f"{known.name}{origin}: {made.about}", f"  {'; '.join(properties)}", *settings]
