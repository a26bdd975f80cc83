"""What must be alike for two models' scores of a task to be compared: facts of their runs' records. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from evaluator.store.record import arithmetic
from evaluator.tasks.stored import same_definition
from evaluator_serving.errors import InputError

Difference = Literal["data", "protocol", "templates", "dtype"]
"""What can differ. All but the data may be allowed to."""

Record = Mapping[str, Any]


def differences(task: str, one: tuple[Record, str], other: tuple[Record, str]) -> Iterator[tuple[Difference, str]]:
    """What differs between two models' scores of a task, each a run's record and the model's name there, and how.

    A fact that a record doesn't have (the dtype of imported scores) is taken for equal.
    """
    (record, name), (second, its_name) = one, other
    data, its_data = record["tasks"][task], second["tasks"][task]
    if data.get("sha256") != its_data.get("sha256"):
        yield "data", f"the files of {task} differ"
    if not same_definition(task, data, its_data):
        yield "data", f"{task} has another definition"
    if record["protocol"] != second["protocol"]:
        yield "protocol", f"protocol {record['protocol']} against {second['protocol']}"
    model, its_model = record["models"][name], second["models"][its_name]
    heads, its_heads = (entry.get("heads_used", {}).get(task) for entry in (model, its_model))
    if heads and its_heads and heads != its_heads:
        yield "templates", f"templates for {'+'.join(heads)} against {'+'.join(its_heads)} models"
    dtype, its_dtype = arithmetic(model), arithmetic(its_model)
    if dtype and its_dtype and dtype != its_dtype:
        yield "dtype", f"dtype {dtype} against {its_dtype}"


def check(
    task: str, one: tuple[Record, str, str], other: tuple[Record, str, str], allow: Collection[str] = ()
) -> tuple[str, ...]:
    """The allowed differences, a sentence each; both sides are a record, the model's name there, and what it is called here.

    Raises InputError naming those that aren't allowed.
    """
    found = list(differences(task, one[:2], other[:2]))
    refused = [(kind, text) for kind, text in found if kind not in allow]
    pair = f"{other[2]} against {one[2]}"
    if refused:
        kinds = dict.fromkeys(kind for kind, _ in refused)
        may = " ".join(f"--allow {kind}" for kind in kinds) if "data" not in kinds else ""
        remedy = f"{may} compares them anyway" if may else "only scores of the same samples can be compared"
        raise InputError(f"{pair} can't be compared on {task}: {'; '.join(text for _, text in refused)}: {remedy}")
    return tuple(f"{pair}: {text} (--allow {kind})." for kind, text in found)
