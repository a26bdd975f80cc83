"""The engines by name: the program's own, those of installed plug-ins, and any class by its import path."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.source import ModelSource
from evaluator_serving.plugins import Registry, load_object

ENGINES = Registry(
    {
        "transformers": "evaluator_serving.transformers_engine.engine:TransformersEngine",
        "onnx": "evaluator_serving.onnx.engine:OnnxEngine",
        "vllm": "evaluator_serving.vllm_engine.engine:VllmEngine",
        "openai": "evaluator_serving.openai_engine.engine:OpenAIEngine",
    },
    group="evaluator.engines",
)
"""Every engine that has a name."""

FOR_SERVED = "openai"
"""The one for models that are only reachable by talking to them."""

FALLBACK = "transformers"
"""The engine that `auto` means where no other is better."""

AUTO = ("onnx", "vllm")
"""The program's own engines that `auto` may mean instead."""


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """An engine that is known by name: its class, and what keeps it from being used here.

    Attributes:
        package: the package that it comes from, empty for the program's own.
        engine: None where it cannot be imported.
        problem: empty where it can be used.
    """

    name: str
    package: str
    engine: type[Engine] | None
    problem: str


def engine_class(name: str) -> type[Engine]:
    """The class of the engine called `name`, or at the import path `module:Class`. It is imported only now.

    Raises InputError for an unknown engine and for one that cannot be imported or is no engine.
    """
    if ":" not in name and name not in ENGINES:  # the names of plug-ins are looked up in every package that is installed
        raise InputError(f"unknown engine {name!r}: choose one of {', '.join(ENGINES)}, or module:Class")
    try:
        return _checked(name, load_object(name) if ":" in name else ENGINES[name])
    except InputError:
        raise
    except AttributeError as error:
        raise InputError(f"engine {name!r} can't be used here ({error}): correct module:Class") from error
    except ImportError as error:
        remedy = f"install stereotype-evaluator[{name}]" if name in ENGINES.own else "is its folder on PYTHONPATH?"
        raise InputError(f"engine {name!r} can't be used here ({error}): {remedy}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"engine {name!r} can't be imported ({type(error).__name__}: {first_line(error)})") from error


def known_engines(own: Iterable[str] = tuple(ENGINES.own)) -> Iterator[EngineEntry]:
    """The engines that have a name, usable here or not: those of the program's own that are named, and all plug-ins'."""
    for name in (*own, *ENGINES.plugins):
        package = ENGINES.package_of(name)
        try:
            engine = engine_class(name)
        except InputError as error:
            yield EngineEntry(name, package, None, str(error))
            continue
        yield EngineEntry(name, package, engine, _lacking(name, engine, package))


def missing_module(engine: type[Engine]) -> str | None:
    """The first module that an engine needs and that isn't installed."""
    return next((module for module in engine.requires if find_spec(module) is None), None)


def check_fit(name: str, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
    """Raise InputError where the engine called `name` can't score these heads of a model, or has no use for an option."""
    engine_class(name).check(source, options, heads)


def check_here(name: str, options: EngineOptions, heads: frozenset[str]) -> None:
    """Raise InputError where this process can't run the engine called `name`: a module or a device is missing."""
    engine = engine_class(name)
    if lacking := _lacking(name, engine, "it"):
        raise InputError(f"engine {name!r} can't be used here: {lacking}")
    engine.check_here(options, heads)


def _lacking(name: str, engine: type[Engine], package: str) -> str:
    """What keeps an engine from being used here: a module that is missing, with the remedy; empty where nothing does."""
    missing = missing_module(engine)
    remedy = f"install stereotype-evaluator[{name}]" if name in ENGINES.own else f"{package} needs it"
    return f"no module {missing}: {remedy}" if missing else ""


def _checked(name: str, found: object) -> type[Engine]:
    """What was imported, if it keeps the contract as far as can be seen."""
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise InputError(f"engine {name!r} is not a subclass of evaluator_serving.engine.Engine: see docs/extending.md")
    if hasattr(found, "describe"):
        raise InputError(f"engine {name!r}: its class {found.__name__} has describe(), now details(): see docs/extending.md")
    traits = [trait for trait in ("name", "summary", "heads", "dtypes") if not hasattr(found, trait)]
    left = [*traits, *sorted(getattr(found, "__abstractmethods__", ()))] if inspect.isabstract(found) or traits else []
    if left:
        raise InputError(f"engine {name!r}: its class {found.__name__} has no {', '.join(left)}: see docs/extending.md")
    return found
