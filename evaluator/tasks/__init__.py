"""Tasks: from a data set's samples to requests, and from a model's answers to scores and measures.

A new task is one module with a class that follows `base.Task` and a line in `TASKS`.
"""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from evaluator.tasks.base import Task
from evaluator.vocabulary import Inputs
from evaluator_serving.errors import InputError

TASKS: dict[str, str] = {
    "gest": "evaluator.tasks.gest:gest",
    "gest-1.1": "evaluator.tasks.gest:gest_1_1",
    "gest-demo": "evaluator.tasks.gest:gest_demo",
    "gest-mt": "evaluator.tasks.gest_mt:gest_mt",
    "gest-slavic": "evaluator.tasks.gest_slavic:gest_slavic",
    "stereoset-genderswap": "evaluator.tasks.word_filling:stereoset_genderswap",
    "stereoset-genderswap-filtered": "evaluator.tasks.word_filling:stereoset_genderswap_filtered",
    "stereoset-race-control": "evaluator.tasks.word_filling:stereoset_race_control",
    "stereoset-profession-control": "evaluator.tasks.word_filling:stereoset_profession_control",
    "slovak-gender": "evaluator.tasks.word_filling:slovak_gender",
    "crows-negation": "evaluator.tasks.word_filling:crows_negation",
    "crows-antistereotype": "evaluator.tasks.word_filling:crows_antistereotype",
    "crows-pairs": "evaluator.tasks.word_filling:crows_pairs",
    "crows-revised": "evaluator.tasks.word_filling:crows_revised",
    "winobias": "evaluator.tasks.winobias:winobias",
    "eurogest": "evaluator.tasks.eurogest:eurogest",
    "pairs": "evaluator.tasks.pairs:crows",
}
"""Task name to the function that makes it (imported only when asked for)."""

FAMILIES: dict[str, str] = {
    "stereoset": "evaluator.tasks.stereoset:stereoset",
    "eurogest": "evaluator.tasks.eurogest:eurogest_language",
}
"""Tasks called FAMILY-LANGUAGE, to the function that makes one from the language's code (two or three small letters)."""


OPTIONS = {
    "samples": "--samples",
    "templates": "--templates",
    "translations": "--translations",
    "languages": "--language",
    "template": "--template",
}
"""Fields of `Inputs` → the command line's options."""


def restore(name: str, definition: str | None) -> Task:
    """The task that a run recorded: by name, or from the definition (TOML text) that the user's own task was made of."""
    if definition is None:
        return task(name)
    kind = next((kind for kind in ("pairs", "eurogest") if f"[{kind}]" in definition), "gest")
    make: Callable[[str], Task] = _attribute(f"evaluator.tasks.{kind}:restored")
    return make(definition)


def task(name: str) -> Task:
    """The task called `name`. Raises InputError, naming the known ones, for an unknown name."""
    if name in TASKS:
        make: Callable[[], Task] = _attribute(TASKS[name])
        return make()
    family, _, language = name.partition("-")
    if family in FAMILIES and re.fullmatch("[a-z]{2,3}", language):
        make_for: Callable[[str], Task] = _attribute(FAMILIES[family])
        return make_for(language)
    families = [f"{family}-LANGUAGE" for family in FAMILIES]
    raise InputError(f"unknown task {name!r}: choose from {', '.join([*TASKS, *families])}")


def _attribute(place: str) -> Any:
    module, attribute = place.split(":")
    return getattr(importlib.import_module(module), attribute)


def chosen_tasks(names: Sequence[str], inputs: Inputs) -> tuple[Task, ...]:
    """The tasks named on the command line, with what the user gives them.

    Raises InputError for an unknown task, and for inputs that it doesn't take or that more than one task is given.
    """
    tasks = tuple(task(name) for name in names)
    for given in inputs.named:
        if len(tasks) != 1 or given not in tasks[0].takes:
            takers = [name for name in TASKS if given in task(name).takes]
            raise InputError(
                f"{OPTIONS[given]} goes with one of the tasks {', '.join(takers)} alone: leave it out, or the others"
            )
    chosen = tuple(each.using(inputs) for each in tasks)
    for own in chosen:
        if own.definition is not None and own.name in TASKS:
            raise InputError(f"{inputs.templates}: name: {own.name!r} is a task of this program: choose another name")
    return chosen
