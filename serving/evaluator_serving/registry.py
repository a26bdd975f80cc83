"""The engines by name: the program's own, those of installed plug-ins, and any class by its import path."""

import importlib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.plugins import Plugins, plugins

ENGINES: dict[str, str] = {
    "transformers": "evaluator_serving.transformers_engine.engine:TransformersEngine",
    "onnx": "evaluator_serving.onnx.engine:OnnxEngine",
    "vllm": "evaluator_serving.vllm_engine.engine:VllmEngine",
    "openai": "evaluator_serving.openai_engine.engine:OpenAIEngine",
}
"""The program's own: name to `module:Class`, imported when it is asked for."""

FOR_SERVED = "openai"
"""The one for models that are only reachable by talking to them."""

FALLBACK = "transformers"
"""The engine that `auto` means where no other is better."""

AUTO = ("onnx", "vllm")
"""The program's own engines that `auto` may mean instead."""

GROUP = "evaluator.engines"
"""Entry points of other packages: the engine's name to its class."""


_BY_PATH: dict[str, type[Engine]] = {}
"""Classes that were named by their import path, by what they call themselves."""


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """An engine that is known by name: its class, and what keeps it from being used here.

    Attributes:
        package: the package that it comes from, empty for the program's own.
        made: None where it can't be imported.
        problem: empty where it can be used.
    """

    name: str
    package: str
    made: type[Engine] | None
    problem: str


def engine_names() -> tuple[str, ...]:
    """The program's engines and the installed plug-ins'; nothing is imported."""
    return (*ENGINES, *_plugins().found)


def engine_class(name: str) -> type[Engine]:
    """The class of the engine called `name`, imported only now. Raises InputError for an unknown or unusable one.

    Besides the names that are known, an import path `module:Class` names an engine of the user's own. From then on this process
    also knows it by what it calls itself (`Engine.name`).
    """
    if name in ENGINES:
        return _checked(name, _imported(name))
    if ":" in name:
        made = _checked(name, _imported(name))
        _BY_PATH[made.name] = made
        return made
    found = _plugins().found
    if name not in found and name in _BY_PATH:
        return _BY_PATH[name]
    if name not in found:
        choices = ", ".join((*ENGINES, *found))
        raise InputError(f"unknown engine {name!r}: choose one of {choices}, or module:Class of your own")
    return _checked(name, found[name].load())


def known_engines(own: Iterable[str] = tuple(ENGINES)) -> Iterator[EngineEntry]:
    """The engines that have a name, usable here or not: those of the program's own that are named, and all plug-ins'."""
    there = _plugins()
    for name in (*own, *there.found):
        package = there.found[name].package if name in there.found else ""
        try:
            made = engine_class(name)
        except InputError as error:
            yield EngineEntry(name, package, None, str(error))
            continue
        yield EngineEntry(name, package, made, _lacking(name, made, package))


def refused_plugins() -> tuple[str, ...]:
    """A line on each plug-in that has no name of its own."""
    return _plugins().refused


def missing_module(made: type[Engine]) -> str | None:
    """The first module that an engine needs and that isn't installed."""
    return next((module for module in made.requires if find_spec(module) is None), None)


def check_fit(name: str, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
    """Raise InputError where the engine called `name` can't score these heads of a model, or has no use for an option."""
    engine_class(name).check(source, options, heads)


def check_here(name: str, options: EngineOptions, heads: frozenset[str]) -> None:
    """Raise InputError where this process can't run the engine called `name`: a module or a device is missing."""
    made = engine_class(name)
    if lacking := _lacking(name, made, "it"):
        raise InputError(f"engine {name!r} can't be used here: {lacking}")
    made.check_here(options, heads)


def _lacking(name: str, made: type[Engine], package: str) -> str:
    """What keeps an engine from being used here: a module that is missing, with the remedy; empty where nothing does."""
    missing = missing_module(made)
    remedy = f"install stereotype-evaluator[{name}]" if name in ENGINES else f"{package} needs it"
    return f"no module {missing}: {remedy}" if missing else ""


def _plugins() -> Plugins:
    return plugins(GROUP, ENGINES)


def _imported(name: str) -> object:
    module, attribute = ENGINES.get(name, name).split(":", 1)
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        remedy = f"install stereotype-evaluator[{name}]" if name in ENGINES else "is its folder on PYTHONPATH?"
        raise InputError(f"engine {name!r} can't be used here ({error}): {remedy}") from error
    if not hasattr(found, attribute):
        raise InputError(f"engine {name!r}: {module} has no {attribute}: correct module:Class")
    value: object = getattr(found, attribute)
    return value


def _checked(name: str, found: object) -> type[Engine]:
    """What was imported, if it keeps the contract as far as can be seen."""
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise InputError(f"engine {name!r} is no class derived from evaluator_serving.engine.Engine: see docs/extending.md")
    if hasattr(found, "describe"):
        raise InputError(f"engine {name!r}: its class {found.__name__} has describe(), now details(): see docs/extending.md")
    traits = [trait for trait in ("name", "summary", "heads", "dtypes") if not hasattr(found, trait)]
    left = [*traits, *sorted(getattr(found, "__abstractmethods__", ()))] if inspect.isabstract(found) or traits else []
    if left:
        raise InputError(f"engine {name!r}: its class {found.__name__} has no {', '.join(left)}: see docs/extending.md")
    return found
