"""What a run is asked to do, as values."""

import functools
import hashlib
import json
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaluator.tasks.base import Task
from evaluator.text_file import read_text
from evaluator.vocabulary import DataSource, Protocol_
from evaluator_serving.chats import Day
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError

FOLDER_LIMIT = 100
"""Most bytes of a default run folder's name."""
NAME_LIMIT = 200
"""Most bytes of a model's name, which is part of a path."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A system prompt that models are asked under, and what it is called; `system` is None where there is none."""

    name: str
    system: str | None

    @classmethod
    def read(cls, text: str) -> "Condition":
        """From `NAME=TEXT`, `NAME=FILE`, `FILE` (its name is the condition's) or `none`. Raises InputError for others."""
        if text == "none":
            return cls("none", None)
        name, equals, content = text.partition("=")
        if not equals or not re.fullmatch(r"[\w.-]+", name):
            name, content = Path(text).stem, text
            if not _is_file(text):
                raise InputError(
                    f"--system {text!r} is not a file: write NAME=TEXT (for example fair='Treat all people "
                    "alike.'), NAME=FILE, a "
                    "file, or none"
                )
        if _is_file(content):
            content = read_text(Path(content), wanted="--system expects a text file")[0].strip()
        elif re.fullmatch(r"\S*\.(txt|md)|(/[^/\s]+|\.\.?|~)/\S+", content):
            # A mistyped name would be asked as words, and nobody would see it (/no_think is words that some models know).
            raise InputError(f"--system {text!r}: there is no file {content}: correct its name")
        if name == "none":
            raise InputError("--system none=…: `none` means no system prompt: choose another name")
        return cls(name, content)


def _is_file(text: str) -> bool:
    """Whether a text is a file's name; a long one is none, which some systems call an error."""
    try:
        return Path(text).is_file()
    except OSError:
        return False


def under(models: Sequence["ModelSpec"], systems: Sequence[str]) -> tuple["ModelSpec", ...]:
    """Every model under every condition (see `Condition.read`); the models as they are where there is none.

    Whatever isn't a chat is then asked in the chat template, so that conditions differ in the system prompt alone.
    """
    conditions = [Condition.read(text) for text in systems]
    names = [condition.name for condition in conditions]
    if len(set(names)) < len(names):
        raise InputError(f"--system: two conditions are called {max(names, key=names.count)!r}: rename one of them")
    if not conditions:
        return tuple(models)
    if not models:
        raise InputError("--system applies to models and none is given: name one with --model, or remove --system")
    return tuple(replace(model, chat_template="user", condition=each) for model in models for each in conditions)


@dataclass(frozen=True)
class ModelSpec:
    """One model of a run.

    Attributes:
        spec: hub id, hub id with @revision, local folder or GGUF file, or URL#NAME of a model at a server.
        engine: engine name or `auto`.
        chat_template: `none` (as published) or `user` (the prompt becomes the beginning of the assistant's turn).
        options: how the engine runs.
        label: name in every row of the results; made from the spec where it is empty.
        tasks: names of those of the run's tasks that ask it; empty for all.
        allow_pickle: its weights may be pickled files.
        trust_remote_code: programs that its own repository brings may be run for it.
        condition: the system prompt under which it is asked; None: as its chat template, if any, has it.
        thinking: `on`, `off` or a level (`low`): how it is to think before it answers; empty: as it does by itself.
        day: the date that its chat template writes; see `RunSpec.date`.
    """

    spec: str
    engine: str = "auto"
    chat_template: str = "none"
    options: EngineOptions = field(default_factory=EngineOptions)
    label: str = ""
    tasks: tuple[str, ...] = ()
    allow_pickle: bool = False
    condition: Condition | None = None
    trust_remote_code: bool = False
    thinking: str = ""
    day: Day | None = None

    @functools.cached_property
    def name(self) -> str:
        """The model's name in results: the label, else the hub id, the folder's name or the one at its server, with the chat
        template and the choice of thinking, if any; and with the condition. Found once: it depends on the file system."""
        return f"{self._own_name}+{self.condition.name}" if self.condition else self._own_name

    @property
    def _own_name(self) -> str:
        if self.label:
            return self.label
        thinking = f"+thinking-{self.thinking}" if self.thinking else ""
        if "://" in self.spec:
            return (self.spec.partition("#")[2] or self.spec) + thinking
        path = Path(self.spec)
        local = path.exists() or self.spec.startswith((".", "/", "~"))
        name = path.expanduser().resolve().name.removesuffix(".gguf") if local else self.spec
        return (name if self.chat_template == "none" else f"{name}+chat-{self.chat_template}") + thinking


