"""Tasks: from a data set's samples to requests, and from a model's answers to scores and measures.

A new task is one module with a class derived from `base.Task` and a line in `TASKS`, or a package of its own with an entry
point of the group `evaluator.tasks`: the task's name to its class, or to a function that makes one.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from evaluator.tasks.base import Task
from evaluator.tasks.parameters import ParameterError, With, as_flag, is_list, request_parameters, select_parameters, validate
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError, in_words
from evaluator_serving.plugins import Plugin, Registry, load_object

TASKS: dict[str, str] = {
    "gest": "evaluator.tasks.gest:gest",
    "gest-1.1": "evaluator.tasks.gest:gest_1_1",
    "gest-demo": "evaluator.tasks.gest:gest_demo",
    "gest-mt": "evaluator.tasks.gest_mt:GestMtTask",
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
    "winobias": "evaluator.tasks.winobias:WinoBias",
    "eurogest": "evaluator.tasks.eurogest:eurogest",
    "pairs": "evaluator.tasks.pairs:Pairs",
    "gest-who": "evaluator.tasks.gest_who:GestWho",
}
"""Task name to the function that makes it (imported only when asked for)."""

FAMILIES: dict[str, str] = {
    "stereoset": "evaluator.tasks.stereoset:stereoset",
    "eurogest": "evaluator.tasks.eurogest:eurogest_language",
}
"""Tasks called FAMILY-LANGUAGE, to the function that makes one from the language's code (two or three small letters)."""

_REGISTRY = Registry(TASKS, group="evaluator.tasks")

RESERVED = frozenset(
    (
        "allow_pickle",
        "batch_tokens",
        "chat_template",
        "command",
        "data",
        "date",
        "device",
        "dtype",
        "engine",
        "extra",
        "help",
        "limit",
        "log_format",
        "log_to",
        "max_cost",
        "metrics",
        "metrics_port",
        "model",
        "models",
        "no_verify",
        "out",
        "protocol",
        "retry",
        "set",
        "strict",
        "system",
        "systems",
        "tasks",
        "thinking",
        "trust_remote_code",
        "verify",
    )
)
"""Names of `run`'s own options and arguments, which no task's parameter can have."""


def restore(name: str, definition: str | None, made_of: str | None = None) -> Task:
    """The task that a run recorded: by name or, where it has a definition, from that by the task that it was made of.

    Older versions didn't record which that was: their definitions' tables say it.
    """
    if definition is None:
        return task(name)
    return task(made_of or _made_of(definition)).restored(definition)


def _made_of(definition: str) -> str:
    tables = tomllib.loads(definition)
    return next((task for table, task in _TABLES.items() if table in tables), "gest")


_TABLES = {"pairs": "pairs", "eurogest": "eurogest", "who": "gest-who"}


def package_of(name: str) -> str:
    """The package, with its version, that a task comes from; empty for the program's own."""
    return _REGISTRY.package_of(name)


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task that is known by name.

    Attributes:
        package: the package that it comes from, empty for the program's own.
        made: None where it can't be made.
        problem: why not, empty where it can.
    """

    name: str
    package: str
    made: Task | None
    problem: str = ""


def task_names() -> tuple[str, ...]:
    """The program's tasks (but not those of a family) and the installed plug-ins'; nothing is imported."""
    return tuple(_REGISTRY)


def known_tasks() -> Iterator[TaskEntry]:
    """All tasks that have a name, and one of each family, for English."""
    for name in TASKS:
        yield TaskEntry(name, "", task(name))
    for family in FAMILIES:
        yield TaskEntry(f"{family}-LANGUAGE", "", task(f"{family}-en"))
    for name, plugin in _REGISTRY.plugins.items():
        try:
            yield TaskEntry(name, plugin.package, _of_plugin(plugin))
        except InputError as error:
            yield TaskEntry(name, plugin.package, None, str(error))


def usual_task(data: DataSource) -> str:
    """What models are asked where no task is named: GEST where its sentences are, else those that the package ships."""
    from evaluator.datasets.registry import dataset, folder, path_of

    gest, root = dataset("gest"), folder(data)
    return "gest" if all(path_of(gest, file, root).is_file() for file in gest.files) else "gest-demo"


def tasks_that(fits: Callable[[Task], bool]) -> str:
    """Names of the tasks that fit, for people."""
    return ", ".join(known.name for known in known_tasks() if known.made is not None and fits(known.made))


def refused_plugins() -> tuple[str, ...]:
    """A line on each plug-in whose name is taken."""
    return _REGISTRY.refused


def _of_plugin(plugin: Plugin) -> Task:
    """What a plug-in makes. Raises InputError where that isn't a task of its name."""
    try:
        made = plugin.load()()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"plug-in {plugin.name!r} of {plugin.package}: {in_words(error)}: correct that package") from error
    if not isinstance(made, Task):
        raise InputError(
            f"plug-in {plugin.name!r} of {plugin.package} does not return an evaluator.tasks.base.Task: correct that package"
        )
    if made.name != plugin.name:
        raise InputError(
            f"plug-in {plugin.name!r} of {plugin.package} returns a task named {made.name!r}: correct that package"
        )
    for key, field in request_parameters(type(made.parameters)).items():
        flag = as_flag(key, field, None)
        if {key, flag.removeprefix("--").replace("-", "_")} & RESERVED:
            raise InputError(
                f"plug-in {plugin.name!r} of {plugin.package} has a parameter {key!r} ({flag}), which is an option of "
                "`evaluator run`: rename it in that package"
            )
    return made


