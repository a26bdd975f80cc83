"""Run a RunSpec: prepare, record what is asked, score."""

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from evaluator.scoring.encodings import EncodingProcesses, Encodings, StartEncoders
from evaluator.scoring.failures import Failures, record_failures
from evaluator.scoring.loaded_tasks import LoadedTask, Renderer, load_tasks
from evaluator.scoring.local import ThisProcess
from evaluator.scoring.loop import Loop
from evaluator.scoring.metrics import Exporter, Meter
from evaluator.scoring.model_names import check_names
from evaluator.scoring.model_setup import source_of
from evaluator.scoring.prepare import ask_model, prepare_model
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.progress import ProgressView
from evaluator.scoring.prompt_date import prompt_date
from evaluator.scoring.record import record
from evaluator.scoring.recovery import recover
from evaluator.scoring.replica import ReplicaSource
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.errors import StoreError
from evaluator.store.run import Run
from evaluator_serving.chats import Day
from evaluator_serving.errors import InputError, MachineError, NotNowError, UnreachedHubError, in_words
from evaluator_serving.models.source import ModelSource
from evaluator_serving.plugins import collection_paused
from evaluator_serving.registry import FALLBACK, FOR_SERVED, check_here


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its folder and, per model that could not be finished, the error; and whose answers were `given`."""

    run: Run
    errors: Failures
    given: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is about to be scored: the tasks, the models that can do them, and why the others can't."""

    tasks: tuple[LoadedTask, ...]
    models: tuple[PreparedModel, ...]
    errors: Failures


T = TypeVar("T")
PrepareOne = Callable[[ModelSpec, ModelSource, RunSpec, Sequence[LoadedTask], Renderer], T]
"""Makes of a model what a command needs of it, before weights are loaded."""
Begin = Callable[[Sequence[LoadedTask], Day], None]
"""Takes the tasks that are asked and the date of the run."""


def prepare(spec: RunSpec, begin: Begin | None = None, encoders: StartEncoders = EncodingProcesses.start) -> Prepared:
    """Validate everything that can be validated before weights are loaded.

    `begin` is called with the tasks and the run's date once tasks and models are known to be there, before anything is rendered
    and encoded; `encoders` then encode what is much.

    Raises InputError for anything wrong in what is asked. What is wrong with one model alone (see `Failures.of`) leaves the
    others; it is raised where no model is left.
    """
    if spec.metrics:
        from evaluator.scoring.prometheus import served

        with served(spec.metrics):  # a port that is taken is refused before anything is written
            pass
    with collection_paused():  # a fifth of the time
        tasks, unencoded, errors = for_each_model(spec, source_of, ask_model, begin)
    encodings, models = Encodings(), list[PreparedModel]()
    with encodings.ahead([wanted for model in unencoded for wanted in model.wanted], encoders):
        for model in unencoded:
            with errors.of(model.setup.name, refuse=True):
                models.append(prepare_model(model, spec, tasks, encodings))
    if errors and not models:
        raise errors.combined()
    return Prepared(tuple(tasks), tuple(models), errors)


def for_each_model(
    spec: RunSpec, find_source: Callable[[ModelSpec], ModelSource], prepare_one: PrepareOne[T], begin: Begin | None = None
) -> tuple[list[LoadedTask], list[T], Failures]:
    """Load a run's tasks, find the source of each of its models, and prepare one model after the other.

    Returns the tasks, what `prepare_one` made of the models, and the errors of the models for which that failed. Raises as
    `prepare` does.
    """
    check_names(spec.models)
    day = prompt_date(spec.out, spec.date)
    spec = replace(spec, models=tuple(replace(model, day=day) for model in spec.models))
    tasks = load_tasks(spec)
    renderer = Renderer(tasks, spec.protocol)
    errors = Failures()
    sources = _find_sources(spec.models, find_source, errors)
    if begin:
        begin(tasks, day)
    prepared: list[T] = []
    for model in spec.models:
        if model.name in sources:
            with errors.of(model.name, refuse=True):
                prepared.append(prepare_one(model, sources[model.name], spec, tasks, renderer))
    if errors and not prepared:
        raise errors.combined()
    return tasks, prepared, errors


def _find_sources(
    models: Sequence[ModelSpec], find_source: Callable[[ModelSpec], ModelSource], errors: Failures
) -> dict[str, ModelSource]:
    """Model name → its source. Errors that concern one model alone (see `Failures.of`) go to `errors`.

    Raises InputError with a line for each model that the command is refused for (mistyped, or pickled and not allowed): before
    anything is encoded.
    """
    sources: dict[str, ModelSource] = {}
    refusals: dict[str, None] = {}
    for model in models:
        try:
            with errors.of(model.name, refuse=True):
                sources[model.name] = find_source(model)
        except InputError as error:
            refusals[str(error)] = None
    if refusals:
        raise InputError("\n".join(refusals))
    return sources


