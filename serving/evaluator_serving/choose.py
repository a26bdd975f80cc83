"""The choice of `--engine auto`."""

from collections.abc import Iterable, Iterator

from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import AUTO, FALLBACK, FOR_SERVED, known_engines


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
    arguments = (source, options or EngineOptions(), frozenset(heads))
    usable = [(name, made) for name, made in _usable() if not ready or made.is_ready(*arguments)]
    fitting = [(name, made) for name, made in usable if arguments[1].dtype in made.dtypes]
    ranked = [(1, FALLBACK), *((made.preference(*arguments), name) for name, made in fitting)]
    return max(ranked, key=lambda one: one[0])[1]  # of equals the first


def why_slower(source: ModelSource, heads: Iterable[str], options: EngineOptions | None = None) -> str | None:
    """Why the fastest engine for this kind of model does not support this model; None if it does."""
    if source.served:
        return None
    arguments = (source, options or EngineOptions(), frozenset(heads))
    return next((reason for _, made in _usable() if (reason := made.misses(*arguments))), None)


def _usable() -> Iterator[tuple[str, type[Engine]]]:
    """Engines that may be faster than FALLBACK and can be used here."""
    for known in known_engines(AUTO):
        if known.engine and not known.problem:
            yield known.name, known.engine
