"""SWEEP.toml: what it may say, with the line named where it says something wrong.

tasks = ["gest"]                   # of every model that names none itself
out = "runs/night"                 # may also be given as --out
protocol = "default"               # or "published"
data = "DATA"                      # folder of public data sets
limit = 100                        # samples of each task, spread over its groups
strict = true                      # refuse what can't be asked of a model instead of leaving it out
weights_cache = "500GB"            # for fetched weights on each machine; may also be given as --weights-cache

[defaults]                         # for every model; any key of [[models]] but model, name, revisions
dtype = "bfloat16"

[[models]]
model = "EleutherAI/pythia-1b"     # hub id, id@revision, folder or GGUF file; required
revisions = ["step1000", "main"]   # one entry each, for curves over training checkpoints
name = "pythia"                    # in the results; default: the hub id or the folder's name
tasks = ["gest", "winobias"]       # instead of those above
engine = "vllm"                    # auto, transformers, onnx, vllm, openai, or module:Class of your own
dtype = "bfloat16"
device = "auto"
tensor_parallel = 2
pipeline_parallel = 1
quantization = "fp8"
chat_template = "user"             # default "none", as published
batch_tokens = 8192
extra = { max_num_seqs = 64 }      # engine-specific
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from evaluator.run.prepare import check_names
from evaluator.run.spec import ModelSpec, RunSpec
from evaluator.tasks import chosen_tasks, task
from evaluator.tasks.base import Task
from evaluator.vocabulary import DataSource, Protocol_
from evaluator_serving.engine import BYTES, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.registry import engine_names
from evaluator_serving.weights.cache import parse_size

CHOICES: dict[str, tuple[str, ...]] = {
    "protocol": get_args(Protocol_),
    "dtype": tuple(BYTES),
    "chat_template": ("none", "user"),
}
TOP: dict[str, type] = {
    "tasks": list,
    "out": str,
    "protocol": str,
    "data": str,
    "limit": int,
    "strict": bool,
    "weights_cache": str,
    "samples": str,
    "templates": str,
    "defaults": dict,
    "models": list,
}
MODEL: dict[str, type] = {
    "model": str,
    "name": str,
    "revisions": list,
    "tasks": list,
    "engine": str,
    "dtype": str,
    "device": str,
    "tensor_parallel": int,
    "pipeline_parallel": int,
    "quantization": str,
    "chat_template": str,
    "batch_tokens": int,
    "extra": dict,
}
LISTS: dict[str, Any] = {"tasks": str, "revisions": str | int | float}
DEFAULTS = {key: kind for key, kind in MODEL.items() if key not in ("model", "name", "revisions")}
OPTIONS = ("dtype", "device", "tensor_parallel", "pipeline_parallel", "quantization", "batch_tokens", "extra")


@dataclass(frozen=True, slots=True)
class Document:
    """The file's text, to find a line number for a message."""

    path: Path
    lines: tuple[str, ...]

    def line(self, section: str, index: int, key: str) -> int:
        """Line (from 1) of `key` in the `index`-th `section` (`''`: top level); the section's own line if it isn't found."""
        begin, seen = 0, -1
        if section:
            for number, text in enumerate(self.lines):
                if re.match(rf"\s*\[{{1,2}}\s*{re.escape(section)}\s*\]{{1,2}}", text):
                    seen += 1
                    if seen == index:
                        begin = number
                        break
        for number in range(begin + bool(section), len(self.lines)):
            if re.match(r"\s*\[", self.lines[number]):
                break
            if re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", self.lines[number]):
                return number + 1
        return begin + 1

    def error(self, message: str, section: str = "", index: int = 0, key: str = "") -> InputError:
        """The InputError for a wrong value, with file and line."""
        return InputError(f"{self.path}, line {self.line(section, index, key)}: {message}")


