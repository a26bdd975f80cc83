"""SWEEP.toml: its keys, checked with file, line and key in every error.

tasks = ["gest"]                   # for every model without its own list
out = "runs/night"                 # or --out
protocol = "default"               # or "published"
data = "DATA"                      # folder of public data sets
limit = 100                        # samples of each task, spread over its groups
systems = ["none", "fair=Treat all people alike."]   # system prompts, as for --system
date = "2026-01-31"                # date in chat templates; default: the day on which the run was created
strict = true                      # refuse samples that a model cannot score, instead of skipping them
weights_cache = "500GB"            # disk space for downloaded weights per machine; or --weights-cache

[task.gest-who]                    # a task's parameters (docs/parameters.md, evaluator tasks)
way = "text"                       # a key at the top of the file applies to every task that has it
orders = 2

[task.gest-mt]                     # scores no model: existing translations are scored into the same run
translations = "translations"

[defaults]                         # for every model; all keys of [[models]] except model, name, revisions, trust_remote_code
dtype = "bfloat16"

[[models]]
model = "EleutherAI/pythia-1b"     # hub id, id@revision, folder or GGUF file; required
revisions = ["step1000", "main"]   # one model per revision, for curves over training checkpoints
name = "pythia"                    # in the results; default: the hub id or the folder's name
tasks = ["gest", "winobias"]       # instead of those above
engine = "vllm"                    # auto, transformers, onnx, vllm, openai, or module:Class
dtype = "bfloat16"
device = "auto"
tensor_parallel = 2
pipeline_parallel = 1
quantization = "fp8"
chat_template = "user"             # default "none", as published
batch_tokens = 8192
thinking = "off"                   # "on", "off" or a level such as "low", for reasoning models
extra = { max_num_seqs = 64 }      # engine-specific; max_cost limits the cost of this entry's answers
allow_pickle = true                # allow pickled weights (.bin), which can execute code
trust_remote_code = true           # run code from its repository
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from evaluator.scoring.model_names import check_names
from evaluator.scoring.spec import ModelSpec, RunSpec, run_spec
from evaluator.store.remote import run_folder
from evaluator.tasks import check_taken, chosen_tasks, known_parameters, task
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import ParameterError, request_parameters, select_parameters
from evaluator.toml_file import Document, KeyPath, MistakesError, Table
from evaluator.vocabulary import Protocol_
from evaluator_serving.engine import BYTES, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.registry import ENGINES
from evaluator_serving.thoughts import CHOICE
from evaluator_serving.weights.cache import parse_size

OPTIONS = frozenset({"dtype", "device", "tensor_parallel", "pipeline_parallel", "quantization", "batch_tokens", "extra"})
"""Keys that are fields of EngineOptions."""


def _engine(name: str) -> str:
    known = ("auto", *ENGINES)
    if name not in known and not re.fullmatch(r"[\w.]+:\w+", name):
        raise ValueError(f"{name!r} is not one of {', '.join(known)}, nor module:Class")
    return name


def _dtype(name: str) -> str:
    if name not in BYTES:
        raise ValueError(f"{name!r} is not one of {', '.join(BYTES)}")
    return name


def _tasks(names: list[str]) -> list[str]:
    """The names, every one known and named once."""
    if not names:
        raise ValueError("the list is empty: name one or more, or remove the key")
    found: list[tuple[KeyPath, str]] = []
    for index, name in enumerate(names):
        try:
            task(name)
        except InputError as error:
            found.append(((index,), str(error)))
        if name in names[:index]:
            found.append(((index,), f"task {name} is given twice: give each task once"))
    if found:
        raise MistakesError(found)
    return names


def _revision(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a word or a number, not {value!r}")
    return str(value)


def _size(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError(f"expected a text such as 500GB, not {value!r}")
    try:
        return parse_size(value)
    except InputError as error:
        raise ValueError(str(error)) from error


Tasks = Annotated[list[str], AfterValidator(_tasks)]
Number = Annotated[int, Field(ge=1)]


class Defaults(Table):
    """Keys that [defaults] and [[models]] may have."""

    tasks: Tasks = Field(default_factory=list)
    engine: Annotated[str, AfterValidator(_engine)] = "auto"
    dtype: Annotated[str, AfterValidator(_dtype)] = "float32"
    device: str = "auto"
    tensor_parallel: Number = 1
    pipeline_parallel: Number = 1
    quantization: str | None = None
    chat_template: Literal["none", "user"] = "none"
    batch_tokens: Number | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    thinking: Annotated[str, Field(pattern=rf"^{CHOICE}$")] | None = None
    allow_pickle: bool = False


class ModelEntry(Defaults):
    """A [[models]] table; it may stand for several revisions."""

    model: Annotated[str, Field(description='a [[models]] entry needs model = "…"')]
    name: str = ""
    revisions: list[Annotated[str, BeforeValidator(_revision)]] = Field(default_factory=list)
    trust_remote_code: bool = False

    @model_validator(mode="after")
    def _once(self) -> Self:
        if self.revisions and "@" in self.model:
            raise MistakesError([(("revisions",), "revisions are given twice: in model and in revisions")])
        return self

    def specs(self) -> list[str]:
        """The model's specs, one a revision."""
        if listed := re.fullmatch(r"(.+)@\[(.+)\]", self.model):
            return [f"{listed[1]}@{revision.strip()}" for revision in listed[2].split(",")]
        return [f"{self.model}@{revision}" for revision in self.revisions] or [self.model]


