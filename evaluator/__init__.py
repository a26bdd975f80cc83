"""Measure stereotypes in language models at scale. Importing this package imports neither torch nor ray nor vllm.

    import evaluator
    run = evaluator.run("gest-demo", "HuggingFaceTB/SmolLM2-135M-Instruct")    # or evaluator.open("runs/…")
    run.rates()                                                                # a Polars frame
    evaluator.compare("runs/base", "runs/tuned")

These are imported when they are used; `__init__.pyi` tells type checkers what they are.
"""

from typing import Any

__version__ = "0.2.0"
__all__ = [
    "Results",
    "__version__",
    "archive",
    "cite",
    "compare",
    "export_results",
    "leaderboard",
    "log_to",
    "open",
    "run",
    "verify",
]

_PLACES = {
    "run": "evaluator.scoring.run",
    "Results": "evaluator.reports.results",
    "open": "evaluator.reports.results",
    "compare": "evaluator.comparison.function",
    "export_results": "evaluator.exports.write",
    "cite": "evaluator.exports.citation",
    "archive": "evaluator.exports.archive",
    "verify": "evaluator.exports.archive",
    "leaderboard": "evaluator.ranking.write",
    "log_to": "evaluator.trackers",
}


def __getattr__(name: str) -> Any:
    """The interface for notebooks, imported on its first use."""
    if name in _PLACES:
        from evaluator_serving.plugins import load_object

        return load_object(f"{_PLACES[name]}:{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
