"""Tasks that ask no model: answers that exist already (a system's translations) are read and scored into a run."""

from collections.abc import Callable
from dataclasses import replace

from evaluator.scoring.driver import Outcome, execute
from evaluator.scoring.failures import Failures
from evaluator.scoring.record import provenance
from evaluator.scoring.spec import RunSpec
from evaluator.store.run import Run
from evaluator.tasks.stored import task_entry, validate_scores
from evaluator_serving.errors import InputError


def perform(spec: RunSpec, score: Callable[[RunSpec], Outcome] = execute) -> Outcome:
    """Score the models on the tasks that ask models, and the existing answers on the other tasks.

    Raises InputError where models are missing, or given to no task that asks them.
    """
    asking = spec.asking.tasks
    silent = tuple(task for task in spec.tasks if not task.heads)
    if not spec.tasks:
        raise InputError("no task is given: name at least one, e.g. gest")
    if asking and not spec.models:
        raise InputError(f"{asking[0].name} scores models and none is given: name at least one, e.g. gpt2")
    if spec.models and not asking:
        raise InputError(f"{silent[0].name} scores no model: remove the models")
    scored = score_given(replace(spec, models=(), tasks=silent)) if silent else None
    if scored is None:
        return score(spec.asking)
    return replace(score(spec.asking), given=scored.given) if asking else scored


def score_given(spec: RunSpec) -> Outcome:
    """Score what is given to the tasks of `spec` into its run (its models aren't used).

    Raises InputError for answers that are missing or wrong before anything is written. What has no answer is recorded as
    failures. What the run has of other systems and parts stays; a part that is given again replaces its own results, hash and
    failures.
    """
    done = []
    for task in spec.tasks:
        if spec.limit is not None:
            raise InputError(f"{task.name} reads whole files of answers: remove --limit")
        samples = task.load(spec.data)
        parts = task.given(samples)
        table = task.render(samples, frozenset(), spec.protocol).table
        done.append(
            (task, samples, [(part, validate_scores(task, task.score(table, part.answers, spec.protocol))) for part in parts])
        )
    attempt = provenance(spec.command)
    run = Run.create_or_open(spec.out, protocol=spec.protocol, provenance=attempt)
    with run.locked():
        run.add_attempt(attempt)
        for task, samples, scored in done:
            entry = task_entry(task, samples, run)
            for part, scores in scored:
                run.add_imported(
                    task.name,
                    entry,
                    part.system,
                    scores,
                    dict(part.source),
                    part=part.part,
                    failures=part.failures,
                    left_out=part.left_out,
                )
    systems = dict.fromkeys(part.system for _, _, scored in done for part, _ in scored)
    return Outcome(run, Failures(), tuple(systems))