class Sweep(Table):
    """A whole file, but for the tasks' parameters above all tables, which are for all tasks that take them."""

    tasks: Tasks = Field(default_factory=list)
    out: str | None = None
    protocol: Protocol_ = "default"
    data: str | None = None
    limit: Number | None = None
    strict: bool = False
    weights_cache: Annotated[int, BeforeValidator(_size)] | None = None
    task: dict[str, dict[str, Any]] = Field(default_factory=dict)
    systems: list[str] = Field(default_factory=list)
    date: str | None = None
    defaults: Defaults = Defaults()
    models: Annotated[list[ModelEntry], Field(min_length=1, description="a sweep needs one or more [[models]]")]

    def entry(self, index: int) -> ModelEntry:
        """A model's table, with the defaults for what it doesn't name."""
        own = self.models[index]
        keys = {**_explicit_keys(self.defaults), **_explicit_keys(own)}
        return own.model_copy(update=keys)

    def own_tasks(self) -> list[list[str]]:
        """The tasks of each model: its table's, else those of [defaults], else the file's; empty where nobody names any."""
        return [entry.tasks or self.defaults.tasks or self.tasks for entry in self.models]


def _explicit_keys(table: Table) -> dict[str, Any]:
    """The keys of a table that its file gives, in the order of the class: a set's own order differs from start to start."""
    return {key: getattr(table, key) for key in type(table).model_fields if key in table.model_fields_set}


def _select_tasks(
    document: Document, sweep: Sweep, common: Mapping[str, Any]
) -> tuple[tuple[Task, ...], list[tuple[str, ...]]]:
    """The tasks of the run, and for each model the names of its own where they aren't all that ask models."""
    own = sweep.own_tasks()
    missing = 'tasks is missing: a sweep needs tasks = ["gest", …], for all models or in every [[models]]'
    if without := [(("models", index), missing) for index, names in enumerate(own) if not names]:
        raise document.error(*without)
    silent = {name for name in sweep.tasks if not task(name).heads}
    scoring = {name for names in own for name in names}
    order = dict.fromkeys([*sweep.tasks, *sweep.defaults.tasks, *(name for names in own for name in names)])
    names = tuple(name for name in order if name in scoring | silent)
    if mistakes := [*_silenced(sweep, own), *_misplaced(sweep, common, names)]:
        raise document.error(*mistakes)
    tasks = {name: _with_parameters(document, sweep, common, name) for name in names}
    mine = [[name for name in these if tasks[name].heads] for these in own]
    return tuple(tasks.values()), [
        () if set(these) == scoring - silent else tuple(tasks[n].name for n in these) for these in mine
    ]


