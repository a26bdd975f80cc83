"""Run a RunSpec in this process, one model after the other."""

from dataclasses import dataclass

from evaluator_serving.engine import open_engine
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.rows import chunks, merge

from evaluator.run.prepare import PreparedModel, Renderer, check_names, load_tasks, name_sample, prepare_model, record
from evaluator.run.progress import ModelProgress, ProgressView
from evaluator.run.score import CHUNK_TOKENS, RowError, Scored, score_chunks
from evaluator.run.spec import RunSpec
from evaluator.store.run import Run


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its folder and, per model that could not be finished, the error."""

    run: Run
    errors: dict[str, Exception]


def execute(spec: RunSpec) -> Outcome:
    """Validate everything, then score what has no answer yet, model by model.

    Raises InputError before anything is loaded if any part of the request is wrong. A model that fails afterwards is
    recorded and the others go on; with one model its error is raised as it is.
    """
    check_names(spec.models)
    tasks = load_tasks(spec)
    renderer = Renderer(spec.protocol)
    models = [prepare_model(model, spec, tasks, renderer) for model in spec.models]
    run = record(spec, tasks, models)
    errors: dict[str, Exception] = {}
    view = ProgressView(run.path, [ModelProgress(m.name, m.total, m.done) for m in models])
    with run.locked(), view:
        for model in models:
            try:
                score_model(run, model, view, verify=spec.verify)
            except (InputError, EngineError) as error:
                view.state(model.name, "failed", str(error))
                if len(models) == 1:
                    raise
                run.add_failures([(model.name, "", str(error))])
                errors[model.name] = error
    return Outcome(run, errors)


def score_model(run: Run, model: PreparedModel, view: ProgressView, *, verify: bool) -> None:
    """Load one model, verify its engine, score and store its pending requests."""
    if not model.encoded:
        view.state(model.name, "done", "all answers are there already")
        return
    view.state(model.name, "loading", f"loading into {model.info.engine} ({model.info.dtype})")
    # The engine sees the run's own rows: it sizes its buffers for the longest one.
    rows = merge(model.encoded).rows
    engine = open_engine(model.info.engine, model.source, model.spec.options, rows)
    try:
        if verify and model.info.engine != "transformers":
            from evaluator_serving.verify import verify_engine

            result = verify_engine(engine, model.source, model.spec.options, rows)
            run.update_model(model.name, verified=str(result))
            view.state(model.name, "loading", str(result))
        details = engine.describe().details
        run.update_model(model.name, engine_details=details)
        device = "cuda" if str(details.get("device", "cpu")).startswith("cuda") else "cpu"
        folder = run.answers_folder(model.name)

        def store(scored: Scored) -> None:
            run.add_answers(folder, model.kinds, scored.answers)
            run.add_timing(scored.timing(model.name, "0"))

        view.state(model.name, "running")
        work = chunks(model.encoded, tokens=CHUNK_TOKENS[device], share_prefixes=engine.share_prefixes)
        try:
            for scored in score_chunks(engine, work, store):
                view.advance(model.name, len(scored.answers))
        except RowError as error:
            raise InputError(f"{model.name}: {name_sample(model.tables, error.requests[0])}: {error}") from error
        view.state(model.name, "done")
    finally:
        engine.close()
