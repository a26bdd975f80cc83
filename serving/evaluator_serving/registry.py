"""The engines by name."""

import importlib
from typing import Any

from evaluator_serving.engine import DeviceKind, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource

ENGINES: dict[str, str] = {
    "transformers": "evaluator_serving.transformers_engine.engine:TransformersEngine",
    "onnx": "evaluator_serving.onnx.engine:OnnxEngine",
    "vllm": "evaluator_serving.vllm_engine.engine:VllmEngine",
    "openai": "evaluator_serving.openai_engine.engine:OpenAIEngine",
}


def engine_class(name: str) -> Any:
    """The class of the engine called `name`, imported only now. Raises InputError for an unknown or uninstalled one.

    Besides the names in ENGINES, an import path `module:Class` names an engine of the user's own.
    """
    if name not in ENGINES and ":" not in name:
        raise InputError(f"unknown engine {name!r}: choose one of {', '.join(ENGINES)}, or module:Class of your own")
    module, attribute = ENGINES.get(name, name).split(":", 1)
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        remedy = f"install stereotype-evaluator[{name}]" if name in ENGINES else "is its folder on PYTHONPATH?"
        raise InputError(f"engine {name!r} can't be used here ({error}): {remedy}") from error
    if not hasattr(found, attribute):
        raise InputError(f"engine {name!r}: {module} has no {attribute}: correct module:Class")
    return getattr(found, attribute)


def check_fit(name: str, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
    """Raise InputError where the engine called `name` can't score these heads of a model, or has no use for an option.

    Asks the class's static method `check(source, options, heads)`, which an engine may have: what it finds is told before
    anything is loaded.
    """
    check = getattr(engine_class(name), "check", None)
    if check is not None:
        check(source, options, heads)


def planned_device(name: str, options: EngineOptions, *, cuda: bool) -> DeviceKind:
    """What the engine called `name` will say its `device_kind` is, where a GPU is at hand (`cuda`) or isn't."""
    fixed: DeviceKind | None = getattr(engine_class(name), "device_kind", None)
    return fixed or ("cuda" if cuda and options.device != "cpu" else "cpu")
