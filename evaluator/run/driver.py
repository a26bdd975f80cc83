"""Run a RunSpec in this process, one model after the other."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evaluator.run.askable import name_sample
from evaluator.run.failures import Failures
from evaluator.run.prepare import (
    LoadedTask,
    PreparedModel,
    Renderer,
    check_names,
    load_tasks,
    prepare_model,
    record,
)
from evaluator.run.progress import ProgressView
from evaluator.run.score import requests_of_row, score_chunk, start_record
from evaluator.run.spec import RunSpec
from evaluator.run.work import Work
from evaluator.store.run import Kind, Run
from evaluator_serving.engine import Engine
from evaluator_serving.errors import EngineError, InputError, ModelError, in_words
from evaluator_serving.models.resolving import weights_here
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine
from evaluator_serving.weights.cache import readable
from evaluator_serving.weights.hub import HubModel, missing_bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its folder and, per model that could not be finished, the error."""

    run: Run
    errors: Failures


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is about to be scored: the tasks, the models that can do them, and why the others can't."""

    tasks: tuple[LoadedTask, ...]
    models: tuple[PreparedModel, ...]
    errors: Failures


def prepare(spec: RunSpec) -> Prepared:
    """Validate everything that can be validated before weights are loaded.

    Raises InputError for anything wrong in what is asked. What is wrong with one model alone (see `Failures.of`) leaves the
    others; it is raised where no model is left.
    """
    check_names(spec.models)
    tasks = load_tasks(spec)
    renderer = Renderer(spec.protocol)
    errors = Failures()
    models: list[PreparedModel] = []
    for model in spec.models:
        with errors.of(model.name, refuse=True):
            models.append(prepare_model(model, spec, tasks, renderer))
    if errors and not models:
        raise errors.told()
    return Prepared(tuple(tasks), tuple(models), errors)


def execute(spec: RunSpec) -> Outcome:
    """Validate everything, then score what has no answer yet, model by model.

    Raises InputError before anything is loaded if any part of the request is wrong. A model that fails afterwards is
    recorded and the others go on; with one model its error is raised as it is.
    """
    ready = prepare(spec)
    run = record(spec, ready.tasks, ready.models)
    with run.locked():
        errors = score_models(run, ready, spec)
    return Outcome(run, errors)


def score_models(run: Run, ready: Prepared, spec: RunSpec) -> Failures:
    """Score the models one after the other in this process. Returns the errors of those that could not be finished."""
    errors = Failures(ready.errors)
    record_failures(run, errors)
    with ProgressView(run.path, [m.progress for m in ready.models]) as view:
        for model in ready.models:
            with errors.of(model.name):
                _score_model(run, model, view, spec)
            if model.name not in errors:
                run.clear_model_failure(model.name)
                continue
            view.state(model.name, "failed", in_words(errors[model.name]))
            if len(spec.models) == 1:
                raise errors.told()
            record_failures(run, {model.name: errors[model.name]})
    return errors


def record_failures(run: Run, errors: Mapping[str, Exception]) -> None:
    """Write down which models failed as a whole, and why."""
    for name, error in errors.items():
        kind: Kind = "unaskable" if isinstance(error, ModelError) else "retryable"
        run.add_new_failures([(name, "", in_words(error))], kind)


def failure_kind(error: EngineError) -> Kind:
    """The kind of what befell a request that was tried alone."""
    return "retryable" if error.again else "poisonous"


@contextlib.contextmanager
def opened(engine: Engine) -> Iterator[Engine]:
    """Close the engine in the end; what went wrong before is what is raised."""
    try:
        yield engine
    except BaseException:
        with contextlib.suppress(Exception):
            engine.close()
        raise
    engine.close()


def _score_model(run: Run, model: PreparedModel, view: ProgressView, spec: RunSpec) -> None:
    """Load one model, verify its engine, score and store its pending requests."""
    if not model.encoded:
        view.state(model.name, "done", "all answers are there already")
        return
    with _weights(model, view, verify=spec.verify) as source:
        view.state(model.name, "loading", f"loading into {model.info.engine} ({model.info.dtype})")
        rows, workload = model.engine_rows()
        begun = time.perf_counter()
        with opened(open_engine(model.info.engine, source, model.spec.options, rows, workload)) as engine:
            opened_at = time.perf_counter()
            if spec.verify and model.info.engine != "transformers":
                from evaluator_serving.checks.verify import verify_engine

                result = verify_engine(engine, source, model.spec.options, rows)
                run.update_model(model.name, verified=str(result))
                view.state(model.name, "loading", str(result))
            elif model.info.engine != "transformers":
                run.update_model(model.name, verified=False)
            seconds = {"engine": opened_at - begun, "verify": time.perf_counter() - opened_at}
            run.add_start(model.name, start_record(0, "this process", model.spec.options.sizes(), seconds))
            run.update_model(model.name, engine_details=engine.describe().details)
            view.state(model.name, "running")
            work = Work.of(model.pending_chunks(engine.device_kind))
            _drain(work, engine, run, model, view, skip_rows=spec.skip_rows)
    view.state(model.name, "done")


@contextlib.contextmanager
def _weights(model: PreparedModel, view: ProgressView, *, verify: bool) -> Iterator[ModelSource]:
    """The model's source with its weights on this machine, fetched now where they are missing and read here."""
    from evaluator_serving.checks.verify import needs_weights

    if not needs_weights(model.info.engine, model.source, model.spec.options, verify=verify):
        yield model.source
        return
    origin = model.source.origin
    if isinstance(origin, HubModel) and (missing := missing_bytes(origin)):
        view.state(model.name, "loading", f"fetching {readable(missing)} of weights from the hub")
    with weights_here(model.source) as source:
        yield source


def _drain(work: Work, engine: Engine, run: Run, model: PreparedModel, view: ProgressView, *, skip_rows: bool) -> None:
    """Score and store chunk after chunk. A row that can't be scored ends the model or, with `skip_rows`, is recorded."""
    folder = run.answers_folder(model.name)
    failed = len(model.given_up)
    while chunk := work.take():
        try:
            scored = score_chunk(engine, chunk)
        except EngineError as error:
            if error.row is None:
                raise
            bad = work.failed(chunk, requests_of_row(chunk, error.row))
            failed += len(bad)
            if bad and (not skip_rows or work.hopeless(failed, len(model.encoded))):
                raise InputError(f"{model.name}: {name_sample(model.tables, bad[0])}: {error}") from error
            if bad:
                rows = [(model.name, r, f"{name_sample(model.tables, r)}: {error}") for r in bad]
                run.add_failures(rows, failure_kind(error))
                view.advance(model.name, 0, len(bad))
            continue
        run.add_answers(folder, model.kinds, scored.answers)
        run.add_timing(scored.timing(model.name, "0"))
        view.advance(model.name, len(scored.answers))
