"""Names that models of a run may have."""

from collections.abc import Sequence

from evaluator.scoring.spec import NAME_LIMIT, ModelSpec
from evaluator.store.names import folder_name
from evaluator_serving.errors import InputError

REMEDY = "name it (--model NAME=MODEL, in a sweep file name = …)"


def check_names(models: Sequence[ModelSpec]) -> None:
    """Raise InputError for two models with one name, or names that share a folder: their results could not be told apart.

    And for names that tables and reports cannot print, and for `all`, which is what reports call all models together.
    """
    by_folder: dict[str, ModelSpec] = {}
    for model in models:
        if model.name == "all":
            raise InputError(f"the model's name 'all' is reserved for all models together: {REMEDY}")
        if not model.name.isprintable():
            raise InputError(f"the model's name {model.name!r} holds characters that can't be printed: {REMEDY}")
        if len(model.name.encode()) > NAME_LIMIT:
            raise InputError(f"the model's name {model.name!r} is longer than {NAME_LIMIT} bytes: {REMEDY}")
        other = by_folder.setdefault(folder_name(model.name).lower(), model)
        if other is not model:
            same = repr(model.name) if other.name == model.name else f"{other.name!r} and {model.name!r}, one folder"
            raise InputError(f"models {other.spec} and {model.spec} would both be called {same}: {REMEDY}")