def task(name: str) -> Task:
    """The task called `name`. Raises InputError, naming the known ones, for an unknown name."""
    if name in TASKS:
        make: Callable[[], Task] = _REGISTRY[name]
        return make()
    family, _, language = name.partition("-")
    if family in FAMILIES and re.fullmatch("[a-z]{2,3}", language):
        make_for: Callable[[str], Task] = load_object(FAMILIES[family])
        return make_for(language)
    if (plugin := _REGISTRY.plugins.get(name)) is not None:
        return _of_plugin(plugin)
    families = [f"{family}-LANGUAGE" for family in FAMILIES]
    raise InputError(f"unknown task {name!r}: choose from {', '.join([*TASKS, *families, *_REGISTRY.plugins])}")


def chosen_tasks(names: Sequence[str], /, *, strict: bool = False, **values: Any) -> tuple[Task, ...]:
    """The tasks of these names, each with those of the parameters' values that it takes.

    An empty list, and None for a parameter that is None by default, are no values.
    `strict`: a number isn't taken from a text. Raises InputError for an unknown task, and ParameterError for a parameter that
    none of the tasks takes, and for a wrong value.
    """
    tasks = tuple(task(name) for name in names)
    values = {key: value for key, value in values.items() if value != () and not (value is None and _is_optional(key))}
    check_taken(tasks, values)
    chosen = tuple(_with_parameters(each, values, strict=strict) for each in tasks)
    for name, own in zip(names, chosen, strict=True):
        if own.definition is not None and own.name in task_names():
            where = values.get("templates", own.made_of)
            raise InputError(f"{where}: name: {own.name!r} is a task of this program: choose another name")
        if package_of(name):
            _check_restorable(own)
    return chosen


def _is_optional(key: str) -> bool:
    """Whether a parameter is None by default."""
    uses = known_parameters().get(key, [])
    return bool(uses) and all(field.default is None for _, field in uses)


def _with_parameters(it: Task, values: Mapping[str, Any], *, strict: bool) -> Task:
    model = type(it.parameters)
    own = select_parameters(model, values)
    if not strict:  # from Python one item may stand for a list of it
        own = {k: (v,) if isinstance(v, str) and is_list(model.model_fields[k]) else v for k, v in own.items()}
    parameters = validate(model, own, it.name, strict=strict)
    try:
        return it.using(parameters)
    except ParameterError:
        raise
    except InputError as error:
        raise ParameterError((str(error),), model.model_fields, it.name) from error


def known_parameters() -> dict[str, list[tuple[str, FieldInfo]]]:
    """Every parameter that is chosen before models are asked, with the tasks that take it."""
    found: dict[str, list[tuple[str, FieldInfo]]] = {}
    for known in known_tasks():
        for key, field in request_parameters(type(known.made.parameters)).items() if known.made else ():
            found.setdefault(key, []).append((known.name, field))
    return found


def check_taken(tasks: Sequence[Task], values: Mapping[str, Any]) -> None:
    """Raise ParameterError, with a message for each, for parameters that none of the tasks takes."""
    for each in tasks:
        values = {key: value for key, value in values.items() if key not in select_parameters(type(each.parameters), values)}
    if not values:
        return
    known = known_parameters()
    messages = []
    for key in values:
        uses = known.get(key, [])
        takers = ", ".join(task for task, _ in uses)
        others = dict.fromkeys(mark.other for _, field in uses for mark in field.metadata if isinstance(mark, With))
        if not takers:
            messages.append(f"no task has a parameter {key!r}: choose from {', '.join(known)}")
        elif any(key in request_parameters(type(each.parameters)) for each in tasks):
            messages.append(f"{{{key}}} requires {' or '.join(f'{{{o}}}' for o in others)}: give one, or remove {{{key}}}")
        else:
            messages.append(f"{{{key}}} is a parameter of {takers}: name one of these tasks, or remove it")
    raise ParameterError(tuple(messages), {key: uses[0][1] for key, uses in known.items()})


def _check_restorable(own: Task) -> None:
    """Raise InputError where a report couldn't make a plug-in's task again from what a run records of it."""
    try:
        again = restore(own.name, own.definition, own.made_of)
        wrong = None if (again.name, again.definition) == (own.name, own.definition) else f"it makes {again.name!r}"
    except Exception as error:
        wrong = in_words(error)
    if wrong:
        raise InputError(
            f"task {own.name}: a run couldn't restore it ({wrong}): its package must correct made_of and restored()"
        )