def _silenced(sweep: Sweep, own: Sequence[Sequence[str]]) -> Iterator[tuple[KeyPath, str]]:
    """Models that are to be asked tasks which ask none."""
    for index, names in enumerate(own):
        silent = [name for name in names if not task(name).heads]
        if silent and (sweep.models[index].tasks or sweep.defaults.tasks):
            place: KeyPath = ("models", index, "tasks") if sweep.models[index].tasks else ("defaults", "tasks")
            yield place, f"{silent[0]} scores no model: name it in the top-level tasks only"
        elif len(silent) == len(names):
            yield ("models", index), f"{silent[0]} scores no model: name a task that does, or use evaluator run {silent[0]}"


def _misplaced(sweep: Sweep, common: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """Parameters of a task that isn't asked or doesn't have them, and above all tables those that no task of the sweep has."""
    known = {name: task(name) for name in names}
    every = {**common, **{key: value for table in sweep.task.values() for key, value in table.items()}}
    for key in common:
        try:
            # Its companions (an encoding's samples) may stand in a table.
            check_taken(list(known.values()), {key: common[key], **every})
        except ParameterError as error:
            yield from (((key,), what) for about, what in error.about() if about == key)
    for name, given in sweep.task.items():
        if name not in known:
            yield ("task", name), f"the sweep has no task {name}: its tasks are {', '.join(names)}"
            continue
        fields = request_parameters(type(known[name].parameters))
        has = f"it has {', '.join(sorted(fields))}" if fields else "it has none"
        yield from ((("task", name, key), f"{name} has no such parameter: {has}") for key in given if key not in fields)


def _with_parameters(document: Document, sweep: Sweep, common: Mapping[str, Any], name: str) -> Task:
    """The task with its parameters: of its own table, else above all tables."""
    own = sweep.task.get(name, {})
    values = select_parameters(type(task(name).parameters), {**common, **own}) | own
    try:
        (made,) = chosen_tasks((name,), strict=True, **values)
    except ParameterError as error:
        mistakes: list[tuple[KeyPath, str]] = []
        for key, what in error.about():
            known = key if key in values else next(iter(values), None)
            place: KeyPath = ("tasks",) if known is None else ("task", name, known) if known in own else (known,)
            mistakes.append((place, what))
        raise document.error(*mistakes) from error
    return made


def _models(entry: ModelEntry, tasks: Sequence[str]) -> list[ModelSpec]:
    options = EngineOptions(**{key: value for key, value in _explicit_keys(entry).items() if key in OPTIONS})
    made = []
    for spec in entry.specs():
        label = entry.name if not entry.name or spec == entry.model else f"{entry.name}@{spec.rpartition('@')[2]}"
        plain = ModelSpec(spec, entry.engine, entry.chat_template, options, label, tuple(tasks), entry.allow_pickle)
        made.append(replace(plain, trust_remote_code=entry.trust_remote_code, thinking=entry.thinking or ""))
    return made


def read_sweep(path: Path, *, out: Path | None = None) -> RunSpec:
    """Read and validate a sweep file; `out` given on the command line wins over the file's.

    Relative paths of the file (out, data, local models) are relative to the current folder, as on the command line.
    Raises InputError with a line for each mistake: file, line, key.
    """
    document = Document.read(path, "give a SWEEP.toml file")
    content = document.content()
    common = {key: content.pop(key) for key in known_parameters() if key in content}
    sweep = document.checked(Sweep, content)
    tasks, own = _select_tasks(document, sweep, common)
    plain = [made for index, names in enumerate(own) for made in _models(sweep.entry(index), names)]
    where = out or (run_folder(sweep.out) if sweep.out is not None else None)
    if where is None:
        raise InputError(f'{path} names no output: add out = "runs/NAME" or give --out RUN')
    options = {key: getattr(sweep, key) for key in ("protocol", "limit", "strict", "date", "weights_cache")}
    try:
        spec = run_spec(plain, tasks, where, systems=sweep.systems, data=sweep.data, **options)
    except InputError as error:
        raise document.error((("systems",), str(error))) from error
    try:
        check_names(spec.models)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return spec
