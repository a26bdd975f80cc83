"""What is decided for a model before anything is encoded: its tasks, the heads that they use, its engine, its identity."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluator.scoring.loaded_tasks import LoadedTask, Renderer
from evaluator.scoring.skip_rules import abilities, missing_head, useless
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator_serving.chats import Chat
from evaluator_serving.engine import EngineInfo
from evaluator_serving.errors import InputError
from evaluator_serving.identity import identity
from evaluator_serving.models.source import FileTokens, ModelSource
from evaluator_serving.registry import check_fit, engine_class
from evaluator_serving.requests import Choice, Request


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """A model of a run with the tasks that can use it and the engine that scores it.

    Attributes:
        spec: the model as the user named it, with the dtype that `auto` chose.
        source: where it is.
        info: what its numbers depend on, the engine included.
        heads: task name → heads used for it.
        skipped_tasks: task name → why this model cannot be scored on it; the task is not in `heads` then.
    """

    spec: ModelSpec
    source: ModelSource
    info: EngineInfo
    heads: Mapping[str, frozenset[str]]
    skipped_tasks: Mapping[str, str]

    @property
    def name(self) -> str:
        """The model's name in the results."""
        return self.spec.name

    @property
    def all_heads(self) -> frozenset[str]:
        """The heads that any task uses."""
        return frozenset().union(*self.heads.values())

    @property
    def load_key(self) -> tuple[Any, ...]:
        """What is loaded for it: models with equal keys (a model under several system prompts) share a loaded engine."""
        source = self.source
        loaded = (source.spec, source.revision, source.pickled, source.code, source.thinking)
        return self.info.engine, *loaded, self.spec.options, self.all_heads


def source_of(spec: ModelSpec) -> ModelSource:
    """What a model is, and can answer, under its condition. Raises InputError as `resolve` does."""
    from evaluator_serving.models.resolving import resolve

    allowed = {"allow_pickle": spec.allow_pickle, "trust_remote_code": spec.trust_remote_code}
    return with_condition(resolve(spec.spec, chat_template=spec.chat_template, **allowed), spec)


def with_condition(source: ModelSource, spec: ModelSpec) -> ModelSource:
    """The source with the system prompt, the thinking level and the date that `spec` asks for."""
    return replace(source, system=spec.condition.system if spec.condition else None, thinking=spec.thinking, day=spec.day)


def set_up_model(
    spec: ModelSpec, source: ModelSource, run: RunSpec, tasks: Sequence[LoadedTask], renderer: Renderer
) -> ModelSetup:
    """Choose heads and engine for a model of a run, and check that they fit together.

    Tasks that need a head that the model lacks are skipped. Raises InputError for them with `run.strict`, and for engines and
    options that do not fit; ModelError where no task is left.
    """
    heads, skipped = _usable_heads(tasks, source, spec, strict=run.strict)
    requests = renderer.requests(heads)
    source = _with_file_tokens(spec, source, run.out, list(requests.values()))
    engine = _choose_engine(spec, run, source, frozenset().union(*heads.values()))
    _check_temperature(spec, engine, requests)
    if spec.thinking and not is_templated(source, requests):
        raise InputError(
            f"{spec.name}: --thinking requires a task that uses the chat template: remove it, or add --chat-template user"
        )
    return ModelSetup(spec, source, identity(engine, source, spec.options), heads, skipped)


def is_templated(source: ModelSource, requests: Mapping[str, Request]) -> bool:
    """Whether any request is written in the model's chat template."""
    return source.chat_template == "user" or not {Chat, Choice}.isdisjoint(map(type, requests.values()))


def _usable_heads(
    tasks: Sequence[LoadedTask], source: ModelSource, spec: ModelSpec, *, strict: bool
) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
    """The model's tasks → the heads that each uses; and those that it lacks the heads for → why."""
    heads: dict[str, frozenset[str]] = {}
    skipped: dict[str, str] = {}
    available = abilities(source.heads)
    for task in (loaded.task for loaded in tasks if not spec.tasks or loaded.task.name in spec.tasks):
        if not task.heads:
            raise InputError(f"task {task.name} scores no model: see evaluator run {task.name} --help")
        if reason := missing_head(task, available, spec.spec):
            if strict:
                raise InputError(f"{reason}: choose another model or task, or remove --strict")
            skipped[task.name] = reason
        else:
            heads[task.name] = task.uses(available)
    if not heads:
        raise useless(spec.name, skipped.values())
    return heads, skipped


def _with_file_tokens(spec: ModelSpec, source: ModelSource, out: Path, requests: Sequence[Request]) -> ModelSource:
    """The source with what is known of its tokenizer.json; a run that has recorded it keeps it, as it keeps the answers."""
    from evaluator_serving.models.file_tokens import with_file_tokens

    entry = Run.open(out).record["models"].get(spec.name, {}) if (out / "run.json").is_file() else {}
    if "tokenizer" in entry and entry["revision"] == source.revision:
        return replace(source, tokenizer=FileTokens(**entry["tokenizer"]))
    return with_file_tokens(source, requests)


def _choose_engine(spec: ModelSpec, run: RunSpec, source: ModelSource, heads: frozenset[str]) -> str:
    """The engine that the user named. `auto` keeps the engine that the run has answers of where it fits these heads too.

    Raises InputError where the engine cannot score these heads, or does not know an option: before anything is encoded.
    """
    if spec.engine != "auto":
        check_fit(spec.engine, source, spec.options, heads)
        return spec.engine
    from evaluator_serving.choose import choose_engine, why_slower

    if (run.out / "run.json").is_file():
        before = Run.open(run.out)
        entry = before.record["models"].get(spec.name, {})
        if "fingerprint" in entry and before.done(spec.name):
            with contextlib.suppress(InputError):
                check_fit(entry["engine"], source, spec.options, heads)
                return str(entry["engine"])
    engine = choose_engine(source, heads, spec.options)
    if reason := why_slower(source, heads, spec.options):
        warnings.warn(f"{spec.name}: {reason}, so the slower {engine} engine scores it", stacklevel=2)
    check_fit(engine, source, spec.options, heads)
    return engine


def _check_temperature(spec: ModelSpec, engine: str, requests: Mapping[str, Request]) -> None:
    """Raise InputError where answers would be recorded as sampled at a temperature that is not sent to the model."""
    sampled = {request.temperature for request in requests.values() if isinstance(request, Chat)} - {0}
    if sampled and "temperature" in engine_class(engine).unsent(spec.options):
        raise InputError(
            f"{spec.name}: --temperature {max(sampled):g} is not sent to the model because of omit=temperature: "
            "remove --temperature (and --answers), or remove temperature from omit"
        )
