"""Measure stereotypes in language models at scale. Importing this package imports neither torch nor ray nor vllm.

    import evaluator
    run = evaluator.run("gest-demo", "HuggingFaceTB/SmolLM2-135M-Instruct")    # or evaluator.open("runs/…")
    run.rates()                                                                # a Polars frame
    evaluator.compare("runs/base", "runs/tuned")

`Results`, `open`, `run` and `compare` are in `evaluator.api`, which is imported when one of them is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluator.api import Results, compare, open, run

__version__ = "0.1.0"
__all__ = ["Results", "__version__", "compare", "open", "run"]


def __getattr__(name: str) -> Any:
    """The interface for notebooks, imported on its first use."""
    if name == "run":  # also a package of this name: it can be called (see there)
        import importlib

        return importlib.import_module("evaluator.run")
    if name in __all__:
        from evaluator import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