def allowing(models: Sequence[ModelSpec], pickles: Collection[str], code: Collection[str]) -> tuple[ModelSpec, ...]:
    """The models, with what is allowed for those that are named, each by its label or spec.

    Raises InputError for a name that no model has.
    """
    known = {name for model in models for name in (model.label, model.spec)}
    for option, names in (("--allow-pickle", pickles), ("--trust-remote-code", code)):
        if unknown := {*names} - known:
            raise InputError(f"{option} {min(unknown)}: no --model has this name: give it as in --model")
    return tuple(
        replace(model, allow_pickle=not mine.isdisjoint(pickles), trust_remote_code=not mine.isdisjoint(code))
        for model in models
        for mine in ({model.label, model.spec},)
    )


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A whole run: models × tasks under one protocol.

    Attributes:
        models, tasks: what to score; every model is scored on every task, or on those that it names.
        out: the run's folder.
        protocol: `default` or `published` (what is asked of the models).
        data: where the data sets are.
        limit: score only this many samples of every task, spread over its groups (None: all).
        verify: check every engine against the transformers oracle on some of the run's own rows when it is loaded.
        strict: refuse everything where a task or sample can't be asked of a model, instead of leaving it out; end a model of
            which a request can't be scored.
        retry: ask again what was given up (killed its worker or had no finite answer, whenever it was tried).
        metrics: host and port where metrics are served while it runs (None: nowhere, but for Ray's own exporter).
        date: what chat templates write that ask for today's, as YYYY-MM-DD; None for the day on which the run was made.
        weights_cache: bytes that fetched weights may take up on each machine (None: as EVALUATOR_WEIGHTS_CACHE says).
        command: the command line, for the record.
    """

    models: tuple[ModelSpec, ...]
    tasks: tuple[Task, ...]
    out: Path
    protocol: Protocol_ = "default"
    data: DataSource = field(default_factory=DataSource)
    limit: int | None = None
    verify: bool = True
    strict: bool = False
    retry: bool = False
    metrics: tuple[str, int] | None = None
    date: str | None = None
    weights_cache: int | None = None
    command: tuple[str, ...] = ()

    @property
    def asking(self) -> "RunSpec":
        """With the tasks that ask models alone: the others' answers are given."""
        return replace(self, tasks=tuple(task for task in self.tasks if task.heads))


def run_spec(
    models: Sequence[ModelSpec],
    tasks: Sequence[Task],
    out: Path,
    *,
    systems: Sequence[str] = (),
    data: str | Path | None = None,
    **options: Any,
) -> RunSpec:
    """The specification of a run, for every interface.

    Args:
        systems: system prompts; every model is scored under each (see `under`).
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        options: the other fields of RunSpec.
    """
    folder = data or os.environ.get("EVALUATOR_DATA")
    source = DataSource(Path(folder) if folder else None)
    return RunSpec(models=under(models, systems), tasks=tuple(tasks), out=out, data=source, **options)


def named_model(text: str) -> tuple[str, str]:
    """The label (empty if none is given) and the spec of `--model NAME=SPEC` or `--model SPEC`.

    What exists as a path is a spec, whatever it is called, and so is what has a `/`, `@` or `~` in front of its first `=`.
    Raises InputError where a side of the `=` is empty.
    """
    name, equals, spec = text.partition("=")
    if not equals or re.search(r"[/\\@~]", name) or Path(text).exists():
        return "", text
    if not name.strip() or not spec.strip():
        raise InputError(f"--model {text!r} is not NAME=MODEL: write for example --model mine=./checkpoints/final")
    return name.strip(), spec.strip()


def default_folder(tasks: Sequence[str], models: Sequence[str]) -> Path:
    """Where a command's run goes by default: named after all its tasks and models, so that others don't get into it.

    A name that is too long is cut and ends in a digest of the whole.
    """
    safe = [re.sub(r"[^\w.@=+-]+", "--", model) for model in models]
    name = f"{'-'.join(tasks)}-{','.join(safe)}"
    if len(name.encode()) > FOLDER_LIMIT:
        digest = hashlib.blake2b(json.dumps([list(tasks), list(models)]).encode(), digest_size=4).hexdigest()
        name = f"{name.encode()[: FOLDER_LIMIT - 9].decode(errors='ignore')}-{digest}"
    return Path("runs") / name
