"""What is known of a run's models besides their numbers: from their own configuration, and from a table of the user's.

Nothing is guessed from a model's name. run.json holds what the configuration says (`facts` of a model's entry: parameters,
family) and what an adapter was merged into; the table adds the rest, and wins where both say something.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from evaluator.csv_file import columns_of, read_columns
from evaluator_serving.errors import InputError

NAME = "model"
_TIMES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model's facts; None where nothing says.

    Attributes:
        parameters: numbers in its weights.
        family: models of one architecture or maker, which share a colour.
        tuned: whether it is tuned to follow instructions.
        base: the model that it was tuned from, by its name in the run.
        release: when it came out.
        series: whose checkpoint it is, where several checkpoints of one training are compared.
        step: how far the training was then.
    """

    parameters: float | None = None
    family: str | None = None
    tuned: bool | None = None
    base: str | None = None
    release: str | None = None
    series: str | None = None
    step: float | None = None


COLUMNS = tuple(field.name for field in fields(ModelFacts))


def model_facts(models: Mapping[str, Mapping[str, Any]], table: Path | None = None) -> dict[str, ModelFacts]:
    """Name → facts of a run's models (entries of run.json). Raises InputError for a wrong table."""
    specs = {entry["spec"]: name for name, entry in reversed(list(models.items())) if "spec" in entry}
    made = {}
    for name, entry in models.items():
        known = entry.get("facts", {})
        base = entry.get("adapter", {}).get("base")
        made[name] = ModelFacts(known.get("parameters"), known.get("family"), base=specs.get(base, base))
    for name, row in _read_rows(table, set(models)) if table else ():
        made[name] = replace(made[name], **row)
    return made


def _read_rows(path: Path, models: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, what the table says of it) of the table's models that the run has; empty fields say nothing."""
    header = columns_of(path, WANTED)
    if wrong := [name for name in header if name not in (NAME, *COLUMNS)]:
        raise InputError(f"{path}: unknown column {wrong[0]!r}: {WANTED}")
    seen: set[str] = set()
    for line, (name, *values) in read_columns(path, (NAME, *(each for each in header if each != NAME)), WANTED):
        if name in seen:
            raise InputError(f"{path}, line {line}: model {name!r} appears twice: keep one of the lines")
        seen.add(name)
        facts = {
            column: _READ[column](value.strip(), f"{path}, line {line}, {column}")
            for column, value in zip((each for each in header if each != NAME), values, strict=True)
            if value.strip()
        }
        if name in models:
            yield name, facts
    if not seen & models:
        raise InputError(f"{path}: it has none of the run's models, which are {', '.join(sorted(models)) or 'none'}")


WANTED = f"give a CSV file with a column {NAME} (names as in the run) and some of {', '.join(COLUMNS)}"


def _number(text: str, place: str) -> float:
    digits, times = (text[:-1], _TIMES[text[-1].upper()]) if text[-1].upper() in _TIMES else (text, 1.0)
    try:
        value = float(digits) * times
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{place}: {text!r} isn't a number: write 7000000000, 7e9 or 7B")
    return value


def _yes(text: str, place: str) -> bool:
    if text.lower() not in ("yes", "no", "true", "false"):
        raise InputError(f"{place}: expected yes or no, not {text!r}")
    return text.lower() in ("yes", "true")


def _text(text: str, place: str) -> str:
    return text


_READ: dict[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(COLUMNS, _text),
    "parameters": _number,
    "step": _number,
    "tuned": _yes,
}
