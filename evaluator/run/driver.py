"""Run a RunSpec in this process, one model after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluator.run.prepare import (
    LoadedTask,
    PreparedModel,
    Renderer,
    check_names,
    load_tasks,
    name_sample,
    prepare_model,
    record,
)
from evaluator.run.progress import ModelProgress, ProgressView
from evaluator.run.score import requests_of_row, score_chunk
from evaluator.run.spec import RunSpec
from evaluator.run.work import Work
from evaluator.store.run import Run
from evaluator_serving.engine import Engine, open_engine
from evaluator_serving.errors import EngineError, InputError


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its folder and, per model that could not be finished, the error."""

    run: Run
    errors: dict[str, Exception]


def prepare(spec: RunSpec) -> tuple[list[LoadedTask], list[PreparedModel]]:
    """Validate everything that can be validated before weights are loaded. Raises InputError."""
    check_names(spec.models)
    tasks = load_tasks(spec)
    renderer = Renderer(spec.protocol)
    return tasks, [prepare_model(model, spec, tasks, renderer) for model in spec.models]


def execute(spec: RunSpec) -> Outcome:
    """Validate everything, then score what has no answer yet, model by model.

    Raises InputError before anything is loaded if any part of the request is wrong. A model that fails afterwards is
    recorded and the others go on; with one model its error is raised as it is.
    """
    tasks, models = prepare(spec)
    run = record(spec, tasks, models)
    with run.locked():
        errors = score_models(run, models, spec)
    return Outcome(run, errors)


def score_models(run: Run, models: Sequence[PreparedModel], spec: RunSpec) -> dict[str, Exception]:
    """Score the models one after the other in this process. Returns the errors of those that could not be finished."""
    errors: dict[str, Exception] = {}
    with ProgressView(run.path, [ModelProgress(m.name, m.total, len(m.answered)) for m in models]) as view:
        for model in models:
            try:
                _score_model(run, model, view, spec)
            except (InputError, EngineError) as error:
                view.state(model.name, "failed", str(error))
                if len(models) == 1:
                    raise
                run.add_failures([(model.name, "", str(error))])
                errors[model.name] = error
            else:
                run.clear_model_failure(model.name)
    return errors


def _score_model(run: Run, model: PreparedModel, view: ProgressView, spec: RunSpec) -> None:
    """Load one model, verify its engine, score and store its pending requests."""
    if not model.encoded:
        view.state(model.name, "done", "all answers are there already")
        return
    view.state(model.name, "loading", f"loading into {model.info.engine} ({model.info.dtype})")
    rows, workload = model.engine_rows()
    engine = open_engine(model.info.engine, model.source, model.spec.options, rows, workload)
    try:
        if spec.verify and model.info.engine != "transformers":
            from evaluator_serving.verify import verify_engine

            result = verify_engine(engine, model.source, model.spec.options, rows)
            run.update_model(model.name, verified=str(result))
            view.state(model.name, "loading", str(result))
        elif model.info.engine != "transformers":
            run.update_model(model.name, verified=False)
        run.update_model(model.name, engine_details=engine.describe().details)
        view.state(model.name, "running")
        share = engine.share_prefixes
        pending = model.pending_chunks(engine.device_kind, share_prefixes=share)
        work = Work.of(pending, share_prefixes=share)
        _drain(work, engine, run, model, view, skip_rows=spec.skip_rows)
        view.state(model.name, "done")
    finally:
        engine.close()


def _drain(work: Work, engine: Engine, run: Run, model: PreparedModel, view: ProgressView, *, skip_rows: bool) -> None:
    """Score and store chunk after chunk. A row that can't be scored ends the model or, with `skip_rows`, is recorded."""
    folder = run.answers_folder(model.name)
    failed = 0
    while chunk := work.take():
        try:
            scored = score_chunk(engine, chunk)
        except EngineError as error:
            if error.row is None:
                raise
            bad = requests_of_row(chunk, error.row)
            where = f"{model.name}: {name_sample(model.tables, bad[0])}: {error}"
            failed += len(bad)
            if not skip_rows or work.hopeless(failed, len(model.encoded)):
                raise InputError(where) from error
            run.add_failures([(model.name, r, f"{name_sample(model.tables, r)}: {error}") for r in bad])
            view.advance(model.name, 0, len(bad))
            work.without(chunk, bad)
            continue
        run.add_answers(folder, model.kinds, scored.answers)
        run.add_timing(scored.timing(model.name, "0"))
        view.advance(model.name, len(scored.answers))
