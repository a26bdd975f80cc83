"""Tasks of a user's own files, as commands make them."""

from pathlib import Path

from evaluator.tasks import chosen_tasks
from evaluator.tasks.gest import GestTask
from evaluator.tasks.pairs import Pairs


def custom(samples: Path | None = None, templates: Path | None = None, encoding: str | None = None) -> GestTask:
    """A task like GEST."""
    (made,) = chosen_tasks(("gest",), samples=samples, templates=templates, encoding=encoding)
    assert isinstance(made, GestTask)
    return made


def own_pairs(samples: Path | None, templates: Path | None = None) -> Pairs:
    """Pairs of sentences."""
    (made,) = chosen_tasks(("pairs",), samples=samples, templates=templates)
    assert isinstance(made, Pairs)
    return made
