"""Which engine `--engine auto` means for a model."""

from collections.abc import Iterable, Iterator

from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import AUTO, FALLBACK, FOR_SERVED, known_engines


def choose_engine(
    source: ModelSource, heads: Iterable[str], options: EngineOptions | None = None, *, ready: bool = False
) -> str:
    """The fastest installed engine that can answer all `heads` of this model exactly, with these options.

    Each says itself how well it would do (`Engine.preference`); one that can't be used here isn't asked. FALLBACK says 1 of
    every model, so that it isn't imported (for seconds) to be asked; for a model that is served elsewhere none is. With `ready`
    only those count that can start at once (`Engine.is_ready`), and FALLBACK.
    """
    if source.served:
        return FOR_SERVED
    asked = (source, options or EngineOptions(), frozenset(heads))
    usable = [(name, made) for name, made in _usable() if not ready or made.is_ready(*asked)]
    ranked = [(1, FALLBACK), *((made.preference(*asked), name) for name, made in usable)]
    return max(ranked, key=lambda one: one[0])[1]  # of equals the first


def why_slower(source: ModelSource, heads: Iterable[str], options: EngineOptions | None = None) -> str | None:
    """Why a faster engine than the chosen one can't take this model, where one takes others of its kind; else None."""
    if source.served:
        return None
    asked = (source, options or EngineOptions(), frozenset(heads))
    return next((reason for _, made in _usable() if (reason := made.misses(*asked))), None)


def _usable() -> Iterator[tuple[str, type[Engine]]]:
    """The engines that may be faster than FALLBACK and can be used here."""
    for known in known_engines(AUTO):
        if known.engine and not known.problem:
            yield known.name, known.engine