def check_engines(models: Sequence[PreparedModel]) -> None:
    """Raise InputError where this process, which is to score these models, can't run the engine of one that has work left.

    Asked before anything of the run is made.
    """
    for model in models:
        if model.encoded:
            try:
                check_here(model.info.engine, model.spec.options, model.all_heads)
            except InputError as error:
                raise InputError(f"{model.name}: {error}") from error


def execute(spec: RunSpec) -> Outcome:
    """Validate everything, then score in this process what has no answer yet, model by model.

    Raises InputError before anything is loaded if any part of the request is wrong. A model that fails afterwards is
    recorded and the others go on; with one model its error is raised as it is.
    """
    return falling_back(spec, _execute)


def falling_back(spec: RunSpec, once: Callable[[RunSpec], Outcome]) -> Outcome:
    """What `once` comes to; models that failed unanswered in the engine that `auto` chose are then scored by FALLBACK."""
    try:
        outcome = once(spec)
    except Exception as error:
        if len(spec.models) != 1 or not (again := _for_fallback(spec, {spec.models[0].name: error})):
            raise
        return once(replace(spec, models=again))
    if not (again := _for_fallback(spec, outcome.errors)):
        return outcome
    second = once(replace(spec, models=again)) if len(again) > 1 else _second(spec, once, again)
    names = {model.name for model in again}
    first = {name: error for name, error in outcome.errors.items() if name not in names}
    return replace(outcome, errors=Failures({**first, **second.errors}))


def _second(spec: RunSpec, once: Callable[[RunSpec], Outcome], again: tuple[ModelSpec, ...]) -> Outcome:
    """Of a single model the error is an outcome too, for there were others."""
    try:
        return once(replace(spec, models=again))
    except Exception as error:
        return Outcome(Run.open(spec.out), Failures({again[0].name: error}))


def _for_fallback(spec: RunSpec, errors: Mapping[str, Exception]) -> tuple[ModelSpec, ...]:
    """The models that another engine than `auto` chose may yet score, with that engine; each is told."""
    if not errors or not (spec.out / "run.json").is_file():
        return ()
    run = Run.open(spec.out)
    found = []
    for model in spec.models:
        error, entry = errors.get(model.name), run.record["models"].get(model.name, {})
        engine = entry.get("engine", FALLBACK)
        hopeless = isinstance(error, NotNowError | MachineError | StoreError | UnreachedHubError | MemoryError)
        if error is None or hopeless or model.engine != "auto" or engine in (FALLBACK, FOR_SERVED) or run.done(model.name):
            continue
        warnings.warn(f"{model.name}: engine {engine} fails ({in_words(error)}), so {FALLBACK} scores it", stacklevel=2)
        found.append(replace(model, engine=FALLBACK))
    return tuple(found)


def _execute(spec: RunSpec) -> Outcome:
    ready = prepare(spec)
    check_engines(ready.models)
    run = record(spec, ready.tasks, ready.models)
    with run.locked():
        errors = score_models(run, ready, spec)
    return Outcome(run, errors)


def score_models(
    run: Run,
    ready: Prepared,
    spec: RunSpec,
    replica_source: Callable[[ProgressView], ReplicaSource] | None = None,
    exporter: Exporter | None = None,
) -> Failures:
    """Score the models with replicas from `replica_source` (None: this process). Returns the errors of unfinished models.

    Metrics go to the exporter, and where `spec` says. With one model its error is raised.
    """
    # Another process may have held the run until now, or been killed. Only what is left to do is looked at again.
    for model in ready.models:
        recover(run, model)
    ready = replace(ready, models=tuple(m.since(run.done(m.name)) if m.encoded else m for m in ready.models))
    errors = Failures(ready.errors)
    record_failures(run, errors)
    exporters = [exporter] if exporter else []
    with contextlib.ExitStack() as while_it_runs:
        if spec.metrics:
            from evaluator.scoring.prometheus import served

            exporters.append(while_it_runs.enter_context(served(spec.metrics)))
        view = while_it_runs.enter_context(ProgressView(run.path, [m.progress for m in ready.models]))
        replicas = replica_source(view) if replica_source else ThisProcess()
        loop = Loop(run, view, replicas, Meter(run.path.name, exporters), verify=spec.verify, strict=spec.strict)
        errors.update(loop.execute(ready.models))
    if errors and len(spec.models) == 1:
        raise errors.combined()
    return errors
