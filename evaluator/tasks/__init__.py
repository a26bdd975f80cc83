"""Tasks: from a data set's samples to requests, and from a model's answers to scores and measures.

A new task is one module with a class that follows `base.Task` and a line in `TASKS`.
"""

import importlib
from collections.abc import Callable

from evaluator_serving.errors import InputError

from evaluator.tasks.base import Task

TASKS: dict[str, str] = {
    "gest": "evaluator.tasks.gest:gest",
    "gest-1.1": "evaluator.tasks.gest:gest_1_1",
    "gest-demo": "evaluator.tasks.gest:gest_demo",
}
"""Task name to the function that makes it (imported only when asked for)."""


def restore(name: str, definition: str | None) -> Task:
    """The task that a run recorded: by name, or from the definition (TOML text) that the user's own task was made of."""
    if definition is None:
        return task(name)
    from evaluator.tasks.definition import from_text

    return from_text(definition)


def task(name: str) -> Task:
    """The task called `name`. Raises InputError, naming the known ones, for an unknown name."""
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}: choose from {', '.join(TASKS)}")
    module, attribute = TASKS[name].split(":")
    make: Callable[[], Task] = getattr(importlib.import_module(module), attribute)
    return make()
