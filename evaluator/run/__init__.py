"""Running models on tasks in one process. `evaluator.run(…)` is `evaluator.api.run`: this package can be called."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluator.api import Results


class _Package(ModuleType):
    """Once anything has imported the package, `evaluator.run` is the package: the call goes on to the function."""

    def __call__(self, *arguments: Any, **options: Any) -> "Results":
        from evaluator.api import run

        return run(*arguments, **options)


sys.modules[__name__].__class__ = _Package