def _check(document: Document, table: Mapping[str, Any], allowed: Mapping[str, type], section: str, index: int) -> None:
    for key, value in table.items():
        if key not in allowed:
            raise document.error(f"unknown key {key!r}: known ones are {', '.join(allowed)}", section, index, key)
        kind = allowed[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise document.error(f"{key} must be a {kind.__name__}, not {value!r}", section, index, key)
        if isinstance(value, int) and kind is int and value < 1:
            raise document.error(f"{key} must be at least 1, not {value}", section, index, key)
        if isinstance(value, list) and key in LISTS and not all(isinstance(item, LISTS[key]) for item in value):
            raise document.error(f"{key} must be a list of words, not {value!r}", section, index, key)
        choices = CHOICES.get(key) or (("auto", *engine_names()) if key == "engine" else ())
        own_engine = key == "engine" and re.fullmatch(r"[\w.]+:\w+", str(value))
        if choices and value not in choices and not own_engine:
            raise document.error(f"{key} {value!r}: choose one of {', '.join(choices)}", section, index, key)


def _checked_tasks(document: Document, table: Mapping[str, Any], section: str, index: int) -> tuple[str, ...]:
    """The tasks that a table names, every one known and named once; none if it has no such key."""
    names: list[str] = table.get("tasks", [])
    if "tasks" in table and not names:
        raise document.error("tasks is empty: name one or more, or leave it out", section, index, "tasks")
    for name in names:
        if names.count(name) > 1:
            raise document.error(f"task {name} is given twice: give each task once", section, index, "tasks")
        try:
            task(name)
        except InputError as error:
            raise document.error(str(error), section, index, "tasks") from error
    return tuple(names)


def _asked(document: Document, content: Mapping[str, Any]) -> tuple[tuple[Task, ...], list[tuple[str, ...]]]:
    """The tasks that any model is asked, and for each [[models]] table the names of its own where they aren't all of them.

    A model's tasks are its table's, else those of [defaults], else the file's.
    """
    whole = _checked_tasks(document, content, "", 0)
    common = _checked_tasks(document, content.get("defaults", {}), "defaults", 0) or whole
    own = [_checked_tasks(document, table, "models", i) or common for i, table in enumerate(content["models"])]
    if () in own:
        missing = 'tasks is missing: a sweep needs tasks = ["gest", …], for all models or in every [[models]]'
        raise document.error(missing, "models", own.index(()))
    asked = {name for names in own for name in names}
    names = tuple(name for name in dict.fromkeys([*whole, *common, *(n for o in own for n in o)]) if name in asked)
    files = {key: Path(content[key]) if key in content else None for key in ("samples", "templates")}
    try:
        tasks = chosen_tasks(names, files["samples"], files["templates"])
    except InputError as error:
        raise document.error(str(error), key="samples" if "samples" in content else "tasks") from error
    called = dict(zip(names, (made.name for made in tasks), strict=True))
    return tasks, [() if set(names) == asked else tuple(called[name] for name in names) for names in own]


def _models(document: Document, table: Mapping[str, Any], index: int, tasks: tuple[str, ...]) -> list[ModelSpec]:
    if "model" not in table:
        raise document.error('a [[models]] entry needs model = "…"', "models", index)
    spec: str = table["model"]
    revisions = [str(r) for r in table.get("revisions", [])]
    if listed := re.fullmatch(r"(.+)@\[(.+)\]", spec):
        spec, revisions = listed[1], revisions + [r.strip() for r in listed[2].split(",")]
    if revisions and "@" in spec:
        raise document.error("revisions are given twice: in model and in revisions", "models", index, "revisions")
    options = EngineOptions(**{key: table[key] for key in OPTIONS if key in table})
    made = []
    for revision in revisions or [""]:
        full = f"{spec}@{revision}" if revision else spec
        label = table.get("name", "")
        if label and revision:
            label = f"{label}@{revision}"
        made.append(ModelSpec(full, table.get("engine", "auto"), table.get("chat_template", "none"), options, label, tasks))
    return made


def read_sweep(path: Path, *, out: Path | None = None) -> RunSpec:
    """Read and validate a sweep file; `out` given on the command line wins over the file's.

    Relative paths of the file (out, data, local models) are relative to the current folder, as on the command line.
    Raises InputError with file and line.
    """
    try:
        text = path.read_text(encoding="utf8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read ({error}): give a SWEEP.toml file") from error
    document = Document(path, tuple(text.splitlines()))
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from error
    _check(document, content, TOP, "", 0)
    if not content.get("models"):
        raise document.error('models is missing: a sweep needs tasks = ["gest", …] and one or more [[models]]')
    defaults = content.get("defaults", {})
    _check(document, defaults, DEFAULTS, "defaults", 0)
    for index, table in enumerate(content["models"]):
        if not isinstance(table, dict):
            raise document.error("models must be written as [[models]] tables", key="models")
        _check(document, table, MODEL, "models", index)
    tasks, own = _asked(document, content)
    models: list[ModelSpec] = []
    for index, table in enumerate(content["models"]):
        models += _models(document, {**defaults, **table}, index, own[index])
    try:
        check_names(models)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    try:
        budget = parse_size(content["weights_cache"]) if "weights_cache" in content else None
    except InputError as error:
        raise document.error(f"weights_cache: {error}", key="weights_cache") from error
    where = out or (Path(content["out"]) if "out" in content else None)
    if where is None:
        raise InputError(f'{path} names no output: add out = "runs/NAME" or give --out RUN')
    folder = Path(content["data"]) if "data" in content else None
    return RunSpec(
        models=tuple(models),
        tasks=tasks,
        out=where,
        protocol=content.get("protocol", "default"),
        data=DataSource(folder),
        limit=content.get("limit"),
        strict=content.get("strict", False),
        weights_cache=budget,
    )
