"""Print the page of all tasks' parameters, from their own models: `make docs` writes it to docs/parameters.md."""

from collections.abc import Iterator

import click
from pydantic.fields import FieldInfo

from evaluator.tasks import known_tasks
from evaluator.tasks.parameters import REPORT, Parameters, as_flag, default_of, kind_of, limits

HEAD = """# Parameters of tasks

Made from the tasks' own models. A parameter is a flag of `evaluator run`, a key of SWEEP.toml (above all tables for every
task that has it, or in `[task.NAME]`), an argument of `evaluator.run` and a part of the definition that run.json keeps. One of
a report is chosen when a report is written: `evaluator report RUN --set KEY=VALUE`, `Results.rates(settings={"KEY": "VALUE"})`.
"""


def row(key: str, field: FieldInfo) -> str:
    """A parameter as a row of a table."""
    flag = f"`--set {key}=…`" if REPORT in field.metadata else f"`{as_flag(key, field, None)}`"
    values = ", ".join(part for part in (kind_of(field).replace("|", " or "), limits(field)) if part)
    return f"| {flag} | `{key}` | {values} | {default_of(field)} | {field.description} |"


def sections() -> Iterator[str]:
    """A heading and a table for all tasks that share a model."""
    models: dict[type[Parameters], list[str]] = {}
    for known in known_tasks():
        if known.made and type(known.made.parameters).model_fields:
            models.setdefault(type(known.made.parameters), []).append(known.name)
    for model, names in models.items():
        rows = [row(key, field) for key, field in model.model_fields.items()]
        table = "\n".join(["| flag | key, argument | values | default | |", "|---|---|---|---|---|", *rows])
        yield f"## {', '.join(names)}\n\n{table}\n"


if __name__ == "__main__":
    click.echo("\n".join([HEAD, *sections()]), nl=False)
