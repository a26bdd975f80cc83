"""The choice of `--engine auto`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from evaluator_serving.devices import bfloat16_units, has_cuda
from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import AUTO, FALLBACK, FOR_SERVED, engine_class, known_engines


def choose_engine(
    source: ModelSource, heads: Iterable[str], options: EngineOptions | None = None, *, ready: bool = False
) -> str:
    """The fastest installed engine that scores all `heads` of this model exactly with these options.

    Engines rate themselves (`Engine.preference`). FALLBACK always rates 1, so that it need not be imported (which takes
    seconds); a model on a server has its own engine. With `ready`, only engines that can start at once (`Engine.is_ready`) and
    FALLBACK count.
    """
    if source.served:
        return FOR_SERVED
    asked = (source, options or EngineOptions(), frozenset(heads))
    usable = [(name, made) for name, made in _usable() if not ready or made.is_ready(*asked)]
    fitting = [(name, made) for name, made in usable if asked[1].dtype in made.dtypes]
    ranked = [(1, FALLBACK), *((made.preference(*asked), name) for name, made in fitting)]
    return max(ranked, key=lambda one: one[0])[1]  # of equals the first


FASTER = 1.5
"""How many times as fast as float32 bf16x2 must be on this machine for `auto` to take it."""


def choose_dtype(source: ModelSource, heads: Iterable[str], options: EngineOptions) -> str:
    """The dtype in which `auto` computes what is asked for in float32: bf16x2 where that is much faster, else float32 itself.

    That is so on CPUs with matrix units for bfloat16. Whoever takes it compares the numbers with float32's when the model is
    loaded (`checks.verify`), and falls back to float32 where they differ by more than its tolerance.
    """
    if options.dtype != "float32" or options.device not in ("auto", "cpu") or source.served or source.module is not None:
        return options.dtype
    if bfloat16_units() is None or (options.device == "auto" and has_cuda()) or not frozenset(heads) <= {"causal", "masked"}:
        return options.dtype
    from evaluator_serving.transformers_engine.products import gain

    exact = str(getattr(source.config, "dtype", "")).endswith("bfloat16")
    split = replace(options, dtype="bf16x2")
    try:
        engine_class(FALLBACK).check(source, split, frozenset(heads))
    except InputError:  # an option of another engine's
        return options.dtype
    return split.dtype if gain(1 if exact else 2) >= FASTER else options.dtype


def why_slower(source: ModelSource, heads: Iterable[str], options: EngineOptions | None = None) -> str | None:
    """Why the fastest engine for this kind of model does not support this model; None if it does."""
    if source.served:
        return None
    asked = (source, options or EngineOptions(), frozenset(heads))
    return next((reason for _, made in _usable() if (reason := made.misses(*asked))), None)


def _usable() -> Iterator[tuple[str, type[Engine]]]:
    """Engines that may be faster than FALLBACK and can be used here."""
    for known in known_engines(AUTO):
        if known.engine and not known.problem:
            yield known.name, known.engine
