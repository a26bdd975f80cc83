"""Which engine `--engine auto` means for a model."""

from collections.abc import Iterable

from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import FOR_SERVED, known_engines


def choose_engine(source: ModelSource, heads: Iterable[str], options: EngineOptions | None = None) -> str:
    """The fastest installed engine that can answer all `heads` of this model exactly, with these options.

    Each says itself how well it would do (`Engine.preference`); one that can't be used here isn't asked. For a model that is
    served elsewhere none is: looking for them takes seconds.
    """
    if source.served:
        return FOR_SERVED
    asked = (source, options or EngineOptions(), frozenset(heads))
    ranked = [(known.made.preference(*asked), known.name) for known in known_engines() if known.made and not known.problem]
    return max(ranked, key=lambda one: one[0])[1]  # of equals the first


def why_slower(source: ModelSource, heads: Iterable[str], options: EngineOptions | None = None) -> str | None:
    """Why a faster engine than the chosen one can't take this model, where one takes others of its kind; else None."""
    if source.served:
        return None
    asked = (source, options or EngineOptions(), frozenset(heads))
    usable = [known.made for known in known_engines() if known.made and not known.problem]
    return next((reason for made in usable if (reason := made.misses(*asked))), None)
