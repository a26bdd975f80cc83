"""The driver of a run: prepare (validate everything), load, score chunk by chunk, store.

`evaluator.run(…)` is `evaluator.run.function.run`: this package can be called.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluator.reports.results import Results


class _Package(ModuleType):
    """Once anything has imported the package, `evaluator.run` is the package: the call goes on to the function."""

    def __call__(self, *arguments: Any, **options: Any) -> "Results":
        from evaluator.run.function import run

        return run(*arguments, **options)


sys.modules[__name__].__class__ = _Package
